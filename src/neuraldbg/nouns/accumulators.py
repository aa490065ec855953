"""The accumulators of one tensor's statistics: numbers enter, a raw row grows, and ``STATS`` leave.

``capture`` fills raw rows from live tensors, also by native code; ``add`` is the same in numpy. A row accumulates over
the calls of one step, so micro-batches and repeated calls need no bookkeeping.

The raw columns, float64: total, count, nonfinite, sum, sum of squares, min, max, zeros, saturated, and the elements
that half precision would round to zero (under) or to infinity (over).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.site import STATS, column

if TYPE_CHECKING:
    import numpy.typing as npt

TOTAL, COUNT, NONFINITE, SUM, SQUARES, MIN, MAX, ZEROS, SATURATED, UNDER, OVER = range(11)
WIDTH = 11
HALF_UNDER, HALF_OVER = 2.0**-25, 65520.0
"""Limits of IEEE 754 binary16, rounding to nearest even: up to 2**-25 becomes zero, from 65,520 on infinite."""
BLANK = np.zeros(WIDTH)
"""A row before anything was read into it, shape (WIDTH,)."""
BLANK[MIN], BLANK[MAX] = np.inf, -np.inf

_COPIED = [
    (TOTAL, column("total")),
    (COUNT, column("count")),
    (NONFINITE, column("nonfinite")),
    (ZEROS, column("zeros")),
    (SATURATED, column("saturated")),
    (UNDER, column("under")),
    (OVER, column("over")),
]
"""Accumulators that are statistics without a further computation."""
_MEAN, _STD, _RMS, _MIN, _MAX = map(column, ("mean", "std", "rms", "min", "max"))


def add(wide: npt.NDArray[np.float64], row: npt.NDArray[np.float64], total: int) -> None:
    """Add the statistics of the numbers read of a tensor, shape (count,), to a raw row, shape (WIDTH,). ``total`` is
    the number of elements of the tensor. Saturation is not counted.
    """
    size = np.abs(wide)
    finite = np.isfinite(wide)
    row[TOTAL] += total
    row[COUNT] += wide.size
    row[ZEROS] += np.count_nonzero(wide == 0)
    row[UNDER] += np.count_nonzero((size <= HALF_UNDER) & (wide != 0))
    row[OVER] += np.count_nonzero((size >= HALF_OVER) & finite)
    if not finite.all():
        row[NONFINITE] += np.count_nonzero(~finite)
        wide = wide[finite]
    if wide.size:
        row[SUM] += np.add.reduce(wide)
        row[SQUARES] += np.dot(wide, wide)
        row[MIN] = min(row[MIN], np.minimum.reduce(wide))
        row[MAX] = max(row[MAX], np.maximum.reduce(wide))


def derived(raw: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Turn accumulators, shape (..., WIDTH), into statistics, shape (..., len(STATS))."""
    out = np.zeros((*raw.shape[:-1], len(STATS)))
    for col, place in _COPIED:
        out[..., place] = raw[..., col]
    finite = raw[..., COUNT] - raw[..., NONFINITE]
    number = np.where(finite > 0, finite, np.nan)  # NaN, so that a site that was not read has no moments
    with np.errstate(over="ignore", invalid="ignore"):
        mean, squares = raw[..., SUM] / number, raw[..., SQUARES] / number
        out[..., _MEAN] = mean
        out[..., _STD] = np.sqrt(np.maximum(squares - mean * mean, 0.0))
        out[..., _RMS] = np.sqrt(squares)
    out[..., _MIN] = np.where(finite > 0, raw[..., MIN], np.nan)
    out[..., _MAX] = np.where(finite > 0, raw[..., MAX], np.nan)
    out[..., _STD][out[..., _MIN] == out[..., _MAX]] = 0.0  # squares - mean * mean leaves rounding, as of one element
    return out
