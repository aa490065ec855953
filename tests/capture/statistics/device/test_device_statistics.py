"""The statistics of a device's tensors against float64 oracles: torch's way here, Triton's in its interpreter.

The interpreter runs kernels on tensors of the CPU, one program after the other; it must be chosen before Triton is
imported, so these tests run once more in a process of their own. What only a GPU can tell is in test_device_cuda.py.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg.capture.guest.native import dense
from neuraldbg.capture.statistics import operation as op
from neuraldbg.capture.statistics.device import block_layout, placement
from neuraldbg.capture.statistics.device import table as device_module
from neuraldbg.capture.statistics.device.async_copy import Sent
from neuraldbg.capture.statistics.device.table import DeviceTable
from neuraldbg.capture.statistics.device.tensor_group import TensorGroup

TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = TRITON and os.environ.get("TRITON_INTERPRET") == "1"
KINDS = pytest.mark.parametrize(
    "kind",
    [
        "torch",
        pytest.param(
            "triton",
            marks=pytest.mark.skipif(not INTERPRETED, reason="needs Triton and TRITON_INTERPRET=1: see the last test"),
        ),
    ],
)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
CAPS = (0, 1, 64, 100, 128, 200, 300, 1024)
EXACT = [
    op.TOTAL,
    op.COUNT,
    op.NONFINITE,
    op.MIN,
    op.MAX,
    op.ZEROS,
    op.SATURATED,
    op.UNDER,
    op.OVER,
]


def oracle(read: torch.Tensor, total: int, bound: float = 0.0, centre: float = 0.0) -> np.ndarray:
    """Return the row for what was read of a tensor of ``total`` elements."""
    values = read.detach().double().numpy().ravel()
    finite = values[np.isfinite(values)]
    size = np.abs(finite)
    out = np.zeros(op.WIDTH)
    out[op.TOTAL], out[op.COUNT], out[op.NONFINITE] = total, values.size, values.size - finite.size
    with np.errstate(over="ignore"):
        out[op.SUM], out[op.SQUARES] = finite.sum(), (finite**2).sum()
    out[op.MIN], out[op.MAX] = (finite.min(), finite.max()) if finite.size else (np.inf, -np.inf)
    out[op.ZEROS] = (finite == 0).sum()
    out[op.SATURATED] = (np.abs(values - centre) > bound).sum() if bound else 0
    out[op.UNDER], out[op.OVER] = ((size <= 2.0**-25) & (size > 0)).sum(), (size >= 65520).sum()
    return out


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found[EXACT], expected[EXACT])
    np.testing.assert_allclose(found[op.SQUARES], expected[op.SQUARES], rtol=1e-12)
    # A sum is as exact as float64 lets it be, relative to the sizes of what is summed.
    room = 1e-13 * np.sqrt(expected[op.SQUARES] * max(expected[op.COUNT], 1))
    np.testing.assert_allclose(found[op.SUM], expected[op.SUM], rtol=1e-12, atol=room)


@st.composite
def tensors(draw: st.DrawFn, longest: int = 9) -> torch.Tensor:
    shape = draw(st.lists(st.integers(1, longest), min_size=0, max_size=4))
    if shape and draw(st.integers(0, 15)) == 0:
        shape[0] = 0
    seed = draw(st.integers(0, 2**31))
    scale = draw(st.sampled_from([1.0, 1e-3, 30.0, 3e4, 1e-20, 1e20, 2e-8, 0.0, -1.0]))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    x = x.to(draw(st.sampled_from(DTYPES)))
    bad = draw(st.sampled_from([None, float("nan"), float("inf"), -float("inf"), 0.0, -0.0]))
    if bad is not None and x.numel():
        x.view(-1)[:: draw(st.integers(1, 5))] = bad
    layout = draw(st.sampled_from(["as it is", "permuted", "every second", "expanded", "a part"]))
    if layout == "permuted":
        x = x.permute(draw(st.permutations(range(x.dim()))))
    elif layout == "expanded":
        x = x.unsqueeze(-1).expand(*x.shape, 3)
    elif x.dim() and layout == "every second":
        x = x[..., ::2]
    elif x.dim() and layout == "a part":
        x = x[..., 1:]
    return x


def read_of(x: torch.Tensor, cap: int) -> torch.Tensor:
    """Return the elements that are to be read: those of ``op.sample``, of dense memory in the order of the memory."""
    strides = sorted(zip(x.stride(), x.shape, strict=True))
    dense = all(s == int(np.prod([n for _, n in strides[:i]])) for i, (s, n) in enumerate(strides) if n > 1)
    return op.sample(x.as_strided((x.numel(),), (1,)) if dense else x, cap or x.numel())


def changed(x: torch.Tensor, by: float) -> torch.Tensor:
    """Return a tensor laid out as another, with all values multiplied."""
    everything = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone())
    return everything.mul_(by).as_strided(x.shape, x.stride(), x.storage_offset())


@KINDS
@settings(max_examples=60)
@given(x=tensors(), cap=st.sampled_from(CAPS), bounds=st.sampled_from([(0.0, 0.0), (0.98, 0.0), (0.49, 0.5)]))
def test_one_tensor(kind, x, cap, bounds):
    table = DeviceTable("cpu", 3, kind)
    table.observe(x, 1, cap, *bounds)
    expected = oracle(read_of(x, cap), x.numel(), *bounds) if x.numel() else oracle(x, 0)
    close(table.table[1].numpy(), expected)
    assert torch.equal(table.table[::2], DeviceTable("cpu", 2, "torch").table)


@KINDS
@settings(max_examples=30)
@given(numel=st.integers(1, 60_000), cap=st.one_of(st.sampled_from(CAPS), st.integers(1, 5000)))
def test_the_places_are_those_of_a_sample(kind, numel, cap):
    """Small whole numbers have exact sums, so that not one element may be another."""
    x = torch.arange(1, numel + 1, dtype=torch.float64)
    if cap == 0 and kind == "triton":
        x = x[:5000]  # a program of the interpreter takes milliseconds
    table = DeviceTable("cpu", 1, kind)
    table.observe(x, 0, cap)
    taken = op.sample(x, cap or len(x))
    found = table.table[0].numpy()
    assert found[op.COUNT] == len(taken)
    assert found[op.SUM] == float(taken.sum())
    assert found[op.SQUARES] == float((taken * taken).sum())
    assert (found[op.MIN], found[op.MAX]) == (float(taken.min()), float(taken.max()))


@given(numel=st.integers(1, 10**12), cap=st.integers(0, 10**6))
def test_blocks_stay_inside_of_the_tensor(numel, cap):
    places = block_layout.blocks(numel, cap)
    last = (places.total - 1) * places.step
    assert 0 < places.size <= block_layout.LANES
    assert last < numel
    whole = cap == 0 or numel <= cap
    assert places.taken == numel if whole else places.taken <= cap
    assert last + places.size >= numel if whole else last + places.size <= numel
    assert places.step >= places.size or places.total == 1 or not whole


@KINDS
@settings(max_examples=30)
@given(xs=st.lists(tensors(longest=5), min_size=1, max_size=4))
def test_a_row_accumulates(kind, xs):
    table = DeviceTable("cpu", 1, kind)
    for x in xs:
        table.observe(x, 0, 0)
    everything = torch.cat([x.double().reshape(-1) for x in xs])
    close(table.table[0].numpy(), oracle(everything, len(everything)))


@KINDS
@settings(max_examples=40)
@given(
    xs=st.lists(tensors(longest=7).filter(lambda x: x.numel() and dense(x)), min_size=1, max_size=6),
    absent=st.sets(st.integers(0, 5)),
    cap=st.sampled_from(CAPS),
    by=st.sampled_from([0.0, 0.25, 1e-3]),
)
def test_many_tensors_and_what_changed(kind, xs, absent, cap, by):
    table = DeviceTable("cpu", 3 * len(xs), kind)
    rows = list(range(0, 3 * len(xs), 3))
    many = TensorGroup(table, xs, rows, [cap] * len(xs), [row + 1 for row in rows])
    xs = [None if i in absent else x for i, x in enumerate(xs)]
    empty = DeviceTable("cpu", 1, "torch").table[0].numpy()
    for turn in range(3):  # the third reading is a second one in its step: it replaces the other
        many.observe(xs)
        news = [None if x is None else changed(x, 1 + by) for x in xs]
        with patch.object(placement, "lies", lambda x: True):
            many.compare(news)
        for x, new, row in zip(xs, news, rows, strict=True):
            if x is None:
                np.testing.assert_array_equal(table.table[[row, row + 1]].numpy(), [empty, empty])
                continue
            close(table.table[row].numpy(), oracle(read_of(x, cap), x.numel()))
            wide = torch.float64 if x.dtype is torch.float64 else torch.float32
            before, after = read_of(x, cap), read_of(new, cap)
            close(table.table[row + 1].numpy(), oracle(after.to(wide) - before.to(wide), x.numel()))
            np.testing.assert_array_equal(table.table[row + 2].numpy(), empty)
        if turn == 0:
            table.clear(len(table.table))


@KINDS
def test_what_is_laid_out_otherwise_than_it_was_is_passed_over(kind):
    x = torch.randn(30, 40)
    table = DeviceTable("cpu", 8, kind)
    many = TensorGroup(table, [x] * 4, range(4), [0] * 4, range(4, 8))
    many.observe([x] * 4)
    with patch.object(placement, "lies", lambda x: True):
        many.compare([x.clone(), x.clone().t(), x.double(), x[:0]])
    assert table.table[:, op.COUNT].tolist() == [1200] * 5 + [0, 0, 0]
    many.compare([x] * 4)  # nothing is kept any more
    many.observe([x.clone()] * 4)
    many.forget()
    many.compare([x] * 4)
    assert table.table[:, op.COUNT].tolist() == [1200] * 5 + [0, 0, 0]


@KINDS
def test_the_limits_of_half_precision(kind):
    limits = [2.0**-25, 2.0**-25 * (1 + 2**-20), 65520.0, 65519.0, -(2.0**-25), -65520.0, 1e-40, -0.0, float("inf")]
    table = DeviceTable("cpu", 2, kind)
    for row, dtype in enumerate((torch.float32, torch.float64)):
        table.observe(torch.tensor(limits, dtype=dtype), row, 0)
    assert table.table[:, [op.UNDER, op.OVER, op.ZEROS, op.NONFINITE]].tolist() == [[3, 2, 1, 1]] * 2


@KINDS
def test_one_cap_for_each_of_many(kind):
    xs = [torch.randn(3000), torch.randn(3000), torch.randn(3000, dtype=torch.float64)]
    table = DeviceTable("cpu", 3, kind)
    TensorGroup(table, xs, [2, 0, 1], [0, 256, 1000]).observe(xs)
    for x, row, cap in zip(xs, [2, 0, 1], [3000, 256, 1000], strict=True):
        close(table.table[row].numpy(), oracle(op.sample(x, cap), 3000))


@KINDS
def test_several_programs_share_a_tensor(kind):
    x = torch.randn(40_000, generator=torch.Generator().manual_seed(0)) - 3
    x[[5, 20_000, 39_999]] = torch.tensor([float("nan"), 100.0, -100.0])
    table = DeviceTable("cpu", 2, kind)
    table.observe(x, 0, 0)
    TensorGroup(table, [x], [1], [0]).observe([x])
    for row in table.table.numpy():
        close(row, oracle(x, x.numel()))


@KINDS
def test_rows_are_cleared_where_they_lie(kind):
    table = DeviceTable("cpu", 4, kind)
    address, blank = table.table.data_ptr(), DeviceTable("cpu", 4, "torch").table
    for row in range(4):
        table.observe(torch.ones(2), row, 0)
    table.reset([0])
    assert table.table[:, op.COUNT].tolist() == [0, 2, 2, 2]
    table.clear(3)
    assert torch.equal(table.table[:3], blank[:3])
    assert table.table[3, op.COUNT] == 2
    assert table.table.data_ptr() == address


def test_what_is_sent_is_a_copy_in_float64():
    parts = [
        torch.arange(6.0).reshape(2, 3),
        torch.tensor(7.0, dtype=torch.float64),
        torch.ones(0),
        torch.ones(2).half(),
    ]
    sent = Sent(parts)
    for part in parts:
        part.zero_()
    assert sent.arrived()
    first, second, third, fourth = sent.read()
    np.testing.assert_array_equal(first, [[0, 1, 2], [3, 4, 5]])
    assert (second.shape, float(second), third.shape, fourth.tolist()) == ((), 7.0, (0,), [1.0, 1.0])
    assert {found.dtype for found in (first, second, third, fourth)} == {np.dtype(np.float64)}


def test_what_reads_is_told_with_the_reason(monkeypatch):
    assert device_module.backend(torch.device("cpu")) == "torch"
    assert "not on cpu" in device_module.why_torch(torch.device("cpu"))
    tried = device_module.tried.__wrapped__
    monkeypatch.setattr(device_module.importlib.util, "find_spec", lambda name: None)
    assert "pip install triton" in tried(torch.device("cuda", 0))


def test_a_kernel_that_does_not_run_is_told_with_the_reason(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(device_module.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(device_module, "compared", lambda device: 1 / 0)
    assert "ZeroDivisionError" in device_module.tried.__wrapped__(torch.device("cuda", 0))


@pytest.mark.skipif(not TRITON, reason="Triton is not installed")
@pytest.mark.skipif(INTERPRETED, reason="this is that process")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, on which test_device_cuda.py runs the kernels")
def test_all_of_this_with_the_kernels_in_the_interpreter():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-k",
        "triton",
        __file__,
    ]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
