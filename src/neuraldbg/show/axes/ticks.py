"""Numbers along an axis of a text or a figure: the cell of each value, and the ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.show.forms import Floats, Ints


LARGEST = 8e307
"""Largest end of an axis, so that its length is finite."""
DECADES = 2
"""Powers of ten above which numbers are drawn on a log axis: on a linear one the small ones are at 0."""


@dataclass(frozen=True)
class Axis:
    """An axis over a range of numbers, linear or logarithmic; ``low`` is less than ``high``, and above 0 if it is
    logarithmic.
    """

    low: float
    high: float
    log: bool = False

    def place(self, values: Floats | Ints, cells: int) -> Ints:
        """Return the cell of each value, 0 to cells - 1; -1 for values that are not finite or not on the axis."""
        values = np.asarray(values, np.float64)
        low, high = self._scaled(np.array([self.low, self.high]))
        scaled = self._scaled(values)
        found = np.full(values.shape, -1, np.int64)
        there = np.isfinite(scaled)
        share = (np.clip(scaled[there], low, high) - low) / (high - low)
        found[there] = np.clip(np.rint(share * (cells - 1)), 0, cells - 1)
        return found

    def ticks(self, most: int, *, whole: bool = False) -> list[float]:
        """Return at most so many round numbers within the range; the ends where no round number is."""
        if self.log and math.log10(self.high / self.low) >= 1:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, -(-(last - first + 1) // max(1, most)))
            return [10.0**power for power in range(first, last + 1, every)]
        step = _round((self.high - self.low) / max(1, most))
        step = max(1.0, step) if whole else step
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{step * i:.12g}") for i in range(first, last + 1)] or [self.low]

    def _scaled(self, values: Floats) -> Floats:
        if not self.log:
            return values
        return np.log10(np.where(values > 0, values, np.nan))


def wide(values: Floats, *, signed: bool = False) -> bool:
    """Return True if the finite numbers that are not 0 span more powers of ten than a linear axis can show.

    With a negative number they do not, since a log axis has no place for it; with ``signed`` the axis has both sides.
    """
    finite = values[np.isfinite(values)]
    sizes = np.abs(finite[finite != 0])
    if not len(sizes) or (not signed and finite.min() < 0):
        return False
    return float(sizes.max()) > float(sizes.min()) * 10.0**DECADES


def axis_of(parts: Iterable[Floats | Ints], *, log: bool = False) -> Axis:
    """Return the axis over all finite numbers, or those above 0 if it is logarithmic."""
    found = [np.asarray(part, np.float64).ravel() for part in parts]
    values = np.concatenate(found) if found else np.zeros(0)
    values = values[np.isfinite(values)]
    values = values[values > 0] if log else values
    if not len(values):
        return Axis(0.1, 1.0, log=True) if log else Axis(0.0, 1.0)
    low, high = max(float(values.min()), -LARGEST), min(float(values.max()), LARGEST)
    if low < high:
        return Axis(low, high, log=log)
    if log:
        return Axis(low / 2, high * 2, log=True)
    return Axis(low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2)


def _round(size: float) -> float:
    """Return the next larger of 1, 2, 5, 10, ... times a power of ten."""
    base = 10.0 ** math.floor(math.log10(size))
    return next(base * times for times in (1, 2, 5, 10) if base * times >= size * (1 - 1e-9))
