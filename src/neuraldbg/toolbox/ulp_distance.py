"""Distances in units in the last place: two arrays enter, the number of floating-point numbers between them leaves.

Numbers of a format are counted from zero, so that a distance is a difference of counts (Dawson 2012, Comparing floating
point numbers). Values of a wider format are rounded to it first, to nearest even.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.toolbox.number_formats import NumberFormat

LIMITS = (0, 1, 4, 16, 256)
"""Largest distances of the classes by size."""
_NAMES = ("0", "1", "2 to 4", "5 to 16", "17 to 256", "more")


@dataclass(frozen=True)
class UlpDistances:
    """The distances of finite elements in units in the last place of the coarser of two dtypes."""

    dtype: str
    """The dtype whose units are counted."""
    max: int
    """Largest distance."""
    median: float
    """Median distance."""
    sizes: dict[str, int]
    """Number of elements by distance: "0", "1", "2 to 4", "5 to 16", "17 to 256", "more"."""


def ulps(a: npt.NDArray[Any], b: npt.NDArray[Any], kind: NumberFormat) -> npt.NDArray[np.uint64]:
    """Return the distance of each pair of finite real numbers, shape as theirs."""
    first, second = _ordinal(a, kind), _ordinal(b, kind)
    apart = np.where(first > second, first - second, second - first)
    return np.where((a < 0) == (b < 0), apart, first + second)


def _ordinal(values: npt.NDArray[Any], kind: NumberFormat) -> npt.NDArray[np.uint64]:
    """Return how many numbers of a format lie between zero and each magnitude."""
    size = np.abs(values.astype(np.float64))
    exponent = np.where(size > 0, np.frexp(size)[1] - 1, kind.lowest)
    exponent = np.maximum(exponent, kind.lowest)  # below it the steps stay the same
    steps = np.rint(np.ldexp(size, kind.digits - exponent)).astype(np.uint64)
    before = (exponent - kind.lowest).astype(np.uint64) << np.uint64(kind.digits)
    return np.asarray(before + steps)


def summary(distances: npt.NDArray[np.uint64], dtype: str) -> UlpDistances | None:
    """Return the distances of all elements as one value, None if there are none."""
    if not distances.size:
        return None
    classes = np.searchsorted(np.array(LIMITS, np.uint64), distances)
    counts = np.bincount(classes, minlength=len(_NAMES))
    sizes = {name: int(n) for name, n in zip(_NAMES, counts, strict=True)}
    return UlpDistances(dtype, int(distances.max()), float(np.median(distances)), sizes)
