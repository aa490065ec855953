"""The cost of a change of the program: the loss before it, right after it, and at the end of the run.

A loss that jumps at the very step of a change lost something to it, also if it falls again afterwards; a failure that
is seen in the loss alone must end far above its best level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.change_points import FACTOR, SETTLED
from neuraldbg.nouns.facts.change import ChangeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.record_readings import RecordReadings

AT_ONCE = 3
"""Losses after a change whose median is the level right after it."""
LOST = 0.25
"""Share of what was learnt that a change must cost at once."""
LITTLE = 0.5
"""Share of the level, or of a factor of e, that counts as learnt at least: a fourth of it is a rise by an eighth."""
SLOW, SLOW_SHARE = 30, 0.1
"""Steps, and share of the run, that a loss takes at least to come back to its level, from which that is a loss of
time."""
NOISES, ABOVE = 3.0, 0.05
"""Standard errors, and share of the level before, by which the loss must still lie above that level at the end."""
RAISED = ("momentum", "beta1", "weight_decay", "dropout")
"""Settings that cost something where they grow."""


@dataclass(frozen=True)
class Setback:
    """A level of the loss that was lost, and has not come back."""

    before: float
    """Median of the losses before the change."""
    after: float
    """Median of those right after it."""
    end: float
    """Level at the end of the run."""
    share: float
    """Share of what was learnt that was lost at once."""
    orders: float
    """The same in orders of magnitude, of a loss that stays above 0; else as ``share``."""
    sharp: bool
    """True if the loss rose at once, far beyond its noise."""


def _levels(run: RecordReadings, since: int, until: int) -> tuple[float, float, int] | None:
    """Return the levels of the loss before a change and right after it, and the row of the first loss after it; None if
    too few are known.
    """
    loss = run.loss
    values, steps = loss.finite.values, loss.finite.steps
    last, first = int(np.searchsorted(steps, since, "right")), int(np.searchsorted(steps, until))
    before, after = values[max(0, last - loss.window) : last], values[first : first + AT_ONCE]
    if len(before) < loss.window or len(after) < AT_ONCE or len(values) - first < loss.window:
        return None
    return float(np.median(before)), float(np.median(after)), first


def _learnt(run: RecordReadings, level: float) -> float:
    """Return what was learnt up to a level of the loss: of one that has hardly fallen a small rise would be all."""
    return max(run.loss.initial - level, LITTLE * abs(level), 1e-300)


def setback(run: RecordReadings, since: int, until: int) -> Setback | None:
    """Return what a change between two steps cost; None if the loss came back to its level, or too few are known."""
    loss, found = run.loss, _levels(run, since, until)
    if found is None:
        return None
    (level, now, _), error = found, loss.noise / math.sqrt(loss.window)
    if not loss.last > level + max(NOISES * error, ABOVE * abs(level)):
        return None
    share = orders = (now - level) / _learnt(run, level)
    if 0 < level < loss.initial and now > 0:
        orders = math.log(now / level) / max(math.log(loss.initial / level), LITTLE)
    return Setback(level, now, loss.last, share, orders, now - level > NOISES * loss.noise)


def slow_return(run: RecordReadings, since: int, until: int) -> tuple[float, float, int] | None:
    """Return the loss before a change between two steps, right after it, and the steps that it took to come back to its
    level, where it lost a quarter of what was learnt at once and took long; None if it did not, or has never come back.
    """
    loss, found = run.loss, _levels(run, since, until)
    if found is None or not loss.alone:
        return None
    (level, now, first), error = found, loss.noise / math.sqrt(loss.window)
    if not now - level > max(NOISES * loss.noise, LOST * _learnt(run, level)):
        return None
    after = loss.finite.values[first:]
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(after, loss.window), axis=1)
    back = np.flatnonzero(smooth <= level + NOISES * error)
    took = int(loss.finite.steps[first + int(back[0])]) - until if len(back) else 0
    return (level, now, took) if took >= max(SLOW, SLOW_SHARE * run.run.steps) else None


def first_setback(run: RecordReadings) -> tuple[int, Setback] | None:
    """Return the first setback by a setting that grew beyond all that it was before, or by weights that were written
    to, with its step; None if there is none.
    """
    loss = run.loss
    if not loss.alone or not len(loss.finite):
        return None
    for since, until, written in sorted(_raises(run)):
        if any(begun < until <= ended for begun, ended in loss.renewed):
            continue  # levels before and after are of two losses
        found = setback(run, since, until) if until > SETTLED else None
        if found is not None and found.sharp and max(found.share, found.orders if written else 0.0) > LOST:
            return until, found
    return None


def _raises(run: RecordReadings) -> list[tuple[int, int, bool]]:
    """Return the steps around each change that may cost something, and whether weights were written to."""
    facts = [one for _, one in run.run.versions(ChangeFact)]
    begun = [one.until for one in facts if one.what == "optimizer"]  # with it a training may begin anew
    found = [
        (one.since, one.until, one.what == "weights")
        for one in facts
        if (one.what == "weights" and all(abs(one.until - at) > AT_ONCE for at in begun))
        or (one.what in RAISED and (one.after or 0.0) > (one.before or 0.0))
    ]
    rates = run.scalar("lr").finite()
    if len(rates) > 1:
        highest = np.maximum.accumulate(rates.values)
        steep = np.flatnonzero((rates.width[1:] == 1) & (rates.values[1:] > FACTOR * highest[:-1])) + 1
        found += [(int(rates.steps[k - 1]), int(rates.steps[k]), False) for k in steep.tolist()]
    return found
