"""The data of each rank of a job: levels of its losses, scale of its inputs, shares of its labels.

The ranks of a data-parallel job see other samples of one distribution. Each number of a rank is compared with the
median of the others, in units of what its own values wander.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.nouns.facts.targets import TargetsFact

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.explain.evidence.ranks import Ranks

LAST = 0.25
"""Share of a run at its end over which the level of a loss is taken."""
LEAST = 16
"""Losses, and steps, that a level needs."""
SAMPLES = 64
"""Labels that a rank's shares need."""


class Odd(NamedTuple):
    """A rank whose number lies apart from those of the others."""

    rank: int
    value: float
    others: float
    """Median of the other ranks' numbers."""
    apart: float
    """Their distance in units of what the values of one rank wander."""
    first: float = 0.0
    """Median of the ranks' first losses; 0 for other numbers."""


def odd_loss(job: Ranks) -> Odd | None:
    """Return the rank whose loss ends farthest above those of the others; None if too few losses are known."""
    ends, begun, noise = {}, [], []
    for rank, run in job.runs.items():
        values = run.scalar("loss").finite().values
        last = values[-max(LEAST, int(LAST * len(values))) :]
        if len(values) < 2 * LEAST:
            return None
        begun.append(values[0])
        ends[rank] = float(np.median(last))
        noise.append(float(np.std(last)) / len(last) ** 0.5)
    found = _odd(ends, float(np.median(noise)))
    return found._replace(first=float(np.median(begun))) if found is not None else None


def odd_inputs(job: Ranks, what: str) -> Odd | None:
    """Return the rank whose inputs have another mean or standard deviation than those of the others; None if too few
    steps are known. ``what`` is ``input_mean`` or ``input_std``.
    """
    for stream, ranks in job.replicas[:1]:
        levels, noise = {}, []
        for rank in ranks:
            values = [getattr(one.fact, what) for one in job.readings[stream][rank].values()]
            known = np.asarray([value for value in values if value is not None])
            if len(known) < 4:
                return None
            levels[rank] = float(np.median(known))
            noise.append(float(np.median(np.abs(known - levels[rank]))))
        return _odd(levels, float(np.median(noise)), abs if what == "input_mean" else _scale)
    return None


def labels_apart(job: Ranks) -> tuple[int, float, int] | None:
    """Return the rank whose labels have other shares than those of the others together, their total variation distance,
    and the rank's number of labels; None if they are not known.
    """
    counts: dict[int, dict[str, int]] = {}
    for rank, run in job.runs.items():
        fact = run.known(TargetsFact)
        if fact is None or not fact.histogram or sum(fact.histogram.values()) < SAMPLES:
            return None
        counts[rank] = dict(fact.histogram)
    if len(counts) < 2:
        return None
    best: tuple[int, float, int] | None = None
    for rank, own in counts.items():
        others: dict[str, float] = {}
        for other, told in counts.items():
            if other != rank:
                for name, count in told.items():
                    others[name] = others.get(name, 0.0) + count
        mine, theirs = sum(own.values()), sum(others.values())
        far = 0.5 * sum(abs(own.get(n, 0) / mine - others.get(n, 0.0) / theirs) for n in {*own, *others})
        if best is None or far > best[1]:
            best = (rank, far, mine)
    return best


def _scale(spread: float) -> float:
    """Return the distance of a standard deviation from 1, that of normalised inputs, in orders of magnitude."""
    return abs(math.log10(spread)) if spread > 0 else math.inf


def _odd(levels: dict[int, float], noise: float, size: Callable[[float], float] = float) -> Odd | None:
    """Return the rank farthest from the median of the others. Of two, the one with the larger ``size``."""
    if len(levels) < 2:
        return None
    found = []
    for rank, value in levels.items():
        others = float(np.median([other for each, other in levels.items() if each != rank]))
        found.append(Odd(rank, value, others, abs(value - others) / max(noise, 1e-12)))
    return max(found, key=lambda one: (one.apart, size(one.value)))
