"""Labels that were many at first and of one class in each batch from some step on: facts of the loss enter, a change
of the labels leaves.

Labels are counted in the steps whose loss graph is read; the loss of every step narrows the stretch between two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.wording import a_step, number
from neuraldbg.nouns.robust_statistics import noise_of

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Weighing
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetsFact

BEFORE, SINCE = 3, 2
"""Least readings of the labels before a change, and from it on."""
CHANCE = 1e-9
"""Largest chance that shuffled batches of the labels before are all of one class."""
AT_ONCE, NOISES, TIMES, RISE = 3, 4.0, 1.5, 0.05
"""Losses in a row from the change on, and the standard deviations, the factor, and the share of the first loss by which
all of them rise where the labels do not belong to the inputs."""
LOOK_BACK = 3
"""Windows of losses before the change, in which none may have risen as far."""


@dataclass(frozen=True)
class OneClass:
    """A change from which on each batch that was read has labels of one class, where batches had several."""

    since: int
    """Last step that was read with several classes."""
    until: int
    """First step that was read with one."""
    classes: tuple[str, ...]
    """The class of each reading from the change on."""
    labels: int
    """Labels in those readings."""
    before: int
    """Classes in the readings before."""
    level: float
    """Median loss before the change, NaN if too few are known."""
    jump: float
    """Highest of the first losses from the change on, NaN if it did not rise."""
    rose: bool
    """True if the loss rose at the change, far beyond its noise."""

    @property
    def same(self) -> bool:
        """Return True if all batches from the change on have the same class."""
        return len(set(self.classes)) == 1

    @property
    def when(self) -> str:
        """The change in words: ``from step 810 on``."""
        return f"from {a_step(self.since, self.until)} on"

    def weigh(self, weigh: Weighing, weight: float) -> None:
        """Add what was counted before and after."""
        what = f"class {self.classes[0]}" if self.same else "one class each"
        weigh.speaks(
            f"each batch that was read up to step {self.since} had labels of several classes, {self.before} in all; "
            f"{self.when} all {self.labels} labels that were read, of {len(self.classes)} batches, are of {what}",
            weight, 1, self.before,
        )  # fmt: skip
        if self.rose:
            weigh.speaks(f"the loss was at {number(self.level)}, and rose to {number(self.jump)} there", 1.0)


def one_class_since(case: Case, slot: TargetsFact, term: LossTerm) -> OneClass | None:
    """Return the change from which on batches have labels of one class; None if there is none, or none that lasts to
    the end of the run. ``term`` is that of the slot, as ``targets.supervised`` returns it.
    """
    wanted = term.kind, term.layer
    read = [
        (step, {name: count for name, count in one.target_histogram.items() if count})
        for step, one in targets.readings(case)
        if (one.kind, one.layer) == wanted and one.target_histogram
    ]
    ended = next((at for at, (_, labels) in enumerate(read) if len(labels) == 1), len(read))
    before, since = read[:ended], read[ended:]
    if slot.tokens is not None or len(term.target_shape or ()) > 1 or len(before) < BEFORE or len(since) < SINCE:
        return None
    if any(len(labels) > 1 for _, labels in since):  # such batches come now and then
        return None
    # Classes that were rare before may be all that a batch holds by chance.
    counts: dict[str, int] = {}
    for _, of in before:
        for name, count in of.items():
            counts[name] = counts.get(name, 0) + count
    main, labels = max(counts.values()) / sum(counts.values()), sum(sum(one.values()) for _, one in since)
    if main**labels > CHANCE:
        return None
    last, first = before[-1][0], since[0][0]
    level, jump, at = _jump(case, last, first)
    return OneClass(
        last if at is None else at - 1,
        first if at is None else at,
        tuple(name for _, one in since for name in one),
        labels,
        len(counts),
        level,
        jump,
        at is not None,
    )


def _jump(case: Case, last: int, first: int) -> tuple[float, float, int | None]:
    """Return the loss before a change between two steps, the highest right after it, and the step at which it jumped
    there; NaN and None if it did not.
    """
    loss = case.loss
    steps, values = loss.finite.steps, loss.finite.values
    begin, end = int(np.searchsorted(steps, last, "right")), int(np.searchsorted(steps, first, "right")) + AT_ONCE
    before = values[max(0, begin - loss.window) : begin]
    if not len(before) or len(values) < begin + AT_ONCE:
        return float("nan"), float("nan"), None
    level = float(np.median(before))
    bar = max(level + NOISES * noise_of(before), TIMES * level, level + RISE * abs(loss.initial))
    rows = np.lib.stride_tricks.sliding_window_view(values[begin:end], AT_ONCE)
    above = np.flatnonzero((rows > bar).all(axis=1))
    earlier = values[max(0, begin - LOOK_BACK * loss.window) : begin]
    often = len(earlier) >= AT_ONCE and (np.lib.stride_tricks.sliding_window_view(earlier, AT_ONCE) > bar).all(axis=1)
    if not len(above) or np.any(often):
        return level, float("nan"), None
    at = begin + int(above[0])
    return level, float(values[at : at + AT_ONCE].max()), int(steps[at])
