"""Labels of many classes at first, and nearly all of one class in each batch from some step on: facts of the loss
enter, a change of the labels leaves. The same for numbers that come to lie close together.

Labels are counted in the steps whose loss graph is read; the loss of every step narrows the stretch between two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.loss_jump import jump_between
from neuraldbg.explain.evidence.wording import a_step, number, percent

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Weighing
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetsFact

BEFORE, SINCE = 3, 2
"""Least readings of the labels before a change, and from it on."""
CHANCE = 1e-9
"""Largest chance that shuffled batches of the labels before are nearly all of one class (Chernoff's bound)."""
NEARLY = 0.97
"""Share of the main class in a batch from which it is nearly all of it."""
FEW = 8
"""Targets of a batch, from which their spread says something."""
NARROW = 1 / 3
"""Share of the standard deviation inside a batch up to which its targets hardly differ: that of shuffled batches of 16
varies by a fifth."""


@dataclass(frozen=True)
class Turn:
    """A change that lasts to the end of the run."""

    since: int
    """Last step that was read with the targets before."""
    until: int
    """First step that was read with those after."""

    @property
    def when(self) -> str:
        """The change in words: ``from step 810 on``."""
        return f"from {a_step(self.since, self.until)} on"


@dataclass(frozen=True)
class OneClass(Turn):
    """A change from which on each batch that was read has labels of one class, where batches had several."""

    classes: tuple[str, ...]
    """The main class of each reading from the change on."""
    labels: int
    """Labels in those readings."""
    share: float
    """Share of them that are of the main class of their batch."""
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

    def weigh(self, weigh: Weighing, weight: float) -> None:
        """Add what was counted before and after."""
        what = f"class {self.classes[0]}" if self.same else "one class each"
        part = "all" if self.share == 1 else f"{percent(self.share)} of the"
        weigh.speaks(
            f"each batch that was read up to step {self.since} had labels of several classes, {self.before} in all; "
            f"{self.when} {part} {self.labels} labels that were read, of {len(self.classes)} batches, are of {what}",
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
        if (one.kind, one.layer) == wanted and any(one.target_histogram.values())
    ]
    main = [max(labels, key=lambda name: labels[name]) for _, labels in read]
    narrow = [labels[name] >= NEARLY * sum(labels.values()) for (_, labels), name in zip(read, main, strict=True)]
    ended = narrow.index(True) if True in narrow else len(read)
    before, since = read[:ended], read[ended:]
    if slot.tokens is not None or len(term.target_shape or ()) > 1 or len(before) < BEFORE or len(since) < SINCE:
        return None
    if min(sum(labels.values()) for _, labels in since) < FEW:  # a batch of one has one class
        return None
    if not all(narrow[ended:]):  # such batches come now and then
        return None
    # Classes that were rare before may be nearly all that a batch holds by chance.
    counts: dict[str, int] = {}
    for _, of in before:
        for name, count in of.items():
            counts[name] = counts.get(name, 0) + count
    labels = sum(sum(one.values()) for _, one in since)
    share = sum(one[name] for (_, one), name in zip(since, main[ended:], strict=True)) / labels
    if not labels * _divergence(share, max(counts.values()) / sum(counts.values())) > -math.log(CHANCE):
        return None
    last, first = before[-1][0], since[0][0]
    level, jump, at = jump_between(case, last, first)
    return OneClass(
        last if at is None else at - 1,
        first if at is None else at,
        tuple(main[ended:]),
        labels,
        share,
        len(counts),
        level,
        jump,
        at is not None,
    )


def _divergence(share: float, before: float) -> float:
    """Return the Kullback-Leibler divergence of a share from a smaller one before, in nats; 0 if it is not larger."""
    if not share > before:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - before)) if share < 1 else 0.0
    return share * math.log(share / before) + rest


@dataclass(frozen=True)
class Narrowed(Turn):
    """A change from which on the targets of a batch, numbers, hardly differ from each other, where they did."""

    before: float
    """Median standard deviation inside the batches before."""
    inside: float
    """Largest standard deviation inside a batch since then."""
    span: float
    """Distance of the largest from the smallest mean of a batch since then."""
    readings: int
    """Batches that were read since then."""


def narrowed(case: Case, term: LossTerm) -> Narrowed | None:
    """Return the change from which on the targets of each batch that was read lie close together, up to the end of the
    run; None if there is none. ``term`` is one of numbers, as ``targets.supervised`` returns it.
    """
    read = [
        (step, one.target)
        for step, one in targets.readings(case)
        if (one.kind, one.layer) == (term.kind, term.layer) and one.target is not None
        and math.prod(one.target_shape or ()) >= FEW
    ]  # fmt: skip
    known = [(step, of.mean, of.std, of.min, of.max) for step, of in read]
    if len(known) < BEFORE + SINCE or any(None in one for one in known):
        return None
    means, stds, lows, highs = (np.array([one[k] for one in known], dtype=np.float64) for k in (1, 2, 3, 4))
    # The last batch whose targets differed as they had: all later ones are narrow.
    wide = np.flatnonzero(stds > NARROW * np.median(stds[:BEFORE]))
    at = int(wide[-1]) + 1 if len(wide) else 0
    if at < BEFORE or len(known) - at <= SINCE or len(wide) < at:
        return None
    # Numbers that leave the range that they had are other numbers, as returns that grow with a policy are.
    if means[at:].min() < lows[:at].min() or means[at:].max() > highs[:at].max():
        return None
    since, until = known[at - 1][0], known[at][0]
    return Narrowed(
        since, until, float(np.median(stds[:at])), float(stds[at:].max()), float(np.ptp(means[at:])), len(known) - at
    )
