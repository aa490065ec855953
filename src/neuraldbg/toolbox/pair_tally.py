"""The differences of two flat arrays, element by element, accumulated a chunk at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.toolbox.ulp_distance import ulps

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.toolbox.number_formats import NumberFormat

_CHUNK = 262_144
"""Elements compared at once: the temporary arrays of a large pair stay small."""

_LARGE, _LESS = 2.0**900, 100
"""Differences whose sum is taken in units of 2**100."""


class PairTally:
    """Compares two arrays of one shape (n,), the first of which is the reference."""

    def __init__(
        self,
        first: npt.NDArray[Any],
        second: npt.NDArray[Any],
        tolerances: tuple[float, float],
        kind: NumberFormat | None,
    ) -> None:
        self.first, self.second = first, second
        self.count = len(first)
        self.identical = first.dtype == second.dtype
        """True if both are the same bit by bit."""
        self.equal = True
        """True if all values are the same; NaN is the same as NaN."""
        self.max_abs = self.mean_abs = self.max_rel = self.mean_rel = math.nan
        self.largest: int | None = None
        """Place of the largest difference, None if no finite elements differ."""
        self.nonfinite: int | None = None
        """Place of the first NaN or infinity that only one of both has."""
        self.nan_mismatches = self.inf_mismatches = 0
        self._tolerances, self._kind = tolerances, kind
        self._pairs = self._signed = self._flipped = 0
        self._sum_abs = self._sum_large = self._sum_rel = 0.0
        self._beyond: list[npt.NDArray[np.intp]] = []
        self._ulps: list[npt.NDArray[np.uint64]] = []
        self._power = _powers(first, second)
        self._dot = self._squares = self._others = self._apart = 0.0
        for start in range(0, self.count, _CHUNK):
            with np.errstate(all="ignore"):  # the difference of two float64 may be infinite: then that is said
                self._add(start, first[start : start + _CHUNK], second[start : start + _CHUNK])
        if self._pairs:
            self.mean_abs = self._sum_abs / self._pairs + _ldexp(self._sum_large / self._pairs, _LESS)
            self.mean_rel = self._sum_rel / self._pairs

    def _add(self, start: int, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> None:
        if self.identical:
            self.identical = a.tobytes() == b.tobytes()
        wide = _wide(a, b)
        a, b = a.astype(wide), b.astype(wide)
        both = np.isfinite(a) & np.isfinite(b)
        wrong = self._mismatches(start, a, b, both) if not both.all() else both[:0]
        x, y = (a, b) if both.all() else (a[both], b[both])
        size = np.maximum(np.abs(x), np.abs(y))
        # Halves of large numbers: their difference may overflow where the relative one does not.
        half = np.where(size > 1, 0.5, 1.0)
        gap_there = np.abs(y * half - x * half)
        relative = np.divide(gap_there, size * half, out=np.zeros_like(gap_there), where=gap_there > 0)
        gap = gap_there / half
        beyond = ~(gap <= self._tolerances[1] + self._tolerances[0] * np.abs(x))
        self.equal = self.equal and not wrong.any() and not gap.any()
        self._gaps(start, both, gap, relative)
        self._moments(x, y)
        if wrong.size:
            wrong[both] |= beyond
            beyond = wrong
        self._beyond.append(np.flatnonzero(beyond) + start)
        if self._kind is not None and x.size:
            self._ulps.append(_ulps(x, y, self._kind))
        if x.dtype.kind != "c":
            self._signed += int(np.count_nonzero((x != 0) & (y != 0)))
            self._flipped += int(np.count_nonzero(((x < 0) & (y > 0)) | ((x > 0) & (y < 0))))

    def _mismatches(
        self, start: int, a: npt.NDArray[Any], b: npt.NDArray[Any], both: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return which elements are NaN or infinite in another way than in the other array."""
        nan = np.isnan(a) != np.isnan(b)
        infinite = ~both & ~np.isnan(a) & ~np.isnan(b) & (a != b)
        wrong: npt.NDArray[np.bool_] = nan | infinite
        self.nan_mismatches += int(nan.sum())
        self.inf_mismatches += int(infinite.sum())
        if self.nonfinite is None and wrong.any():
            self.nonfinite = start + int(np.argmax(wrong))
        return wrong

    def _gaps(self, start: int, both: npt.NDArray[np.bool_], gap: npt.NDArray[Any], relative: npt.NDArray[Any]) -> None:
        if not gap.size:
            return
        self._pairs += gap.size
        if gap.max() > _LARGE:  # the sum may overflow where the mean does not
            self._sum_large += float(np.ldexp(gap, -_LESS).sum())
        else:
            self._sum_abs += float(gap.sum())
        self._sum_rel += float(relative.sum())
        at = int(np.argmax(gap))
        if gap[at] > 0 and (self.largest is None or gap[at] > self.max_abs):
            self.largest = start + (at if gap.size == both.size else int(np.flatnonzero(both)[at]))
        self.max_abs = float(np.fmax(self.max_abs, float(gap[at])))
        self.max_rel = float(np.fmax(self.max_rel, float(relative.max())))

    def _moments(self, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
        """Add to the sums of cosine and norms, of numbers scaled by powers of two that keep squares in range."""
        one, other = (_scaled(z, power) for z, power in zip((x, y), self._power, strict=True))
        common = max(self._power)
        apart = _scaled(y, common) - _scaled(x, common)
        self._dot += float(np.vdot(one, other).real)
        self._squares += float(np.vdot(one, one).real)
        self._others += float(np.vdot(other, other).real)
        self._apart += float(np.vdot(apart, apart).real)

    @property
    def cosine(self) -> float:
        """Cosine of both; NaN if one is all zero."""
        size = math.sqrt(self._squares) * math.sqrt(self._others)
        return max(-1.0, min(1.0, self._dot / size)) if size else math.nan

    @property
    def scale(self) -> float:
        """The multiple of the first that is nearest to the second (least squares); NaN if the first is all zero."""
        if not self._squares:
            return math.nan
        return _ldexp(self._dot / self._squares, self._power[1] - self._power[0])

    @property
    def relative_l2(self) -> float:
        """Norm of the difference relative to that of the first; Inf if only that is 0, NaN without pairs."""
        if not self._pairs:
            return math.nan
        if not self._squares:
            return math.inf if self._apart else 0.0
        return _ldexp(math.sqrt(self._apart / self._squares), max(self._power) - self._power[0])

    @property
    def sign_changes(self) -> float:
        """Share of opposite signs among the pairs that are nonzero in both; NaN if there are none."""
        return self._flipped / self._signed if self._signed else math.nan

    @property
    def beyond(self) -> npt.NDArray[np.intp]:
        """Places of the elements that differ by more than the tolerance, in order, shape (n,)."""
        return np.concatenate(self._beyond) if self._beyond else np.zeros(0, np.intp)

    @property
    def ulps(self) -> npt.NDArray[np.uint64] | None:
        """Distances of the finite pairs in units in the last place, None for whole numbers."""
        if self._kind is None:
            return None
        return np.concatenate(self._ulps) if self._ulps else np.zeros(0, np.uint64)


def _wide(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Any:
    """Return the dtype in which two arrays are compared: one that holds the values of both, if there is one."""
    both = (a.dtype, b.dtype)
    complex_ = any(dtype.kind == "c" for dtype in both)
    # Whole numbers of 64 bits have more digits than float64.
    long = any(dtype.kind in "iu" and dtype.itemsize == 8 for dtype in both)
    long = long or any(dtype.itemsize > (16 if dtype.kind == "c" else 8) for dtype in both)
    if complex_:
        return np.clongdouble if long else np.complex128
    return np.longdouble if long else np.float64


def _powers(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the powers of two by which two arrays are divided before squares are taken; 0 where they are in range.
    Only elements that are finite in both count, and zeros have no size of their own.
    """
    largest = [0.0, 0.0]
    for start in range(0, len(first), _CHUNK):
        pair = [one[start : start + _CHUNK] for one in (first, second)]
        both = np.isfinite(pair[0]) & np.isfinite(pair[1])
        for place, one in enumerate(pair):
            chunk = one[both].astype(_wide(one, one))
            if chunk.size:
                largest[place] = max(largest[place], float(np.abs(chunk.real).max()), float(np.abs(chunk.imag).max()))
    known = [None if not one else 0 if 2.0**-400 < one < 2.0**400 else math.frexp(one)[1] for one in largest]
    here, there = (found if found is not None else beside or 0 for found, beside in (known, known[::-1]))
    return here, there


def _scaled(values: npt.NDArray[Any], power: int) -> npt.NDArray[Any]:
    if not power:
        return values
    if values.dtype.kind == "c":
        return np.asarray(np.ldexp(values.real, -power) + 1j * np.ldexp(values.imag, -power))
    return np.asarray(np.ldexp(values, -power))


def _ldexp(value: float, power: int) -> float:
    try:
        return math.ldexp(value, power)
    except OverflowError:
        return math.inf


def _ulps(x: npt.NDArray[Any], y: npt.NDArray[Any], kind: NumberFormat) -> npt.NDArray[np.uint64]:
    """Return the distances of pairs; of complex numbers that of the part that is farther apart."""
    if x.dtype.kind != "c":
        return ulps(x, y, kind)
    return np.maximum(ulps(x.real, y.real, kind), ulps(x.imag, y.imag, kind))
