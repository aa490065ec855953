"""Two tensors side by side: two ``Given`` enter, a ``TensorComparison`` leaves, which says which difference matters.

The first tensor is the reference. Elements that are finite in both are compared by size; NaN and infinities by place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.nouns.html import number_text, shown
from neuraldbg.nouns.json import jsonable
from neuraldbg.nouns.measures import percent
from neuraldbg.toolbox.number_formats import FORMATS, format_of
from neuraldbg.toolbox.pair_tally import PairTally
from neuraldbg.toolbox.tensor_statistics import statistics
from neuraldbg.toolbox.ulp_distance import UlpDistances, summary
from neuraldbg.toolbox.value_table import html_table, named, text_table

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.toolbox.given_arrays import Given

TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
    "quint8": (1.3e-6, 1e-5), "qint8": (1.3e-6, 1e-5), "qint32": (1.3e-6, 1e-5),
}  # fmt: skip
"""Relative and absolute tolerance by dtype. Source: the table of ``torch.testing.assert_close``. Of float8 and
narrower, which it lacks, one unit in the last place. Whole numbers must be equal."""
SMALL = 10.0
"""Relative tolerances from which on the relative L2 difference is more than rounding, though each element is within the
absolute tolerance: gradients of 1e-7 are all within 1e-5 of each other."""
SAME_DIRECTION = 1.0 - 1e-6
"""Cosine from which on a tensor is called a multiple of the other."""
ONE = 1e-3
"""Difference from 1 up to which a multiple is not worth a word."""


@dataclass(frozen=True)
class Place:
    """One element of both tensors."""

    index: tuple[int, ...]
    """Index of the element."""
    first: Any
    """Its value in the first tensor."""
    second: Any
    """Its value in the second tensor."""

    def __str__(self) -> str:
        return f"{list(self.index)} ({number_text(self.first)} against {number_text(self.second)})"


@dataclass(frozen=True, repr=False)
class TensorComparison:
    """The differences of two tensors. Numbers are those of elements that are finite in both, NaN if there are none.

    >>> from neuraldbg.toolbox.given_arrays import given
    >>> from neuraldbg.toolbox.tensor_comparison import compare
    >>> compare(given([1.0, 2.0]), given([1.0, 2.5])).sentence
    '1 of 2 elements differs by more than rounding of float64: element 1 differs, the others agree. The largest \
difference is 0.5, at [1] (2 against 2.5). Relative L2 difference: 0.2236.'
    """

    verdict: str
    """``identical`` (bitwise), ``equal`` (the same values), ``rounding`` (equal up to rounding), ``small`` (within the
    absolute tolerance, though more than rounding of such small values), ``different`` or ``shapes``."""
    sentence: str
    """The verdict in words: which difference matters, and where it is."""
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    """Shapes of both."""
    dtypes: tuple[str, str]
    """Dtypes of both."""
    count: int = 0
    """Elements that were compared; 0 if the shapes differ."""
    total: int = 0
    """Elements of each tensor; more than ``count`` if only evenly spaced ones were kept."""
    max_abs: float = math.nan
    """Largest absolute difference."""
    mean_abs: float = math.nan
    """Mean absolute difference."""
    max_rel: float = math.nan
    """Largest difference relative to the larger of both magnitudes, 0 to 2."""
    mean_rel: float = math.nan
    """Mean difference relative to the larger of both magnitudes; 0 where both are zero."""
    largest: Place | None = None
    """The element with the largest absolute difference, None if there is no difference."""
    cosine: float = math.nan
    """Cosine of the angle between both, NaN if one is all zero."""
    relative_l2: float = math.nan
    """L2 norm of the difference, relative to that of the first tensor."""
    ulps: UlpDistances | None = None
    """Distances in units in the last place of the coarser dtype, None for whole numbers."""
    nan_mismatches: int = 0
    """Elements that are NaN in only one of both."""
    inf_mismatches: int = 0
    """Elements that are infinite in one of both, and not the same infinity in the other."""
    nonfinite: Place | None = None
    """The first of those elements, None if there are none."""
    sign_changes: float = math.nan
    """Share of elements with opposite signs among those that are nonzero in both."""
    beyond: int = 0
    """Elements that differ by more than the tolerance."""
    tolerance: tuple[str, float, float] = ("", 0.0, 0.0)
    """Dtype, relative and absolute tolerance by which rounding is judged: those of ``torch.testing.assert_close``."""
    rows: tuple[int, ...] = field(default=(), repr=False)
    """Indices along the first axis at which elements differ by more than the tolerance, in order."""

    @property
    def equal(self) -> bool:
        """True if both are equal, bitwise or up to rounding."""
        return self.verdict in ("identical", "equal", "rounding")

    def __repr__(self) -> str:
        return f"<TensorComparison: {self.verdict}: {self.sentence}>"

    def lines(self) -> list[tuple[str, str]]:
        """Return name and value of each line of the table, as text.

        >>> compare(given([1.0]), given([1.0])).lines()[0]
        ('tensors', 'float64 (1,) and float64 (1,)')
        """
        (first, second), (dtype, other) = self.shapes, self.dtypes
        found = [("tensors", f"{dtype} {first} and {other} {second}")]
        if not self.count:
            return found
        if self.count < self.total:
            found.append(("compared", f"{self.count:,} evenly spaced elements of {self.total:,}"))
        if not math.isnan(self.max_abs):
            found += [
                ("absolute", f"max {number_text(self.max_abs)}, mean {number_text(self.mean_abs)}"),
                ("relative", f"max {number_text(self.max_rel)}, mean {number_text(self.mean_rel)}"),
                ("cosine", number_text(self.cosine)),
                ("relative L2", number_text(self.relative_l2)),
            ]
        if self.largest is not None:
            found.append(("largest at", str(self.largest)))
        if self.ulps is not None:
            sizes = ", ".join(f"{n:,} of {name}" for name, n in self.ulps.sizes.items() if n)
            middle = number_text(self.ulps.median)
            found.append((f"ULPs of {self.ulps.dtype}", f"max {self.ulps.max:,}, median {middle}; {sizes}"))
        if self.sign_changes > 0:
            found.append(("sign changes", percent(self.sign_changes)))
        if self.nonfinite is not None:
            only = f"{self.nan_mismatches:,} NaN, {self.inf_mismatches:,} Inf in only one, first at {self.nonfinite}"
            found.append(("not finite", only))
        return found

    def __str__(self) -> str:
        """Return the verdict, and a small table below it."""
        return f"{self.sentence}\n{text_table(self.lines())}"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as strict JSON values.

        >>> compare(given([1.0]), given([1.0])).to_dict()["verdict"]
        'identical'
        """
        return {one.name: jsonable(getattr(self, one.name)) for one in fields(self)}

    @shown
    def _repr_html_(self) -> str:
        """Render the verdict and the table as HTML for a notebook."""
        return html_table(self.lines(), self.sentence)


def compare(first: Given, second: Given) -> TensorComparison:
    """Compare two tensors; the first is the reference. Tensors of different shapes are compared as far as that goes.

    >>> compare(given(np.float32([0.1])), given([0.1])).verdict
    'rounding'
    """
    if first.shape != second.shape:
        return TensorComparison(
            "shapes", _other_shape(first, second), (first.shape, second.shape), (first.dtype, second.dtype)
        )
    every = math.lcm(first.every, second.every)
    dtype, relative, absolute = tolerance(first.dtype, second.dtype)
    coarser = _coarser(first.dtype, second.dtype)
    tally = PairTally(first.at(every), second.at(every), (relative, absolute), FORMATS.get(coarser))
    row = math.prod(first.shape[1:])
    rows = tuple(int(one) for one in np.unique(tally.beyond * every // row)) if tally.beyond.size else ()
    found = TensorComparison(
        verdict=_verdict(tally, relative, same_dtype=first.dtype == second.dtype),
        sentence="",
        shapes=(first.shape, second.shape),
        dtypes=(first.dtype, second.dtype),
        count=tally.count,
        total=first.size,
        max_abs=tally.max_abs,
        mean_abs=tally.mean_abs,
        max_rel=tally.max_rel,
        mean_rel=tally.mean_rel,
        largest=_place(tally, tally.largest, first, every),
        cosine=tally.cosine,
        relative_l2=tally.relative_l2,
        ulps=summary(tally.ulps, coarser) if tally.ulps is not None else None,
        nan_mismatches=tally.nan_mismatches,
        inf_mismatches=tally.inf_mismatches,
        nonfinite=_place(tally, tally.nonfinite, first, every),
        sign_changes=tally.sign_changes,
        beyond=int(tally.beyond.size),
        tolerance=(dtype, relative, absolute),
        rows=rows,
    )
    return replace(found, sentence=_sentence(found, tally.scale))


def _place(tally: PairTally, at: int | None, tensor: Given, every: int) -> Place | None:
    if at is None:
        return None
    index = tuple(int(one) for one in np.unravel_index(at * every, tensor.shape))
    return Place(index, tally.first[at].item(), tally.second[at].item())


def tolerance(first: str, second: str) -> tuple[str, float, float]:
    """Return the dtype whose tolerance is the larger, and its relative and absolute tolerance.

    >>> tolerance("float32", "bfloat16")
    ('bfloat16', 0.016, 1e-05)
    """
    return max(((one, *_tolerance(one)) for one in (first, second)), key=lambda found: found[1:])


def _tolerance(dtype: str) -> tuple[float, float]:
    kind = format_of(dtype)
    if dtype in TOLERANCES or kind is None:
        return TOLERANCES.get(dtype, (0.0, 0.0))
    return 2.0**-kind.digits, 2.0 ** (kind.lowest - kind.digits)


def _coarser(first: str, second: str) -> str:
    """Return the name in FORMATS of the coarser of two dtypes, "" if neither is of floating point."""
    kinds = {id(kind): name for name, kind in FORMATS.items()}
    known = [kind for kind in (format_of(first), format_of(second)) if kind is not None]
    return kinds[id(min(known, key=lambda kind: (kind.digits, -kind.lowest)))] if known else ""


# ---------------------------------------------------------------- words


def _verdict(tally: PairTally, relative: float, *, same_dtype: bool) -> str:
    if tally.identical and same_dtype:
        return "identical"
    if tally.equal:
        return "equal"
    if tally.beyond.size:
        return "different"
    return "small" if tally.relative_l2 > SMALL * relative else "rounding"


def _sentence(found: TensorComparison, scale: float) -> str:
    """Return the verdict in words."""
    dtype, relative, absolute = found.tolerance
    part = f" Only {found.count:,} of {found.total:,} elements were compared." if found.count < found.total else ""
    if not found.total:
        return "Both are empty."
    if found.verdict == "identical":
        return f"Both are equal, bit by bit.{part}"
    if found.verdict == "equal":
        kinds = f"dtype: {found.dtypes[0]} and {found.dtypes[1]}"
        signs = "the sign of a zero or the bits of a NaN"
        return f"All values are equal; they differ in {kinds if len(set(found.dtypes)) == 2 else signs}.{part}"
    size = f"Relative L2 difference: {number_text(found.relative_l2)}."
    if found.verdict == "rounding":
        within = f"(relative {relative:g}, absolute {absolute:g}, as torch.testing.assert_close)"
        return f"Equal up to rounding of {dtype} {within}. {size}{part}"
    if found.verdict == "small":
        return (
            f"Each difference is within the absolute tolerance {absolute:g} of torch.testing.assert_close for {dtype}, "
            f"but the values are small, too, and the differences are more than rounding. {size}{part}"
        )
    return f"{_difference(found, dtype)}{_multiple(found, scale)} {size}{part}"


def _difference(found: TensorComparison, dtype: str) -> str:
    """Return how many elements differ, where they are, and the largest difference."""
    odd = found.nan_mismatches + found.inf_mismatches
    said = ""
    if odd:
        kinds = [f"{n:,} {name}" for name, n in (("NaN", found.nan_mismatches), ("Inf", found.inf_mismatches)) if n]
        said = f"{' and '.join(kinds)} in only one of them, first at {found.nonfinite}. "
    several = "s" if found.beyond == 1 else ""
    rounding = f"by more than rounding of {dtype}" if found.tolerance[1] else "in value"
    said += f"{found.beyond:,} of {found.count:,} elements differ{several} {rounding}: {_rows(found)}."
    if found.largest is not None:
        return f"{said} The largest difference is {number_text(found.max_abs)}, at {found.largest}."
    return f"{said} All that is finite in both is equal."


def _rows(found: TensorComparison) -> str:
    """Return which rows differ: "rows 3 and 17 differ, the others agree"."""
    shape = found.shapes[0]
    if not shape:
        return "the only one"
    one, name = len(found.rows) == 1, "row" if len(shape) > 1 else "element"
    if len(found.rows) == shape[0]:
        return f"all {shape[0]:,} {name}s differ" if shape[0] > 1 else f"the only {name}"
    which = f"{name}{'' if one else 's'} {named(found.rows)} differ{'s' if one else ''}"
    return f"{which}, the others agree{' as far as they were compared' if found.count < found.total else ''}"


def _multiple(found: TensorComparison, scale: float) -> str:
    same = found.count > 1 and found.cosine > SAME_DIRECTION and not found.nan_mismatches + found.inf_mismatches
    if same and math.isfinite(scale) and abs(scale - 1.0) > ONE:
        return f" Their direction is the same: the second is {number_text(scale)} times the first."
    return ""


# ---------------------------------------------------------------- different shapes


def _other_shape(first: Given, second: Given) -> str:
    """Return what can be said of two tensors whose shapes differ."""
    said = f"The shapes differ: {first.shape} and {second.shape}."
    if not first.whole or not second.whole:
        return f"{said} {_sizes(first, second)}"
    a, b = first.values, second.values
    if a.size == b.size and _agree(a.reshape(-1), b.reshape(-1), first, second):
        return f"{said} In order, all {a.size:,} values agree: one is the other reshaped."
    if a.ndim == b.ndim and a.T.shape == b.shape and _agree(a.T.reshape(-1), b.reshape(-1), first, second):
        return f"{said} The second is the first transposed."
    if a.ndim == b.ndim > 0 and a.shape[1:] == b.shape[1:]:
        n = min(len(a), len(b))
        if n and _agree(a[:n].reshape(-1), b[:n].reshape(-1), first, second):
            return f"{said} The first {n:,} along the first axis agree; the others are only in one of them."
    return f"{said} {_sizes(first, second)}"


def _agree(a: npt.NDArray[Any], b: npt.NDArray[Any], first: Given, second: Given) -> bool:
    if not a.size:
        return False
    return not PairTally(a, b, tolerance(first.dtype, second.dtype)[1:], None).beyond.size


def _sizes(first: Given, second: Given) -> str:
    """Return the scale of both, since their elements cannot be paired."""
    one, other = statistics(first), statistics(second)
    if not one.finite or not other.finite:
        return "Nothing finite is in one of them."
    return (
        f"Mean {number_text(one.mean)} and {number_text(other.mean)}, std {number_text(one.std)} and "
        f"{number_text(other.std)}, largest magnitude {number_text(one.max_norm)} and {number_text(other.max_norm)}."
    )
