"""Every way of reading a tensor against a float64 oracle: random shapes, strides, dtypes, NaN, Inf, empties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.capture import op
from neuraldbg.capture.stage import Stage, segments
from neuraldbg.capture.table import Table
from neuraldbg.nouns import Site, column

CAP = 8192
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def oracle(x: torch.Tensor) -> np.ndarray:
    values = x.detach().double().numpy().ravel()
    finite = values[np.isfinite(values)]
    out = np.zeros(op.WIDTH)
    out[op.TOTAL] = out[op.COUNT] = values.size
    out[op.NONFINITE] = values.size - finite.size
    out[op.SUM], out[op.SQUARES] = finite.sum(), (finite**2).sum()
    out[op.MIN], out[op.MAX] = (finite.min(), finite.max()) if finite.size else (np.inf, -np.inf)
    out[op.ZEROS] = (finite == 0).sum()
    return out


def blank(rows: int = 1) -> np.ndarray:
    table = np.zeros((rows, op.WIDTH))
    table[:, op.MIN], table[:, op.MAX] = np.inf, -np.inf
    return table


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(1, 9), min_size=0, max_size=4))
    seed = draw(st.integers(0, 2**31))
    scale = draw(st.sampled_from([1.0, 1e-3, 30.0, 1e-20, 1e20, 0.0]))
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
    np.testing.assert_array_equal(
        found[[op.TOTAL, op.COUNT, op.NONFINITE, op.ZEROS]], expected[[op.TOTAL, op.COUNT, op.NONFINITE, op.ZEROS]]
    )
    np.testing.assert_allclose(found[[op.MIN, op.MAX]], expected[[op.MIN, op.MAX]], rtol=1e-7)
    norm = np.sqrt(expected[op.SQUARES])
    np.testing.assert_allclose(np.sqrt(found[op.SQUARES]), norm, rtol=1e-5)
    np.testing.assert_allclose(found[op.SUM], expected[op.SUM], atol=1e-5 * norm * np.sqrt(expected[op.COUNT]) + 1e-300)


@given(tensors())
def test_reading_one_tensor_at_once(x: torch.Tensor) -> None:
    table = blank()
    op.observe_cpu(x, table[0], CAP)
    close(table[0], oracle(x))


@given(tensors())
def test_reading_without_synchronising(x: torch.Tensor) -> None:
    table = torch.from_numpy(blank())
    op.observe_device(x, table, 0, CAP)
    close(table[0].numpy(), oracle(x))


@given(st.lists(tensors(), min_size=1, max_size=6), st.booleans())
def test_reading_what_was_put_aside(xs: list[torch.Tensor], one_row: bool) -> None:
    stage, table = Stage(CAP), blank(len(xs))
    for row, x in enumerate(xs):
        if not stage.put(x, 0 if one_row else row):
            op.observe_cpu(x, table[0 if one_row else row], CAP)
    stage.settle(table)
    assert len(stage) == 0
    if one_row:
        close(table[0], oracle(torch.cat([x.double().reshape(-1) for x in xs])))
    else:
        for row, x in enumerate(xs):
            close(table[row], oracle(x))


@given(st.lists(tensors(), min_size=1, max_size=6))
def test_reading_several_as_one(xs: list[torch.Tensor]) -> None:
    flat = torch.cat([x.double().reshape(-1) for x in xs]).numpy()
    found = segments(flat, np.array([x.numel() for x in xs]))
    for row, x in enumerate(xs):
        close(found[row], oracle(x))


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
    stage, table = Stage(CAP), blank(2)
    assert stage.put(x, 0) is x.is_contiguous()
    stage.settle(table)
    op.observe_cpu(x, table[1], CAP)
    for row in table if x.is_contiguous() else table[1:]:
        assert row[op.TOTAL] == x.numel()
        assert row[op.COUNT] == taken.numel()
        assert row[op.SUM] / row[op.COUNT] == pytest.approx(3, abs=0.15)
        assert row[op.SQUARES] / row[op.COUNT] == pytest.approx(13, rel=0.1)
    if x.is_contiguous():
        np.testing.assert_allclose(table[0], table[1], rtol=1e-4)


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
    x = torch.randn(50, 7)
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
    for step in range(10):
        x = torch.zeros(5, 3)
        x[0, 0] = 1.0  # unit 0 always fires, unit 1 at step 2 alone, unit 2 never
        x[1, 1] = 1.0 if step == 2 else 0.0
        table.observe(x, row)
        table.units.add(row, 3, step)
        table.units.observe(row, x, 1, CAP)
        found.append(int(table.derive(step, table.take())[row, column("dead")]))
    assert found == [2, 2, 1, 1, 1, 1, 2, 2, 2, 2]
