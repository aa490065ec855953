"""Every way of reading a tensor against a float64 oracle: random shapes, strides, dtypes, NaN, Inf, empties.

The native kernel and torch's operators must give the same: both are tested where the kernel was built.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.capture.guest import native as kernel
from neuraldbg.capture.parameters import batched_reads
from neuraldbg.capture.statistics import operation as op
from neuraldbg.capture.statistics import unit_activity
from neuraldbg.capture.statistics.table import Table
from neuraldbg.nouns import Site, column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.capture.statistics.raw_rows import Raw

CAP = 8192
GENERATIONS = ("avx512", "avx2", "plain")
BACKENDS = (*GENERATIONS, "torch")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@contextlib.contextmanager
def reading_with(backend: str) -> Iterator[None]:
    newest = kernel.native.generation if kernel.native is not None else ""
    if backend in GENERATIONS and (not newest or kernel.native.choose(backend) != backend):
        pytest.skip("the native kernel was not built, or this processor does not run these loops of it")
    native = kernel.native if backend in GENERATIONS else None
    with contextlib.ExitStack() as stack:
        for module in (op, batched_reads, unit_activity):
            stack.enter_context(mock.patch.object(module, "native", native))
        try:
            yield
        finally:
            if newest:
                kernel.native.choose(newest)


def oracle(x: torch.Tensor) -> np.ndarray:
    values = x.detach().double().numpy().ravel()
    finite = values[np.isfinite(values)]
    out = np.zeros(op.WIDTH)
    out[op.TOTAL] = out[op.COUNT] = values.size
    out[op.NONFINITE] = values.size - finite.size
    out[op.SUM], out[op.SQUARES] = finite.sum(), (finite**2).sum()
    out[op.MIN], out[op.MAX] = (finite.min(), finite.max()) if finite.size else (np.inf, -np.inf)
    out[op.ZEROS] = (finite == 0).sum()
    with np.errstate(over="ignore"):
        half = finite.astype(np.float16)
    out[op.UNDER] = ((half == 0) & (finite != 0)).sum()
    out[op.OVER] = np.isinf(half).sum()
    return out


def blank(rows: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.tile(op.BLANK, (rows, 1)))


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(1, 9), min_size=0, max_size=4))
    seed = draw(st.integers(0, 2**31))
    scale = draw(st.sampled_from([1.0, 1e-3, 30.0, 1e-8, 1e5, 1e-20, 1e20, 1e-42, 0.0]))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    x = x.to(draw(st.sampled_from(DTYPES)))
    if x.dim() > 1 and draw(st.booleans()):
        x = x.transpose(0, -1)
    if x.dim() and draw(st.booleans()):
        x = x[::2]
    bad = draw(st.sampled_from([None, float("nan"), float("inf"), -float("inf"), 0.0]))
    if bad is not None and x.numel():
        x = x.clone()
        x.reshape(-1)[:: draw(st.integers(1, 5))] = bad
        if not x.is_contiguous():
            x = x * 1
    return x


def close(found: np.ndarray, expected: np.ndarray) -> None:
    counts = [op.TOTAL, op.COUNT, op.NONFINITE, op.ZEROS, op.UNDER, op.OVER]
    np.testing.assert_array_equal(found[counts], expected[counts])
    np.testing.assert_allclose(found[[op.MIN, op.MAX]], expected[[op.MIN, op.MAX]], rtol=1e-7)
    norm = np.sqrt(expected[op.SQUARES])
    np.testing.assert_allclose(np.sqrt(found[op.SQUARES]), norm, rtol=1e-5)
    np.testing.assert_allclose(found[op.SUM], expected[op.SUM], atol=1e-5 * norm * np.sqrt(expected[op.COUNT]) + 1e-300)


@pytest.mark.parametrize("backend", BACKENDS)
@given(tensors())
def test_reading_one_tensor_at_once(backend: str, x: torch.Tensor) -> None:
    with reading_with(backend):
        rows = op.rows_of(blank(2))
        if x.numel():
            op.observe_cpu(x, rows, 1, CAP)
            close(rows.values[1], oracle(x))
    np.testing.assert_array_equal(rows.values[0], op.BLANK)


@given(tensors())
def test_reading_without_synchronising(x: torch.Tensor) -> None:
    table = blank()
    if x.numel():
        op.observe_device(x, table, 0, CAP)
        close(table[0].numpy(), oracle(x))


@pytest.mark.parametrize("backend", BACKENDS)
@given(st.lists(tensors(), min_size=1, max_size=6))
def test_reading_several_into_one_row(backend: str, xs: list[torch.Tensor]) -> None:
    with reading_with(backend):
        rows = op.rows_of(blank())
        xs = [x for x in xs if x.numel()]
        for x in xs:
            op.observe_cpu(x, rows, 0, CAP)
        if xs:
            close(rows.values[0], oracle(torch.cat([x.double().reshape(-1) for x in xs])))


@pytest.mark.parametrize("backend", BACKENDS)
@given(st.lists(tensors(), min_size=1, max_size=6))
def test_reading_many_in_one_call(backend: str, xs: list[torch.Tensor]) -> None:
    with reading_with(backend):
        xs = [x.contiguous() for x in xs if x.numel()]
        rows = op.rows_of(blank(len(xs)))
        for _ in range(2):  # a row is set anew, not added to
            batched_reads.observe_many([batched_reads.Item(x, row, 0) for row, x in enumerate(xs)], rows)
        for row, x in enumerate(xs):
            close(rows.values[row], oracle(x))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_step_changed(backend: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    xs = [torch.randn(n, generator=generator).to(dtype) for n in (1, 7, 4096, 100_003)]
    befores = [x.clone() for x in xs]
    with reading_with(backend):
        rows = op.rows_of(blank(len(xs)))
        samples = batched_reads.Samples(
            [batched_reads.Item(x, row, 1024) for row, x in enumerate(xs)], range(len(xs)), rows
        )
        for step in range(3):
            samples.take()
            for row, (x, before) in enumerate(zip(xs, befores, strict=True)):
                assert rows.values[row, op.TOTAL] == x.numel()
                expected = oracle(op.sample(before, 1024))
                expected[op.TOTAL] = x.numel()
                close(rows.values[row], expected)
            outside = samples.change_outside(4096)
            assert outside == 0.0 if step < 2 else outside == pytest.approx(1.0, rel=0.02)
            for x in xs:
                x.mul_(1.5).add_(0.01)
                if step:
                    x.data = x.data.clone()  # as some optimizers do: elsewhere, and still the same tensor
            assert samples.compare()
            for row, (x, before) in enumerate(zip(xs, befores, strict=True)):
                wide = torch.float64 if dtype is torch.float64 else torch.float32
                change = op.sample(x, 1024).to(wide) - op.sample(before, 1024).to(wide)
                expected = oracle(change)
                expected[op.TOTAL] = x.numel()
                close(rows.values[row], expected)
            if step == 1:
                for x in xs:
                    x.mul_(2.0)
            befores = [x.clone() for x in xs]
        xs[1].data = torch.zeros(100_000, dtype=dtype)  # another size: what was kept is of no use, and is not overrun
        assert not samples.compare()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("shape", "axis"), [((64, 10), -1), ((8, 6, 5, 4), 1), ((8, 6, 21), 1), ((3, 50, 7), -1)])
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "sliced"])
def test_the_highest_value_of_each_unit(backend: str, shape: tuple[int, ...], axis: int, layout: str) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x.view(-1)[5] = float("nan")
    x.view(-1)[11] = float("inf")
    if layout == "channels last" and x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
    elif layout == "sliced":
        x = x[::2]
    with reading_with(backend):
        watched = unit_activity.Units(window=20)
        watched.add(3, x.shape[axis], 0)
        watched.observe(3, x, axis, x.numel())
        found = watched.take().highest
    values = np.moveaxis(x.numpy(), axis, 0).reshape(x.shape[axis], -1)
    passed_over = ~np.isnan(values).any(axis=1) | (backend in GENERATIONS and layout != "sliced")
    np.testing.assert_array_equal(found[passed_over], np.fmax.reduce(values, axis=1)[passed_over])


@pytest.mark.parametrize("shape", [(40_000,), (64, 32, 14, 14), (3, 100_001), (2, 3, 300, 300)])
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "transposed", "offset"])
def test_a_large_tensor_is_sampled_evenly(shape: tuple[int, ...], layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator) * 2 + 3
    if layout == "channels last" and x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
    elif layout == "transposed" and x.dim() == 2:
        x = x.t()
    elif layout == "offset":
        x = torch.cat([x.new_full((1, *shape[1:]), 1e9), x])[1:]
    taken = op.sample(x, CAP)
    assert CAP / 8 <= taken.numel() <= 4 * CAP
    expected = oracle(taken)
    expected[op.TOTAL] = x.numel()
    for backend in BACKENDS:
        with reading_with(backend):
            rows = op.rows_of(blank())
            op.observe_cpu(x, rows, 0, CAP)
        row = rows.values[0]
        assert row[op.SUM] / row[op.COUNT] == pytest.approx(3, abs=0.15)
        assert row[op.SQUARES] / row[op.COUNT] == pytest.approx(13, rel=0.1)
        close(row, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cap", [64, 127, 128, 300, 4096, 5000, 20_000])
def test_a_sample_of_any_size_and_dtype(cap: int, dtype: torch.dtype) -> None:
    x = torch.randn(70_001, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[::977], x[1::1999], x[2::701] = float("nan"), float("-inf"), 0.0
    expected = oracle(op.sample(x, cap))
    expected[op.TOTAL] = x.numel()
    for backend in BACKENDS:
        with reading_with(backend):
            rows = op.rows_of(blank())
            op.observe_cpu(x, rows, 0, cap)
        close(rows.values[0], expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("numel", [50, 4096, 40_000])
@pytest.mark.parametrize("size", [1e17, 5e17, 1e18, 1e19, -1e30])
def test_squares_that_add_up_to_more_than_float32_holds(
    size: float, numel: int, dtype: torch.dtype, backend: str
) -> None:
    x = torch.full((numel,), size, dtype=dtype)
    for cap in (numel, 4096):
        with reading_with(backend):
            rows = op.rows_of(blank())
            op.observe_cpu(x, rows, 0, cap)
        taken = rows.values[0]
        assert taken[op.NONFINITE] == 0
        assert np.sqrt(taken[op.SQUARES] / taken[op.COUNT]) == pytest.approx(abs(float(x[0])), rel=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("numel", [1, 31, 32, 33, 5000])
@pytest.mark.parametrize("only", ["above", "below", "from zero", "to zero", "one above", "one below", "minus zero"])
def test_the_least_and_the_greatest_of_one_sign(backend: str, dtype: torch.dtype, numel: int, only: str) -> None:
    """Halves are compared by their bits, in which order and sign do not go together."""
    above = torch.rand(numel, generator=torch.Generator().manual_seed(numel)).to(dtype).abs() + 0.01
    x = {"above": above, "below": -above, "from zero": above.clone(), "to zero": -above}.get(only, above.clone())
    if only in {"from zero", "to zero"}:
        x[numel // 2] = 0.0
    elif only == "one above":
        x = -above
        x[numel // 3] = 0.5
    elif only == "one below":
        x[numel // 3] = -0.5
    elif only == "minus zero":
        x[numel // 3] = -0.0
    with reading_with(backend):
        rows = op.rows_of(blank())
        op.observe_cpu(x, rows, 0, numel)
    close(rows.values[0], oracle(x))


def test_sampling_reaches_the_whole_tensor() -> None:
    x = torch.zeros(1_000_000)
    for spot in range(10):
        x.zero_()
        x[spot * 100_000 : (spot + 1) * 100_000] = 1.0
        share = op.sample(x, CAP).mean()
        assert share == pytest.approx(0.1, abs=0.02)


def test_what_cannot_be_read_is_refused() -> None:
    assert not op.observable(torch.empty(0))
    assert not op.observable(torch.arange(3))
    assert not op.observable(torch.ones(2, dtype=torch.complex64))
    assert not op.observable(torch.empty(2, device="meta"))
    assert not op.observable(torch.eye(3).to_sparse())
    assert not op.observable(None)
    assert op.observable(torch.nn.Parameter(torch.ones(2)))


def test_the_derived_table_matches_the_oracle() -> None:
    table = Table(8, CAP, window=20)
    rows = [table.add(Site("activation", name)) for name in ("a", "b", "unseen")]
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    table.observe(x[:20], rows[0])
    table.observe(x[20:], rows[0])
    table.observe(torch.tensor([float("nan"), 2.0, 0.0]), rows[1])
    table.gather()
    derived = table.derive(0)
    for stat, expected in {
        "mean": x.mean(),
        "std": x.std(unbiased=False),
        "rms": x.square().mean().sqrt(),
        "min": x.min(),
        "max": x.max(),
        "total": 350,
        "count": 350,
    }.items():
        assert derived[0, column(stat)] == pytest.approx(float(expected), rel=1e-5), stat
    assert derived[1, column("nonfinite")] == 1
    assert derived[1, column("mean")] == 1.0
    assert derived[2, column("count")] == 0
    assert np.isnan(derived[2, column("rms")])


def test_a_full_table_refuses_and_says_so() -> None:
    table = Table(1, CAP, window=20)
    assert table.add(Site("activation", "a")) == 0
    assert table.add(Site("activation", "b")) is None
    assert table.full


def test_saturation_counts_elements_near_the_bounds() -> None:
    table = Table(2, CAP, window=20)
    row = table.add(Site("activation", "sigmoid"))
    x = torch.tensor([0.001, 0.5, 0.995, 0.98])
    table.observe(x, row, bound=0.49, centre=0.5)
    assert table.derive(0)[row, column("saturated")] == 2


def test_a_unit_is_dead_only_after_the_whole_window() -> None:
    table = Table(2, CAP, window=4)
    row = table.add(Site("activation", "relu"))
    found = []
    for step in range(0, 100, 10):  # a reading in ten steps: one in the window of 4 is not enough
        x = torch.zeros(100, 3)
        x[0, 0] = 1.0  # unit 0 always fires, unit 1 at step 20 alone, unit 2 never
        x[1, 1] = 1.0 if step == 20 else 0.0
        table.observe(x, row)
        table.units.add(row, 3, step)
        table.units.observe(row, x, 1)
        table_row = table.derive(step, table.take())[row]
        found.append([int(table_row[column(stat)]) for stat in ("units", "dead", "dead_rows", "dead_since")])
    assert found[:2] == [[0, 0, 0, 0]] * 2
    assert found[2:5] == [[3, 1, 300, 0], [3, 1, 400, 0], [3, 1, 500, 0]]
    assert found[5:] == [[3, 2, rows, 21] for rows in (300, 400, 500, 600, 700)]


@pytest.mark.parametrize("shape", [(8, 3), (2, 4, 3), (8, 3, 5, 5)])
def test_few_rows_leave_dead_units_unknown(shape: tuple[int, ...]) -> None:
    """Eight rows (images of a convolution, tokens of a sequence) a step: 300 are read in 38 steps, not in the 4 of
    the window."""
    table = Table(1, CAP, window=4)
    row = table.add(Site("activation", "relu"))
    units, dead, rows = column("units"), column("dead"), column("dead_rows")
    known = []
    for step in range(40):
        x = torch.zeros(shape)
        table.observe(x, row)
        table.units.add(row, 3, step)
        table.units.observe(row, x, 1 if len(shape) == 4 else -1)
        found = table.derive(step, table.take())[row]
        if found[units]:
            known.append((step, found[dead], found[rows]))
    assert known == [(37, 3, 304), (38, 3, 312), (39, 3, 320)]


def test_dead_units_are_as_rare_as_the_rows_in_which_they_fire() -> None:
    """Of units that fire in 1.2% of the rows, less than one in twenty is called dead: the bound that LEAST_ROWS is
    taken from. By one batch of 25 rows, more than half of them would be."""
    draws = torch.Generator().manual_seed(0)
    units = 2000
    table = Table(1, CAP, window=4)
    row = table.add(Site("activation", "relu"))
    alone = []
    for step in range(12):
        x = (torch.rand(25, units, generator=draws) < 0.012).float()
        table.observe(x, row)
        table.units.add(row, units, step)
        table.units.observe(row, x, 1, x.numel())
        alone.append(int((x.amax(0) == 0).sum()))
        found = table.derive(step, table.take())[row]
    assert found[column("units")] == units
    assert found[column("dead_rows")] == 300
    assert 0 < found[column("dead")] < units / 20
    assert min(alone) > units / 2


def test_steps_that_are_derived_together_are_as_one_by_one() -> None:
    """Units are read at some steps only, and a layer may be left out of a step."""
    draw = np.random.default_rng(0)

    def gathered() -> list[Raw]:
        draws = torch.Generator().manual_seed(1)
        return [step_of(table, rows, step, draws) for step in range(40)]

    def step_of(table: Table, rows: list[int], step: int, draws: torch.Generator) -> Raw:
        for row in rows:
            x = torch.randn(90, 5, generator=draws) - 3
            if (step + row) % 5:
                table.observe(x, row)
            if step % 3 == 0 and step >= 4 * row:
                table.units.add(row, 5, step)
                table.units.observe(row, x, 1)
        return table.take()

    def made() -> tuple[Table, list[int]]:
        table = Table(8, CAP, window=4)
        return table, [table.add(Site("activation", f"relu{i}")) or 0 for i in range(4)]

    table, rows = made()
    taken = gathered()
    alone = np.stack([table.derive(step, raw) for step, raw in enumerate(taken)])
    table, rows = made()
    taken, together, begin = gathered(), [], 0
    while begin < len(taken):
        end = begin + int(draw.integers(1, 12))
        steps = list(range(begin, min(end, len(taken))))
        together.append(table.derive_all(steps, taken[begin:end]))
        begin = end
    assert alone[:, :, column("dead")].any()
    np.testing.assert_array_equal(np.concatenate(together), alone)
