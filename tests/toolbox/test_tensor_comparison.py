"""Comparisons of two tensors against numpy, torch and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import assume, settings
from hypothesis import given as examples
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from neuraldbg.toolbox.given_arrays import given
from neuraldbg.toolbox.number_formats import FORMATS
from neuraldbg.toolbox.tensor_comparison import TOLERANCES, compare, tolerance
from neuraldbg.toolbox.ulp_distance import ulps

RANDOM = np.random.default_rng(3)
DTYPES = ["float64", "float32", "float16", "int8", "uint8", "int64", "bool", "complex64", "complex128"]


def pairs(name):
    shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    return shapes.flatmap(lambda shape: st.tuples(arrays.arrays(name, shape), arrays.arrays(name, shape)))


def expected(a, b):
    """Return the numbers in long doubles of the elements that are finite in both."""
    wide = np.clongdouble if a.dtype.kind == "c" else np.longdouble
    a, b = a.astype(wide).ravel(), b.astype(wide).ravel()
    both = np.isfinite(a) & np.isfinite(b)
    return a, b, a[both], b[both]


@settings(max_examples=60)
@examples(st.sampled_from(DTYPES).flatmap(pairs))
def test_differences_are_those_of_numpy(both):
    found = compare(*map(given, both))
    with np.errstate(all="ignore"):
        a, b, x, y = expected(*both)
        gap = np.abs(y - x)
        size = np.maximum(np.abs(x), np.abs(y))
        relative = np.where(gap > 0, gap / np.where(size > 0, size, 1), 0)
    assert found.nan_mismatches == (np.isnan(a) != np.isnan(b)).sum()
    odd = (np.isinf(a) | np.isinf(b)) & ~np.isnan(a) & ~np.isnan(b) & (a != b)
    assert found.inf_mismatches == odd.sum()
    assert found.count == found.total == a.size
    if not x.size:
        assert math.isnan(found.max_abs)
        assert math.isnan(found.relative_l2)
        assert found.largest is None
        return
    with np.errstate(all="ignore"):
        wanted = float(gap.max()), float(gap.mean()), float(relative.max()), float(relative.mean())
    # The magnitude of a complex number at the end of float64 is beyond it by rounding.
    assume(a.dtype.kind != "c" or wanted[0] < 0.99 * np.finfo(np.float64).max)
    tiny = 1e-310  # numbers that are denormal themselves
    assert (found.max_abs, found.mean_abs) == pytest.approx(wanted[:2], rel=1e-12, abs=tiny)
    assert (found.max_rel, found.mean_rel) == pytest.approx(wanted[2:], rel=1e-6, abs=1e-12)
    if found.largest is not None:
        assert found.largest.first == both[0][found.largest.index].item()
        assert found.largest.second == both[1][found.largest.index].item()
    assert (found.largest is None) == (not gap.any())
    norm = np.sqrt((np.abs(x) ** 2).sum())
    if norm > 0:
        apart = float(np.sqrt((gap**2).sum()) / norm)
        assert found.relative_l2 == pytest.approx(apart, rel=1e-6, abs=1e-12)
        other = np.sqrt((np.abs(y) ** 2).sum())
        if other > 0:
            cosine = float((np.vdot(x, y).real) / norm / other)
            assert found.cosine == pytest.approx(cosine, abs=1e-9)
    if both[0].dtype.kind != "c":
        nonzero = (x != 0) & (y != 0)
        if nonzero.any():
            assert found.sign_changes == pytest.approx(float((np.sign(x) * np.sign(y) < 0)[nonzero].mean()))
        else:
            assert math.isnan(found.sign_changes)


@settings(max_examples=60)
@examples(st.sampled_from(["float64", "float32", "float16", "complex64"]).flatmap(pairs))
def test_equal_up_to_rounding_is_what_torch_says(both):
    a, b = both
    found = compare(given(a), given(b))
    try:
        torch.testing.assert_close(torch.from_numpy(b), torch.from_numpy(a), equal_nan=True)
        close = True
    except AssertionError:
        close = False
    assert (found.verdict != "different") == close
    assert found.beyond == 0 or not close
    if found.verdict == "identical":
        assert a.tobytes() == b.tobytes()
    if a.dtype.kind == "f":
        assert (found.verdict in ("identical", "equal")) == np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("name", [*TOLERANCES, "int64"])
def test_tolerances_are_those_of_torch(name):
    wanted = torch.testing._comparison.default_tolerances(getattr(torch, name))
    assert tolerance(name, name)[1:] == wanted
    mixed = torch.testing._comparison.default_tolerances(getattr(torch, name), torch.float16)
    assert tolerance(name, "float16")[1:] == mixed


# ---------------------------------------------------------------- units in the last place


def all_numbers(name):
    """Return all finite numbers of a narrow dtype in order, with zero once."""
    dtype = getattr(ml_dtypes, name, None) or np.dtype(name)
    width = np.dtype(dtype).itemsize * 8
    with np.errstate(invalid="ignore"):
        values = np.arange(2**width).astype(f"uint{width}").view(dtype).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e3m4", "float8_e8m0fnu", "float16", "bfloat16"]
)
def test_ulps_are_the_numbers_in_between(name):
    numbers = all_numbers(name)
    first, second = RANDOM.integers(0, len(numbers), (2, 5_000))
    found = ulps(numbers[first], numbers[second], FORMATS[name])
    np.testing.assert_array_equal(found, np.abs(first - second).astype(np.uint64))


@pytest.mark.parametrize(("dtype", "whole"), [(np.float32, np.int32), (np.float64, np.int64)])
def test_ulps_of_wide_floats_are_differences_of_their_bits(dtype, whole):
    bits = RANDOM.integers(np.iinfo(whole).min, np.iinfo(whole).max, 20_000, dtype=whole)
    bits[:4] = 0, 1, np.array(-0.0, dtype).view(whole), np.array(1, dtype).view(whole)
    values = bits.view(dtype)
    values = values[np.isfinite(values)]
    # Python's integers hold the difference of any two.
    order = [int(v) if v >= 0 else int(np.iinfo(whole).min) - int(v) for v in values.view(whole)]
    half = len(values) // 2
    found = ulps(values[:half], values[half : 2 * half], FORMATS[np.dtype(dtype).name])
    assert found.tolist() == [abs(a - b) for a, b in zip(order[:half], order[half:], strict=False)]
    steps = np.float64([1.0, 1e-310, 1e300, -3.7])
    assert ulps(steps, np.nextafter(steps, np.inf), FORMATS["float64"]).tolist() == [1] * 4


def test_ulps_are_those_of_the_coarser_dtype():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    found = compare(given(x), given(x.bfloat16()))
    assert (found.ulps.dtype, found.ulps.max, found.verdict) == ("bfloat16", 0, "rounding")
    assert found.sentence.startswith("Equal up to rounding of bfloat16 (relative 0.016, absolute 1e-05, as torch.")
    near = torch.nextafter(x, torch.full_like(x, math.inf))
    found = compare(given(x), given(near))
    assert found.ulps.sizes == {"0": 0, "1": 1000, "2 to 4": 0, "5 to 16": 0, "17 to 256": 0, "more": 0}
    assert (found.ulps.median, found.ulps.dtype) == (1.0, "float32")
    assert compare(given([1, 2]), given([1, 3])).ulps is None
    assert compare(given(x.to(torch.float8_e5m2)), given(x)).tolerance[:2] == ("float8_e5m2", 0.25)
    assert compare(given(x.to(torch.float8_e5m2)), given(x)).verdict == "rounding"


# ---------------------------------------------------------------- words


def rows_that_differ():
    a = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32) + 3
    b = a.copy()
    b[3, 5] += 0.5
    b[17] *= 1.25
    return a, b


def test_the_sentence_says_which_rows_differ():
    a, b = rows_that_differ()
    found = compare(given(a), given(b))
    assert found.sentence.startswith(
        "33 of 2,048 elements differ by more than rounding of float32: rows 3 and 17 differ, the others agree. "
        "The largest difference is 0.6404, at [17, 31] (2.562 against 3.202)."
    )
    assert found.rows == (3, 17)
    assert found.largest.index == (17, 31)
    b[20:30] = 0
    assert "rows 3, 17, 20, 21 and 8 more differ" in compare(given(a), given(b)).sentence
    assert "all 64 rows differ" in compare(given(a), given(a + 1)).sentence
    assert "elements 0 and 2 differ" in compare(given([1.0, 2.0, 3.0]), given([0.0, 2.0, 0.0])).sentence
    assert "Their direction is the same: the second is 2 times the first" in compare(given(a), given(2 * a)).sentence


@pytest.mark.parametrize(
    ("first", "second", "verdict", "said"),
    [
        ([1.0, 2.0], [1.0, 2.0], "identical", "Both are equal, bit by bit."),
        ([0.0], [-0.0], "equal", "differ in the sign of a zero or the bits of a NaN"),
        (np.float32([1, 2]), [1.0, 2.0], "equal", "they differ in dtype: float32 and float64"),
        ([], [], "identical", "Both are empty."),
        (1, 2, "different", "1 of 1 elements differs in value: the only one."),
        ([1.0, math.nan], [1.0, math.nan], "identical", "bit by bit"),
        ([1, math.nan, 2], [1, 5, math.inf], "different", "1 NaN and 1 Inf in only one of them, first at [1] (NaN"),
        ([math.inf], [-math.inf], "different", "1 Inf in only one of them"),
        (np.float32([1e-7, 2e-7]), np.float32([2e-7, 1e-7]), "small", "but the values are small, too"),
        (np.zeros((2, 3)), np.zeros((3, 2)), "shapes", "all 6 values agree: one is the other reshaped"),
        (np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3).T, "shapes", "The second is the first transposed."),
        (np.arange(6).reshape(3, 2), np.arange(4).reshape(2, 2), "shapes", "The first 2 along the first axis agree"),
        (np.ones(3), np.full((2, 2), 4.0), "shapes", "Mean 1 and 4, std 0 and 0, largest magnitude 1 and 4."),
        (np.full(2, np.nan), np.ones(3), "shapes", "(2,) and (3,). Nothing finite is in one of them."),
    ],
)  # fmt: skip
def test_verdicts(first, second, verdict, said):
    found = compare(given(first), given(second))
    assert found.verdict == verdict
    assert said in found.sentence
    assert found.equal == (verdict in ("identical", "equal", "rounding"))
    assert found._repr_html_()
    assert str(found).startswith(found.sentence)
    assert found.to_dict()["verdict"] == verdict


def test_limits_do_not_overflow():
    found = compare(given([1e308, -1e308]), given([-1e308, 1e308]))
    assert (found.max_abs, found.max_rel, found.cosine, found.relative_l2) == (math.inf, 2.0, -1.0, 2.0)
    assert found.sign_changes == 1
    tiny = compare(given([1e-300, 2e-300]), given([1e-300, 1e-300]))
    assert tiny.relative_l2 == pytest.approx(1 / math.sqrt(5))
    assert tiny.cosine == pytest.approx(3 / math.sqrt(10))
    assert compare(given([3e-185]), given([0.0])).relative_l2 == 1
    assert compare(given([0.0]), given([3e-185])).relative_l2 == math.inf
    assert compare(given([0.0] * 3), given([6e307] * 3)).mean_abs == pytest.approx(6e307)
    assert compare(given([1e125, 1e-185]), given([1e125, 0.0])).mean_abs == pytest.approx(5e-186)
    mixed = compare(given([1e-300, 2e-300]), given([1e300, 2e300]))
    assert mixed.cosine == pytest.approx(1.0)
    whole = compare(given(np.array([2**63 - 1, 5])), given(np.array([-(2**63), 5])))
    assert whole.max_abs == float(2**64 - 1)
    assert whole.beyond == 1
    assert compare(given([2**62]), given([2**62 + 1])).beyond == 1  # float64 has them as the same


@settings(max_examples=60)
@examples(pairs("complex128"))
def test_complex_elements_are_compared_as_complex_numbers(both):
    finite = [np.where(np.isfinite(one), one, 0) for one in both]
    assume(finite[0].size and max(np.abs(one.view(np.float64)).max() for one in map(np.atleast_1d, finite)) < 1e100)
    found = compare(*map(given, finite))
    assert found.max_abs == pytest.approx(np.abs(finite[1] - finite[0]).max(), rel=1e-12)


def test_samples_are_compared_where_both_are_known():
    a = np.arange(10_001.0)
    b = a.copy()
    b[::7] += 1
    whole, thin = given(a), given(b).spaced(100)
    for found in (compare(whole, thin), compare(thin, whole)):
        places = np.arange(0, a.size, thin.every)
        assert found.count == len(places) < found.total == a.size
        assert found.beyond == (places % 7 == 0).sum()
        assert f"Only {len(places)} of 10,001 elements were compared." in found.sentence
    assert compare(thin, given(b).spaced(100)).verdict == "identical"
    assert "the others agree as far as they were compared" in compare(whole, thin).sentence


def test_chunks_add_up(monkeypatch):
    a, b = RANDOM.standard_normal((2, 1000))
    a[[3, 700]] = math.nan, math.inf
    whole = compare(given(a), given(b))
    monkeypatch.setattr("neuraldbg.toolbox.pair_tally._CHUNK", 64)
    parts = compare(given(a), given(b))
    for name in ("max_abs", "max_rel", "largest", "rows", "ulps", "beyond", "nonfinite", "sign_changes"):
        assert repr(getattr(whole, name)) == repr(getattr(parts, name)), name  # NaN is not equal to itself
    for name in ("mean_abs", "mean_rel", "cosine", "relative_l2"):
        assert getattr(whole, name) == pytest.approx(getattr(parts, name), rel=1e-12), name


def test_exact_fractions_agree():
    a, b = RANDOM.standard_normal((2, 50))
    found = compare(given(a), given(b))
    gaps = [abs(Fraction(y) - Fraction(x)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert found.mean_abs == pytest.approx(float(sum(gaps) / 50), rel=1e-14)
    squares = sum(gap**2 for gap in gaps) / sum(Fraction(x) ** 2 for x in a.tolist())
    assert found.relative_l2 == pytest.approx(math.sqrt(squares), rel=1e-14)
