"""The statistics of one tensor against numpy, scipy and fractions, and its row against that of the live tool."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from neuraldbg.capture.statistics import operation
from neuraldbg.nouns import STATS, column
from neuraldbg.nouns.accumulators import BLANK, derived
from neuraldbg.toolbox.given_arrays import given
from neuraldbg.toolbox.number_formats import FORMATS, format_of
from neuraldbg.toolbox.statistics_row import row_of, unit_activity
from neuraldbg.toolbox.tensor_statistics import BINS, QUANTILES, statistics

RANDOM = np.random.default_rng(5)


def exact(values):
    """Return mean and population variance as fractions."""
    numbers = [Fraction(one) for one in np.asarray(values).tolist()]
    mean = sum(numbers) / len(numbers)
    return mean, sum((one - mean) ** 2 for one in numbers) / len(numbers)


def near(found, wanted, tiny=0.0):
    return found == pytest.approx(float(wanted), rel=1e-12, abs=tiny)


DTYPES = ["float64", "float32", "float16", "int8", "uint8", "int32", "int64", "bool"]
ANY = st.sampled_from(DTYPES).flatmap(
    lambda name: arrays.arrays(name, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
)


@settings(max_examples=60)
@examples(ANY)
def test_any_array_has_the_numbers_of_numpy(values):
    found = statistics(given(values))
    wide = values.astype(np.longdouble).ravel()
    finite = wide[np.isfinite(wide)]
    assert (found.count, found.total, found.shape, found.bytes) == (wide.size, wide.size, values.shape, values.nbytes)
    assert found.nan == np.isnan(wide).sum()
    assert (found.posinf, found.neginf) == ((wide == np.inf).sum(), (wide == -np.inf).sum())
    assert found.zeros == (wide == 0).sum()
    assert found.distinct == len(np.unique(finite))
    assert found.constant == (wide.size > 1 and len(np.unique(wide)) == 1 and bool(np.isfinite(wide).all()))
    if not finite.size:
        assert math.isnan(found.mean)
        assert math.isnan(found.l2)
        assert math.isnan(found.quantiles[0.5])
        assert found.histogram is None
        assert found.outliers is None
        return
    top = float(np.abs(finite).max())
    assert (found.min, found.max, found.max_norm) == (finite.min(), finite.max(), np.abs(finite).max())
    finite = values.ravel()[np.isfinite(values.ravel())]
    mean, variance = exact(finite)
    # The oracle is exact; of results that no float64 holds only Inf is right.
    assert near(found.mean, mean, top * 1e-15)
    assert near(found.std, root(variance), top * 1e-15)
    assert near(found.l1, inf_if_large(sum(abs(Fraction(one)) for one in finite.tolist())))
    squares = sum(Fraction(one) ** 2 for one in finite.tolist())
    assert near(found.l2, root(squares), 5e-324)
    assert near(found.rms, root(squares / finite.size), 5e-324)


def inf_if_large(value):
    try:
        return float(value)
    except OverflowError:
        return math.inf


def root(value):
    """Return the square root of a fraction of any size."""
    if not value:
        return 0.0
    power = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    half = math.sqrt(value / Fraction(4) ** power)
    return inf_if_large(Fraction(half) * Fraction(2) ** power)


@settings(max_examples=60)
@examples(ANY)
def test_quantiles_and_outliers_are_those_of_numpy_and_scipy(values):
    found = statistics(given(values))
    wide = values.astype(np.float64).ravel()
    finite = wide[np.isfinite(wide)]
    if not finite.size or np.abs(finite).max() > 1e300:
        return
    with np.errstate(all="ignore"):
        wanted = np.quantile(finite, QUANTILES)
    top = np.abs(finite).max()
    assert list(found.quantiles.values()) == pytest.approx(wanted.tolist(), rel=1e-12, abs=top * 1e-15)
    assert found.quantiles[0.75] - found.quantiles[0.25] == pytest.approx(scipy.stats.iqr(finite), abs=top * 1e-14)
    out = found.outliers
    assert out.count == ((finite < out.low) | (finite > out.high)).sum()
    assert out.low == pytest.approx(2.5 * found.quantiles[0.25] - 1.5 * found.quantiles[0.75], abs=top * 1e-14)
    if out.count:
        far = np.abs(finite - found.quantiles[0.5])
        assert abs(out.farthest - found.quantiles[0.5]) == pytest.approx(far.max())
        assert float(values[out.index]) == out.farthest


@settings(max_examples=60)
@examples(ANY)
def test_the_histogram_is_that_of_numpy_with_the_same_edges(values):
    found = statistics(given(values)).histogram
    wide = values.astype(np.longdouble).ravel()
    finite = wide[np.isfinite(wide)]
    if found is None:
        assert not finite.size
        return
    assert sum(found.counts) == finite.size
    assert (found.edges[0], found.edges[-1]) == (float(finite.min()), float(finite.max()))
    if len(found.counts) > 1:
        assert len(found.counts) == BINS
        edges = np.array(found.edges)
        for low, high, count in list(zip(edges, edges[1:], found.counts, strict=False))[1:-1]:
            assert count == ((finite >= low) & (finite < high)).sum()


def test_numbers_at_the_limits_do_not_overflow():
    huge = statistics(given(np.array([1e300, -1e300, 3e300])))
    assert near(huge.mean, 1e300)
    assert near(huge.rms, math.sqrt(11 / 3) * 1e300)
    assert near(huge.l2, math.sqrt(11) * 1e300)
    assert near(huge.std, np.std([1.0, -1.0, 3.0]) * 1e300)
    small = statistics(given(np.array([1e-300, 3e-300])))
    assert near(small.std, 1e-300)
    assert near(small.rms, math.sqrt(5) * 1e-300)
    whole = statistics(given(np.array([2**63 - 1, -(2**63)])))
    assert (whole.min, whole.max, whole.max_norm) == (-(2**63), 2**63 - 1, 2**63)
    assert near(whole.std, 2**63 - 0.5)
    assert whole.mean == -0.5
    assert statistics(given(np.full(3, 2**53 + 1))).outliers.count == 0
    unsigned = statistics(given(np.array([2**64 - 1, 0], np.uint64)))
    assert unsigned.max == 2**64 - 1
    assert unsigned.zeros == 1
    assert near(unsigned.mean, (2**64 - 1) / 2)
    apart = statistics(given(np.array([1.7e308, -1.7e308, 0.0])))
    assert near(apart.std, np.std([1.7, -1.7, 0]) * 1e308)
    assert apart.quantiles[0.5] == 0
    beyond = statistics(given(np.array([1.7e308 + 1.7e308j, 3 + 4j, 0])))
    assert beyond.max == math.inf
    assert beyond.min == 0
    assert beyond.quantiles[0.5] == 5
    assert beyond.posinf == 0


def test_a_large_offset_costs_no_digits():
    values = 1e9 + RANDOM.standard_normal(20_003)
    mean, variance = exact(values)
    found = statistics(given(values))
    assert found.mean == pytest.approx(float(mean), rel=1e-15)
    assert found.std == pytest.approx(math.sqrt(variance), rel=1e-12)


def test_complex_numbers_are_represented_by_their_magnitudes():
    values = (RANDOM.standard_normal(500) + 1j * RANDOM.standard_normal(500)).astype(np.complex64)
    values[:3] = complex(math.nan, 1), complex(math.inf, 0), complex(0, -math.inf)
    found = statistics(given(values))
    size = np.abs(values[3:].astype(np.complex128))
    assert found.complex
    assert (found.nan, found.posinf, found.neginf) == (1, 2, 0)
    assert found.mean == pytest.approx(size.mean())
    assert found.std == pytest.approx(size.std())
    assert found.l2 == pytest.approx(np.linalg.norm(size))
    assert found.max == pytest.approx(size.max())
    assert "magnitudes" in str(found)
    assert statistics(given(torch.from_numpy(values[3:]).conj())).l1 == pytest.approx(size.sum())


@pytest.mark.parametrize("name", [name for name in FORMATS if hasattr(ml_dtypes, name)])
def test_the_formats_are_those_of_ml_dtypes(name):
    info, ours = ml_dtypes.finfo(getattr(ml_dtypes, name)), FORMATS[name]
    assert (ours.digits, ours.lowest, ours.largest) == (info.nmant, info.minexp, float(info.max))


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_the_formats_are_those_of_torch(name):
    info, ours = torch.finfo(getattr(torch, name)), FORMATS[name]
    assert (2.0**-ours.digits, 2.0**ours.lowest, ours.largest) == (info.eps, info.tiny, info.max)
    assert format_of("complex64") == FORMATS["float32"]
    assert format_of("int8") is None


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "float8_e5m2"])
def test_denormals_are_counted_in_the_tensors_own_dtype(name):
    tiny = 2.0 ** FORMATS[name].lowest
    values = torch.tensor([tiny, -tiny, tiny / 2, -tiny / 4, 0.0, 1.0], dtype=torch.float64).to(getattr(torch, name))
    found = statistics(given(values))
    assert (found.denormals, found.zeros, found.dtype) == (2, 1, name)


def test_a_sample_says_so():
    found = statistics(given(np.arange(10_000.0).reshape(100, 100), at_most=200))
    assert found.total == 10_000
    assert 100 < found.count <= 200
    assert found.sampled
    assert f"{found.count} of 10,000 elements read: NaN may have been missed" in str(found)
    assert found.mean == pytest.approx(4999.5, rel=0.02)
    spike = np.zeros(10_000)
    spike[:] = np.arange(10_000) % 2
    spike[given(spike, at_most=100).index(7)] = 900.0
    assert statistics(given(spike, at_most=100)).outliers.index == given(spike, at_most=100).index(7)


def test_what_is_shown():
    found = statistics(given(np.array([[1, 2, 2], [3, np.nan, 100]], np.float32)))
    assert repr(found) == "<TensorStatistics: float32 (2, 3), mean 21.6, std 39.21, 1 NaN>"
    assert str(found).splitlines() == [
        "tensor      float32 (2, 3), 24 B",
        "mean, std   21.6, 39.21",
        "min, max    1, 100",
        "norms       L1 108, L2 100.1, max 100",
        "quantiles   1% 1.04, 5% 1.2, 25% 2, 50% 2, 75% 3, 95% 80.6, 99% 96.12",
        "zeros       0 (0%)",
        "distinct    4",
        "outliers    1, farthest 100 at [1, 2]",
        "not finite  1 NaN, 0 +Inf, 0 -Inf",
    ]
    assert "<td>21.6, 39.21</td>" in found._repr_html_()
    assert found.to_dict()["outliers"]["index"] == [1, 2]
    empty = statistics(given(np.zeros((0, 3))))
    assert repr(empty) == "<TensorStatistics: float64 (0, 3), no elements>"
    assert math.isnan(empty.sparsity)
    assert empty.to_dict()["mean"] == "NaN"


# ---------------------------------------------------------------- the row of the live tool

ROUNDED = ("mean", "std", "rms")


def live(x, bound=0.0, centre=0.0, *, native=True, monkeypatch=None):
    """Return the row that capture makes of a tensor, read whole."""
    raw = BLANK[None].copy()
    if native:
        operation.observe_cpu(x, operation.Rows(raw, raw.ctypes.data), 0, 0, bound, centre)
    else:
        operation._observe(x, raw[0], 0, bound, centre)
    return derived(raw)[0]


def tensors():
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        for scale in (1.0, 1e-7, 1e4):
            x = (torch.randn(37, 53, generator=torch.Generator().manual_seed(3)) * scale).to(dtype)
            x[0, :5] = torch.tensor([0.0, math.nan, math.inf, -math.inf, 3e-8])
            yield x
        yield torch.zeros(4, dtype=dtype)
        yield torch.full((3,), math.nan, dtype=dtype)
        yield torch.tensor(2.5, dtype=dtype)


@pytest.mark.parametrize("x", list(tensors()), ids=lambda x: f"{x.dtype}-{tuple(x.shape)}".replace("torch.", ""))
@pytest.mark.parametrize(("bound", "centre"), [(0.0, 0.0), (0.49, 0.5)])
def test_the_row_is_that_of_the_live_tool(x, bound, centre):
    found = row_of(given(x), bound=bound, centre=centre)
    np.testing.assert_array_equal(found, live(x, bound, centre, native=False))  # to the last bit
    native = live(x, bound, centre)
    for stat in STATS:
        if stat not in ROUNDED:
            np.testing.assert_array_equal(found[column(stat)], native[column(stat)], err_msg=stat)
        else:  # native code sums float32 in chunks of 4,096
            rms = native[column("rms")] or 1.0
            np.testing.assert_allclose(found[column(stat)], native[column(stat)], atol=1e-6 * rms, rtol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_whole_numbers_have_the_row_of_the_same_floats(dtype):
    x = torch.randint(0, 100, (31, 7), generator=torch.Generator().manual_seed(1)).to(dtype)
    np.testing.assert_array_equal(row_of(given(x)), live(x.double(), native=False))


def test_a_sample_has_the_count_of_what_was_read():
    found = row_of(given(torch.ones(100, 100), at_most=300))
    assert found[column("total")] == 10_000
    assert found[column("count")] <= 300
    assert found[column("mean")] == 1


def test_rows_of_odd_tensors():
    empty = row_of(given([]))
    assert empty[column("count")] == 0
    assert math.isnan(empty[column("mean")])
    assert row_of(given(np.array([3 + 4j])))[column("rms")] == 5
    assert row_of(given(np.array([1e300, 1e300])))[column("rms")] == math.inf  # as the live tool says it
    assert row_of(given(np.array([1e300, 1e300])))[column("mean")] == 1e300


def test_units_are_those_that_are_positive_in_any_row():
    x = torch.randn(16, 5, 4, 4, generator=torch.Generator().manual_seed(2)).relu()
    x[:, 2] = 0.0
    found = unit_activity(given(x))
    assert found.positive.tolist() == [True, True, False, True, True]
    assert found.rows == 16 * 16
    np.testing.assert_array_equal(found.positive, (x.amax((0, 2, 3)) > 0).numpy())
    assert unit_activity(given(x), axis=-1).rows == 16 * 5 * 4
    assert unit_activity(given([1.0, 2.0])) is None
    assert unit_activity(given(np.ones((100, 100)), at_most=50)) is None
    assert unit_activity(given([[math.nan, 1.0], [-1.0, 0.0]])).positive.tolist() == [False, True]
