"""Inputs that come in other units, or are one constant, from some step on and to the end of the run.

The statistics of the model's inputs enter, those before and after the change leave. A training may get over it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.explain.evidence.change_points import READINGS, SHIFT, input_words, scale_shift
from neuraldbg.explain.evidence.loss_jump import jump_between
from neuraldbg.explain.evidence.wording import a_step, number

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.record_readings import RecordReadings
    from neuraldbg.explain.finding import Weighing

LARGE, SMALL = 10.0, 0.01
"""rms above and below which inputs are far from unit scale (LeCun et al. 1998, Efficient BackProp, ask for about 1)."""
_STATS = ("mean", "std", "rms", "min", "max")


class Levels(NamedTuple):
    """Medians of the statistics of one input over some readings."""

    mean: float
    std: float
    rms: float
    low: float
    high: float

    @property
    def off(self) -> float:
        """Distance of the input from unit scale, in orders of magnitude of its rms; 0 where it is near."""
        return abs(math.log10(self.rms)) if self.rms > LARGE or 0 < self.rms < SMALL else 0.0


@dataclass(frozen=True)
class NewInputs:
    """The change of one input that lasts to the end of the run."""

    words: str
    """The input in a sentence: ``the inputs``."""
    since: int
    """Last step that was read with the inputs before."""
    until: int
    """First step that was read with those after."""
    before: Levels
    after: Levels
    level: float
    """Median loss before the change, NaN if too few are known."""
    jump: float
    """Highest of the first losses from the change on, NaN if it did not rise far beyond its noise."""
    constant: bool = False
    """True if all values of all inputs are the same since then."""

    @property
    def spoilt(self) -> bool:
        """Return True if the inputs tell nothing any more, or are farther from unit scale than they were."""
        return self.constant or self.after.off > self.before.off

    @property
    def said(self) -> str:
        """The change as a clause, with its date."""
        when = a_step(self.since, self.until)
        if self.constant:
            return f"from {when} on all values of {self.words} are {number(self.after.low)}"
        return (
            f"from {when} on {self.words} range from {number(self.after.low)} to {number(self.after.high)}; before, "
            f"they ranged from {number(self.before.low)} to {number(self.before.high)}"
        )

    def weigh(self, weigh: Weighing, weight: float) -> None:
        """Add the change, and that the loss rose with it."""
        weigh.speaks(self.said, weight, self.after.rms, self.before.rms)
        if np.isfinite(self.jump):
            weigh.speaks(f"the loss was at {number(self.level)}, and rose to {number(self.jump)} there", 1.5, self.jump)


def new_inputs(run: RecordReadings) -> NewInputs | None:
    """Return the change by which all inputs became constant, else that of the first one that came in units of another
    order; None if there is none, or if the inputs came to be as they were again.
    """
    rows = run.layout.rows("input")
    # A mask, a length or a label of the domain that comes to be the same leaves the rest as it was.
    every = [_constant(run, row) for row in rows]
    if every and every[0] is not None and None not in every:
        return every[0]
    return next((one for row in rows if (one := _in_other_units(run, row)) is not None), None)


def _constant(run: RecordReadings, row: int) -> NewInputs | None:
    std = run.run.series(row, "std").finite()
    varied = np.flatnonzero(std.values > 0)
    at = int(varied[-1]) + 1 if len(varied) else 0
    if at < READINGS or len(std) - at < READINGS or len(varied) < at / 2:
        return None
    last = run.run.steps
    low, high = (run.run.series(row, name).finite().between(int(std.steps[at]), last) for name in ("min", "max"))
    if not len(low) or not len(high) or low.values.min() != high.values.max():  # the same in a batch, and not in all
        return None
    found = _between(run, row, int(std.steps[at - 1]), int(std.steps[at]))
    return replace(found, constant=True) if found is not None else None


def _in_other_units(run: RecordReadings, row: int) -> NewInputs | None:
    change = scale_shift(run, row)
    if change is None:
        return None
    since = run.run.series(row, "std").finite().between(change.until, run.run.steps).values
    factor = since / change.before if change.after > change.before else change.before / np.maximum(since, 1e-300)
    return _between(run, row, change.since, change.until) if len(since) and (factor > SHIFT / 2).all() else None


def _between(run: RecordReadings, row: int, since: int, until: int) -> NewInputs | None:
    """Return the change with the statistics of the readings before and after it; None if one is not known."""
    series = [run.run.series(row, name).finite() for name in _STATS]
    spans = [[one.between(0, since).values, one.between(until, run.run.steps).values] for one in series]
    if not all(len(values) for pair in spans for values in pair):
        return None
    before, after = (Levels(*(float(np.median(pair[k])) for pair in spans)) for k in (0, 1))
    level, jump, at = jump_between(run, since, until)
    if at is not None:
        since, until = at - 1, at
    return NewInputs(input_words(run.layout.sites[row].name), since, until, before, after, level, jump)
