"""The statistics of one tensor: a ``Given`` enters, a ``TensorStatistics`` leaves.

All of it comes from one sort of the finite elements. Sums are taken in float64 or wider; what could overflow there is
scaled by a power of two first. A complex number is represented by its magnitude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg.nouns.html import number_text, shown
from neuraldbg.nouns.json import jsonable
from neuraldbg.nouns.measures import percent, size
from neuraldbg.toolbox.number_formats import format_of
from neuraldbg.toolbox.value_table import html_table, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from neuraldbg.toolbox.given_arrays import Given

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Shares of the elements below the quantiles."""
BINS = 40
"""Bins of a histogram at most."""
TUKEY = 1.5
"""Interquartile ranges from the nearer quartile beyond which an element is an outlier. Source: Tukey 1977, Exploratory
Data Analysis, chapter 2: the inner fences of a box plot."""


@dataclass(frozen=True)
class Histogram:
    """The finite elements by size: bins of equal width from the smallest to the largest, the last one closed."""

    counts: tuple[int, ...]
    """Elements of each bin; a single bin without width if all elements are the same."""
    edges: tuple[float, ...]
    """Limits of the bins, one more than there are bins."""


@dataclass(frozen=True)
class Outliers:
    """The elements beyond Tukey's fences, which are 1.5 interquartile ranges from the quartiles (Tukey 1977)."""

    count: int
    """Number of elements beyond the fences."""
    low: float
    """Lower fence."""
    high: float
    """Upper fence."""
    farthest: float | None = None
    """The outlier farthest from the median, None if there is no outlier."""
    index: tuple[int, ...] | None = None
    """Its index in the tensor, the first one if it occurs again."""


@dataclass(frozen=True, repr=False)
class TensorStatistics:
    """The statistics of one tensor. Moments, norms and quantiles are those of the finite elements that were read, NaN
    if there are none; of complex numbers those of their magnitudes.

    >>> from neuraldbg.toolbox.given_arrays import given
    >>> from neuraldbg.toolbox.tensor_statistics import statistics
    >>> stats = statistics(given([1.0, 2.0, 3.0, float("nan")]))
    >>> stats.mean, stats.nan, stats.quantiles[0.5]
    (2.0, 1, 2.0)
    """

    shape: tuple[int, ...]
    """Shape of the tensor."""
    dtype: str
    """Name of the dtype as the framework has it."""
    bytes: int
    """Bytes of the tensor in its own dtype."""
    total: int
    """Elements of the tensor."""
    count: int
    """Elements that were read: fewer than ``total`` if it was sampled, and then NaN may have been missed."""
    complex: bool
    """True if the elements are complex, so that the numbers below are about their magnitudes."""
    mean: float
    """Mean."""
    std: float
    """Standard deviation of the population (divided by n)."""
    rms: float
    """Root of the mean square."""
    min: float
    """Smallest element; a Python int, which is exact, for whole numbers."""
    max: float
    """Largest element; a Python int for whole numbers."""
    l1: float
    """Sum of the magnitudes."""
    l2: float
    """Root of the sum of squares."""
    max_norm: float
    """Largest magnitude."""
    quantiles: dict[float, float]
    """Quantiles by share (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99), interpolated linearly, as by ``numpy.quantile``."""
    histogram: Histogram | None
    """Counts by size, None without finite elements."""
    outliers: Outliers | None
    """Elements beyond Tukey's fences, None without finite elements."""
    nan: int
    """Number of NaN; a complex number is one if a part is."""
    posinf: int
    """Number of +Inf, and of infinite complex numbers."""
    neginf: int
    """Number of -Inf."""
    zeros: int
    """Number of exact zeros."""
    denormals: int
    """Number of nonzero elements below the smallest normal number of the dtype: they have lost digits."""
    distinct: int
    """Number of different finite elements."""

    @property
    def finite(self) -> int:
        """Number of finite elements among those read."""
        return self.count - self.nan - self.posinf - self.neginf

    @property
    def sparsity(self) -> float:
        """Share of exact zeros among the elements read; NaN without any."""
        return self.zeros / self.count if self.count else math.nan

    @property
    def constant(self) -> bool:
        """True if several elements were read and all are one and the same finite number."""
        return self.distinct == 1 and self.finite == self.count > 1

    @property
    def sampled(self) -> bool:
        """True if only a part of the tensor was read."""
        return self.count < self.total

    def __repr__(self) -> str:
        odd = [f"{n:,} {name}" for name, n in (("NaN", self.nan), ("Inf", self.posinf + self.neginf)) if n]
        said = [f"mean {number_text(self.mean)}", f"std {number_text(self.std)}"] if self.finite else ["nothing finite"]
        if not self.count:
            said = ["no elements"]
        return f"<TensorStatistics: {self.dtype} {self.shape}, {', '.join([*said, *odd])}>"

    def rows(self) -> list[tuple[str, str]]:
        """Return name and value of each line of the table, as text.

        >>> statistics(given([0.0, 2.0])).rows()[0]
        ('tensor', 'float64 (2,), 16 B')
        """
        q, out = self.quantiles, self.outliers
        read = f", {self.count:,} of {self.total:,} elements read: NaN may have been missed" if self.sampled else ""
        found = [("tensor", f"{self.dtype} {self.shape}, {size(self.bytes)}{read}")]
        if self.complex:
            found.append(("elements", "complex: all that follows is about magnitudes"))
        if self.finite:
            found += [
                ("mean, std", f"{number_text(self.mean)}, {number_text(self.std)}"),
                ("min, max", f"{number_text(self.min)}, {number_text(self.max)}"),
                ("norms", f"L1 {number_text(self.l1)}, L2 {number_text(self.l2)}, max {number_text(self.max_norm)}"),
                ("quantiles", ", ".join(f"{100 * p:.0f}% {number_text(value)}" for p, value in q.items())),
                ("zeros", f"{self.zeros:,} ({percent(self.sparsity)})"),
                ("distinct", f"{self.distinct:,}{' (constant)' if self.constant else ''}"),
            ]
        if out is not None and out.count:
            found.append(
                ("outliers", f"{out.count:,}, farthest {number_text(out.farthest)} at {list(out.index or ())}")
            )
        if self.denormals:
            found.append(("denormals", f"{self.denormals:,}"))
        if self.finite < self.count:
            found.append(("not finite", f"{self.nan:,} NaN, {self.posinf:,} +Inf, {self.neginf:,} -Inf"))
        if not self.count:
            found.append(("elements", "none"))
        return found

    def __str__(self) -> str:
        """Return a small table: a name and its value a line."""
        return text_table(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as strict JSON values.

        >>> statistics(given([0.0, 2.0])).to_dict()["sparsity"]
        0.5
        """
        plain = {one.name: jsonable(getattr(self, one.name)) for one in fields(self)}
        return {**plain, "sparsity": jsonable(self.sparsity), "constant": self.constant}

    @shown
    def _repr_html_(self) -> str:
        """Render the table as HTML for a notebook."""
        return html_table(self.rows())


def statistics(tensor: Given) -> TensorStatistics:
    """Compute the statistics of a tensor.

    >>> statistics(given([3.0, 4.0])).l2
    5.0
    """
    flat = tensor.values.reshape(-1)
    is_complex = flat.dtype.kind == "c"
    nan, posinf, neginf = _nonfinite(flat)
    finite, scale = _finite(flat, clean=not (nan or posinf or neginf))
    ordered = np.sort(finite)
    n = len(ordered)
    moments = _moments(ordered, scale) if n else _Moments(*(math.nan,) * 5)
    low, high = (_number(ordered[0], scale), _number(ordered[-1], scale)) if n else (math.nan, math.nan)
    zeros = _below(ordered, 0, side="right") - _below(ordered, 0) if n else 0
    quantiles = {share: _quantile(ordered, share) if n else math.nan for share in QUANTILES}
    return TensorStatistics(
        shape=tensor.shape,
        dtype=tensor.dtype,
        bytes=tensor.bytes,
        total=tensor.size,
        count=len(flat),
        complex=is_complex,
        mean=moments.mean,
        std=moments.std,
        rms=moments.rms,
        min=low,
        max=high,
        l1=moments.l1,
        l2=moments.l2,
        max_norm=max(abs(low), abs(high)),
        quantiles={share: _times_two(value, scale) for share, value in quantiles.items()},
        histogram=_histogram(ordered, scale) if n else None,
        outliers=_outliers(ordered, quantiles, scale, tensor) if n else None,
        nan=nan,
        posinf=posinf,
        neginf=neginf,
        zeros=zeros,
        denormals=_denormals(ordered, tensor.dtype, scale, zeros),
        distinct=1 + int(np.count_nonzero(ordered[1:] != ordered[:-1])) if n else 0,
    )


# ---------------------------------------------------------------- the finite elements


def _nonfinite(flat: npt.NDArray[Any]) -> tuple[int, int, int]:
    """Return the numbers of NaN, +Inf and -Inf; an infinite complex number counts as +Inf."""
    if flat.dtype.kind not in "fc" or np.isfinite(flat).all():
        return 0, 0, 0
    nan, infinite = np.isnan(flat), np.isinf(flat)
    if flat.dtype.kind == "c":
        return int(nan.sum()), int((infinite & ~nan).sum()), 0
    return int(nan.sum()), int((infinite & (flat > 0)).sum()), int((infinite & (flat < 0)).sum())


def _finite(flat: npt.NDArray[Any], *, clean: bool) -> tuple[npt.NDArray[Any], int]:
    """Return the finite elements as real numbers that sort fast, and the power of two by which they are to be
    multiplied: that of magnitudes which float64 may not hold.
    """
    if not clean:
        flat = flat[np.isfinite(flat)]
    if not len(flat):
        return flat.real, 0
    scale = 0
    if flat.dtype.kind in "fc" and flat.real.dtype.itemsize >= 8:
        power = int(np.frexp(max(np.abs(flat.real).max(), np.abs(flat.imag).max()))[1])
        scale = power if power > _HIGHEST or (power == _HIGHEST and flat.dtype.kind == "c") else 0
    return _real(flat, scale), scale


_HIGHEST = 1024
"""Power of two that no float64 reaches; the magnitude of a complex number with parts below it may."""


def _real(flat: npt.NDArray[Any], scale: int) -> npt.NDArray[Any]:
    """Return the numbers that represent the elements, divided by ``2**scale``."""
    found: npt.NDArray[Any] = flat
    if flat.dtype.kind == "c":
        wide = flat.astype(np.complex128) if flat.dtype.itemsize < 16 else flat
        found = np.hypot(np.ldexp(wide.real, -scale), np.ldexp(wide.imag, -scale)) if scale else np.abs(wide)
    elif scale:
        found = np.ldexp(flat, -scale)
    elif flat.dtype in (np.float16, np.bool_):  # which sort slowly, and cannot be subtracted
        found = flat.astype(np.float32 if flat.dtype == np.float16 else np.uint8)
    return found


def _number(value: Any, scale: int = 0) -> float:
    """Return a numpy number as Python's, exactly for whole ones."""
    found = value.item()
    if isinstance(found, int):
        return found
    return _times_two(float(found), scale)


def _times_two(value: float, power: int) -> float:
    """Return ``value * 2**power``, Inf where that is no float64."""
    try:
        return math.ldexp(value, power)
    except OverflowError:
        return math.copysign(math.inf, value)


class _Moments(NamedTuple):
    mean: float
    std: float
    rms: float
    l1: float
    l2: float


_CHUNK = 65_536
"""Elements that are converted at once: sums of a large tensor need no copy of it, and stay in the cache."""


def _moments(ordered: npt.NDArray[Any], scale: int) -> _Moments:
    """Return moments and norms of at least one finite element. The mean is corrected by the mean of what is left
    (Chan, Golub and LeVeque 1983, Algorithms for computing the sample variance, the corrected two-pass algorithm).
    """
    n = len(ordered)
    largest = max(abs(float(ordered[0])), abs(float(ordered[-1])))
    # Squares of float64 overflow from 1e154 on, and those below 1e-154 vanish; of narrower types neither can happen.
    power = 0
    if ordered.dtype.kind == "f" and ordered.dtype.itemsize >= 8 and largest and not 2.0**-400 < largest < 2.0**400:
        power = int(np.frexp(np.abs(ordered[[0, -1]]))[1].max())
    beyond = ordered.dtype.itemsize > 8 if ordered.dtype.kind == "f" else largest > 2.0**53
    wide = np.longdouble if beyond else np.float64
    sums = [(c.sum(), np.abs(c).sum(), np.dot(c, c)) for c in _chunks(ordered, wide, power)]
    total, l1, squares = (np.sum(np.array(column, dtype=wide)) for column in zip(*sums, strict=True))
    mean = total / n
    rest = [(centred.sum(), np.dot(centred, centred)) for centred in (c - mean for c in _chunks(ordered, wide, power))]
    left, spread = (np.sum(np.array(column, dtype=wide)) for column in zip(*rest, strict=True))
    variance = max((spread - left * left / n) / n, wide(0))
    power += scale
    same = ordered[0] == ordered[-1]
    return _Moments(
        float(_number(ordered[0], scale)) if same else _unscaled(mean + left / n, power),
        0.0 if same else _unscaled(np.sqrt(variance), power),
        _unscaled(np.sqrt(squares / n), power),
        _unscaled(l1, power),
        _unscaled(np.sqrt(squares), power),
    )


def _unscaled(value: Any, power: int) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(value, power))


def _chunks(ordered: npt.NDArray[Any], wide: type, power: int) -> Iterator[npt.NDArray[Any]]:
    for first in range(0, len(ordered), _CHUNK):
        chunk: npt.NDArray[Any] = ordered[first : first + _CHUNK].astype(wide)
        with np.errstate(under="ignore"):
            yield np.ldexp(chunk, -power) if power else chunk


# ---------------------------------------------------------------- order


def _below(ordered: npt.NDArray[Any], limit: float, side: Any = "left") -> int:
    """Return how many ordered elements are below a limit, for "right" those at it, too."""
    kind = ordered.dtype.kind
    if kind in "iu":  # compared as whole numbers: int64 has more digits than float64
        edge = math.ceil(limit) if side == "left" else math.floor(limit)
        info = np.iinfo(ordered.dtype)
        if not info.min <= edge <= info.max:
            return 0 if edge < info.min else len(ordered)
        return int(np.searchsorted(ordered, ordered.dtype.type(edge), side=side))
    return int(np.searchsorted(ordered, _in_dtype(np.array([limit]), ordered.dtype, up=side == "left"), side=side)[0])


def _in_dtype(limits: npt.NDArray[np.float64], dtype: np.dtype[Any], *, up: bool) -> npt.NDArray[Any]:
    """Return the nearest numbers of the elements' own dtype that are not below the limits, or not above them: numpy
    would convert all elements to the dtype of the limits.
    """
    with np.errstate(over="ignore"):
        there = limits.astype(dtype)
        wide = there.astype(np.longdouble)
        beside = np.nextafter(there, dtype.type(np.inf if up else -np.inf))
    return np.where(wide < limits if up else wide > limits, beside, there)


def _quantile(ordered: npt.NDArray[Any], share: float) -> float:
    """Return a quantile by linear interpolation: type 7 of Hyndman and Fan 1996, numpy's default."""
    place = share * (len(ordered) - 1)
    first = math.floor(place)
    low, high = float(ordered[first]), float(ordered[min(first + 1, len(ordered) - 1)])
    return _between(low, high, place - first)


def _between(low: float, high: float, share: float) -> float:
    """Return the number at a share of the way from one to another, whose difference may overflow."""
    gap = high - low
    if math.isinf(gap):
        return low * (1.0 - share) + high * share
    return low + gap * share if share < 0.5 else high - gap * (1.0 - share)


_SHARES = np.arange(1, BINS) / BINS


def _histogram(ordered: npt.NDArray[Any], scale: int) -> Histogram:
    low, high = float(ordered[0]), float(ordered[-1])
    if low == high:
        return Histogram((len(ordered),), (_times_two(low, scale), _times_two(high, scale)))
    inner = low * (1.0 - _SHARES) + high * _SHARES  # of which no part overflows; rounding may break the order
    inner = np.maximum.accumulate(np.clip(inner, low, high))
    if ordered.dtype.kind in "iu":
        most = int(ordered[-1])
        limits = np.array([min(math.ceil(edge), most) for edge in inner.tolist()], dtype=ordered.dtype)
    else:
        limits = _in_dtype(inner, ordered.dtype, up=True)
    places = np.searchsorted(ordered, limits).tolist()
    counts = [after - before for before, after in zip([0, *places], [*places, len(ordered)], strict=True)]
    edges = [low, *inner.tolist(), high]
    return Histogram(tuple(counts), tuple(_times_two(edge, scale) for edge in edges) if scale else tuple(edges))


def _outliers(ordered: npt.NDArray[Any], quantiles: dict[float, float], scale: int, tensor: Given) -> Outliers:
    if ordered.dtype.kind in "iu":  # the quartiles are float64, and round whole numbers beyond 2**53
        ordered = ordered.astype(np.float64)
    first, median, third = (quantiles[share] for share in (0.25, 0.5, 0.75))
    reach = TUKEY * (third / 4 - first / 4)  # quarters, which do not overflow
    low, high = _times_two(first / 4 - reach, 2), _times_two(third / 4 + reach, 2)
    below, above = _below(ordered, low), len(ordered) - _below(ordered, high, side="right")
    fences = _times_two(low, scale), _times_two(high, scale)
    if not below + above:
        return Outliers(0, *fences)
    least, most = float(ordered[0]), float(ordered[-1])
    value = ordered[0] if below and (not above or median / 2 - least / 2 > most / 2 - median / 2) else ordered[-1]
    with np.errstate(all="ignore"):  # NaN and Inf are among them
        place = int(np.argmax(_real(tensor.values.reshape(-1), scale) == value))
    return Outliers(below + above, *fences, _number(value, scale), tensor.index(place))


def _denormals(ordered: npt.NDArray[Any], dtype: str, scale: int, zeros: int) -> int:
    found = format_of(dtype)
    if not len(ordered) or found is None:
        return 0
    smallest = math.ldexp(1.0, found.lowest - scale)
    return _below(ordered, smallest) - _below(ordered, -smallest, side="right") - zeros
