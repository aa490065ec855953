"""One curve of a run as it is judged: a Series enters; levels, windows at its end and medians of blocks leave.

Values stand at the middle of the steps that they cover. Blocks cover equal numbers of steps, so that sparse curves and
thinned ones are read like others. Medians of blocks are what trends are tested on: they are nearly free of spikes, and
nearly independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.robust_statistics import (
    Order,
    Slope,
    correlation_inflation,
    kendall,
    noise_of,
    theil_sen,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.nouns import Series

    Floats = npt.NDArray[np.float64]

BLOCKS = 16
"""Blocks of a window. Kendall's test finds a trend in 16 values about as well as in all, and neighbours among the
values may be correlated over a sixteenth of the window."""
LEAST = 5
"""Values from which on a trend can be seen: five in perfect order come about by chance with a probability of 1.7%."""
CURVED = 8
"""Blocks from which on the correlation of neighbours is estimated."""
CLEAN = 0.01
"""What a parabola leaves over, as a share of the range of the blocks, below which its correlation does not matter."""
STARTING = 3
"""Values whose median is the level at the start, as in ``detect/progress.py``."""
LARGEST = 1e120
"""Size above which a value counts as infinite here: its square, and sums of many squares, would be."""


@dataclass(frozen=True)
class Window:
    """Medians of blocks over a stretch of a curve, with the test for an order in them and their slope."""

    at: Floats
    """Middle steps, shape (B,)."""
    level: Floats
    """Medians, shape (B,)."""
    first: int
    """First step of the stretch."""
    count: int
    """Number of values in the stretch."""
    sizes: Floats
    """Number of values in each block, shape (B,)."""

    @cached_property
    def slope(self) -> Slope:
        """Theil-Sen slope per step, with its interval widened for correlated neighbours."""
        return theil_sen(self.at, self.level, self.inflation)

    @cached_property
    def order(self) -> Order:
        """Kendall's test, with its variance widened for correlated neighbours."""
        return kendall(self.level, self.inflation)

    @cached_property
    def inflation(self) -> float:
        """Factor on the variance of Kendall's S for the correlation of neighbours about a parabola: the bend of a curve
        is no noise.
        """
        if len(self.at) < CURVED or not self.span > 0:
            return 1.0
        basis = np.vander((self.at - self.at[0]) / self.span, 3)
        fitted = basis @ np.linalg.lstsq(basis, self.level, rcond=None)[0]
        rest = self.level - fitted
        # What is left over of a clean curve is rounding, or a bend of a higher order.
        clean = float(rest.std()) < CLEAN * float(np.ptp(self.level))
        return 1.0 if clean else correlation_inflation(rest)

    @property
    def span(self) -> float:
        """Steps from the middle of the first block to that of the last."""
        return float(self.at[-1] - self.at[0]) if len(self.at) else 0.0


@dataclass(frozen=True)
class Curve:
    """The finite values of one series."""

    at: Floats
    """Middle step of each value, shape (T,), ascending."""
    y: Floats
    """Values, shape (T,)."""
    steps: npt.NDArray[np.int64]
    """First step of each value, shape (T,)."""
    width: npt.NDArray[np.int64]
    """Number of steps of each value, shape (T,)."""
    ends_nonfinite: bool
    """True if the last value of the series was NaN or infinite."""
    lost: int
    """Values that were NaN or infinite."""

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def noise(self) -> float:
        """Standard deviation of one value about the trend, over all values."""
        return noise_of(self.y)

    @cached_property
    def late_noise(self) -> float:
        """The same over the last half of the values: noise often shrinks with the level."""
        return noise_of(self.y[len(self.y) // 2 :]) if len(self.y) >= 2 * LEAST else self.noise

    @property
    def size(self) -> int:
        """Number of values over which a level is taken: a tenth of the curve, at most 50, as in ``explain``."""
        return int(np.clip(len(self.y) // 10, 1, 50))

    @property
    def initial(self) -> float:
        """First value."""
        return float(self.y[0])

    @property
    def start(self) -> float:
        """Level of the first few values."""
        return float(np.median(self.y[: STARTING if len(self.y) >= LEAST else 1]))

    @property
    def last(self) -> float:
        """Level at the end."""
        return float(np.median(self.y[-self.size :]))

    @cached_property
    def _levels(self) -> Floats:
        levels: Floats = np.median(np.lib.stride_tricks.sliding_window_view(self.y, self.size), axis=1)
        return levels

    @property
    def lowest(self) -> tuple[float, int]:
        """Lowest level of ``size`` values in a row, and the last step of them."""
        at = int(self._levels.argmin())
        return float(self._levels[at]), int(self.steps[at + self.size - 1])

    @property
    def highest(self) -> float:
        """Highest level of ``size`` values in a row."""
        return float(max(self._levels.max(), self.start))

    @property
    def positive(self) -> bool:
        """True if no value is negative and the level is above zero: then relative changes have a meaning."""
        return bool(len(self.y)) and float(self.y.min()) >= 0 and self.last > 0

    @property
    def span(self) -> float:
        """Steps from the first value to the last."""
        return float(self.at[-1] - self.at[0]) if len(self.at) else 0.0

    @cached_property
    def scale(self) -> float:
        """Size against which a change counts: the level, or the range that the curve covered if that is smaller and
        more than noise. The range of a curve that is not positive; 0 if it is constant.
        """
        covered = self.highest - self.lowest[0]
        if not self.positive:
            return covered
        clear = covered > 3 * self.noise / np.sqrt(self.size)
        return min(self.last, covered) if clear and covered > 0 else self.last

    def window(self, begin: float, end: float = 1.0, blocks: int = BLOCKS, *, growing: bool = False) -> Window:
        """Return the stretch between two shares of the curve's steps, in blocks of equal numbers of steps.

        Where values are sparse there, the stretch is between these shares of the number of values.
        """
        low, high = self.at[0] + begin * self.span, self.at[0] + end * self.span
        inside = (self.at >= low) & (self.at <= high)
        if inside.sum() < min(BLOCKS, (end - begin) * len(self)):
            order = np.arange(len(self))
            inside = (order >= int(begin * len(self))) & (order < int(np.ceil(end * len(self))))
        return self.blocks(inside, blocks, growing=growing)

    def blocks(self, inside: npt.NDArray[np.bool_], blocks: int, *, growing: bool = False) -> Window:
        """Return the medians of blocks over some of the values; each value is a block if there are few.

        Blocks that are ``growing`` are short at first and long at the end: a curve that falls steeply at first is no
        level over a long block.
        """
        at, y = self.at[inside], self.y[inside]
        first = int(self.steps[inside][0]) if len(y) else 0
        if len(y) <= blocks:
            return Window(at, y, first, len(y), np.ones(len(y)))
        edges = at[0] + (at[-1] - at[0]) * np.linspace(0, 1, blocks + 1) ** (2 if growing else 1)
        number = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, blocks - 1)
        cuts = np.flatnonzero(np.diff(number)) + 1
        parts = zip(np.split(at, cuts), np.split(y, cuts), strict=True)
        found = np.array([(part_at.mean(), np.median(part), len(part)) for part_at, part in parts])
        return Window(found[:, 0], found[:, 1], first, len(y), found[:, 2])


def curve_of(series: Series) -> Curve:
    """Return the finite values of a series as a curve. Values too large to be squared count as infinite."""
    values = np.asarray(series.values, np.float64)
    keep = np.isfinite(values) & (np.abs(np.nan_to_num(values)) < LARGEST)
    steps, width = series.steps[keep], np.maximum(series.width[keep], 1)
    at = steps + (width - 1) / 2
    bad = ~keep
    return Curve(at, values[keep], steps, width, bool(len(bad)) and bool(bad[-1]), int(bad.sum()))
