"""What only a GPU can tell of the device's statistics: many programs at once, no waiting, graphs, streams, compilation.

Skipped where there is none. On a machine with a GPU
`python -m pytest tests/capture/statistics/device/test_device_cuda.py` runs all.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import CapturedRun, capture_run
from tests.capture.simulated_device import compare
from torch import nn

from neuraldbg.capture.statistics import operation as op
from neuraldbg.capture.statistics.device import table as device_module
from neuraldbg.capture.statistics.device.async_copy import Sent
from neuraldbg.capture.statistics.device.table import DeviceTable
from neuraldbg.capture.statistics.device.tensor_group import TensorGroup
from neuraldbg.capture.steps import overhead_budget

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
KINDS = pytest.mark.parametrize("kind", ["triton", "torch"])
EXACT = [
    op.TOTAL,
    op.COUNT,
    op.NONFINITE,
    op.MIN,
    op.MAX,
    op.ZEROS,
    op.UNDER,
    op.OVER,
]


@pytest.fixture(autouse=True)
def triton_works():
    assert device_module.why_torch(torch.device("cuda")) == ""


@pytest.fixture
def never_waiting():
    """Make every wait for the device an error, while the function that is yielded is true."""

    def switch(on: bool) -> None:
        torch.cuda.set_sync_debug_mode("error" if on else "default")

    yield switch
    switch(False)


def oracle(read: torch.Tensor, total: int) -> np.ndarray:
    values = read.detach().cpu().double()
    finite = values[values.isfinite()]
    size = finite.abs()
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (np.inf, -np.inf)
    out = np.zeros(op.WIDTH)
    out[op.TOTAL], out[op.COUNT], out[op.NONFINITE] = (
        total,
        values.numel(),
        values.numel() - finite.numel(),
    )
    out[op.SUM], out[op.SQUARES], out[op.MIN], out[op.MAX] = (
        float(finite.sum()),
        float(finite @ finite),
        low,
        high,
    )
    out[op.ZEROS], out[op.OVER] = int((finite == 0).sum()), int((size >= op.HALF_OVER).sum())
    out[op.UNDER] = int(((size > 0) & (size <= op.HALF_UNDER)).sum())
    return out


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found[EXACT], expected[EXACT])
    np.testing.assert_allclose(found[op.SQUARES], expected[op.SQUARES], rtol=1e-11)
    room = 1e-12 * np.sqrt(expected[op.SQUARES] * max(expected[op.COUNT], 1))
    np.testing.assert_allclose(found[op.SUM], expected[op.SUM], rtol=1e-11, atol=room)


def rows_of(table: DeviceTable) -> np.ndarray:
    (rows,) = Sent([table.table]).read()
    table.clear(len(table.table))
    return rows


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("numel", [1, 127, 4096, 4097, 1_000_003, 30_000_000])
@pytest.mark.parametrize("cap", [0, 100, 4096])
def test_against_float64(kind, dtype, numel, cap):
    generator = torch.Generator("cuda").manual_seed(numel)
    x = (torch.randn(numel, device="cuda", generator=generator) * 30).to(dtype)
    x[:: max(numel // 7, 1)] = 0.0
    x[3 :: max(numel // 5, 1)] = float("nan")
    x[5 :: max(numel // 3, 1)] = -float("inf")
    x[6 :: max(numel // 3, 1)] = 1e-8
    table = DeviceTable("cuda", 2, kind)
    table.observe(x, 1, cap)
    close(rows_of(table)[1], oracle(op.sample(x, cap or numel), numel))


@KINDS
def test_memory_formats(kind):
    x = torch.randn(8, 64, 28, 30, device="cuda")
    shapes = [
        x.to(memory_format=torch.channels_last),
        x.transpose(1, 3),
        x[:, ::2],
        x[:, :, 1:],
        x[..., :1].expand(x.shape),
    ]
    table = DeviceTable("cuda", len(shapes), kind)
    for row, y in enumerate(shapes):
        table.observe(y, row, 0)
    for row, y in zip(rows_of(table), shapes, strict=True):
        close(row, oracle(y.reshape(-1), y.numel()))


def some(device: str = "cuda") -> list[torch.Tensor]:
    sizes = [1, 5, 128, 4096, 40_000, 3_000_000]
    return [torch.randn(n, device=device).to(d) for n in sizes for d in (torch.float32, torch.bfloat16)]


@KINDS
@pytest.mark.parametrize("cap", [0, 4096])
def test_many_tensors_and_what_changed(kind, cap):
    xs = some()
    n = len(xs)
    table = DeviceTable("cuda", 2 * n, kind)
    many = TensorGroup(table, xs, range(n), [cap] * n, range(n, 2 * n))
    for _ in range(3):
        many.observe(xs)
        news = [x + 0.01 * torch.randn_like(x) for x in xs]
        many.compare(news)
        rows = rows_of(table)
        for i, (x, new) in enumerate(zip(xs, news, strict=True)):
            before, after = (op.sample(y, cap or y.numel()) for y in (x, new))
            close(rows[i], oracle(before, x.numel()))
            close(rows[n + i], oracle(after.float() - before.float(), x.numel()))
        xs = news  # other addresses: they are sent anew


def test_nothing_waits_for_the_device(never_waiting):
    xs = some()
    n = len(xs)
    table, odd, sent = DeviceTable("cuda", 4 * n), xs[-1][: 3_000_000 - 1][::3], []
    weights, gradients = (
        TensorGroup(table, xs, range(n), [4096] * n, range(n, 2 * n)),
        TensorGroup(table, xs, range(2 * n, 3 * n), [0] * n),
    )
    for on in (False, True, True):  # the first turn compiles
        never_waiting(on)
        for row, x in enumerate(xs):
            table.observe(x, 3 * n + row, 4096, 0.49, 0.5)
        table.observe(odd, 3 * n, 4096)
        weights.observe(xs)
        weights.compare([x.clone() for x in xs])
        gradients.observe([x.clone() for x in xs])
        sent.append(Sent([table.table]))
        table.clear(4 * n)
        sent[0].arrived()
    never_waiting(False)
    for each in sent:
        assert each.read()[0][2 * n : 3 * n, op.COUNT].tolist() == [x.numel() for x in xs]


def test_a_reading_allocates_nothing_of_the_tensors_size():
    x = torch.randn(64, 1024, 1024, device="cuda", dtype=torch.bfloat16)
    table = DeviceTable("cuda", 2)
    for cap in (4096, 0):
        many = TensorGroup(table, [x], [1], [cap])
        table.observe(x, 0, cap)
        many.observe([x])
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        table.observe(x, 0, cap)
        many.observe([x])
        assert torch.cuda.max_memory_allocated() - before < 100_000


def test_a_replayed_graph_grows_the_row():
    table, x = DeviceTable("cuda", 4), torch.ones(1000, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        table.observe(x * 2, 1, 0)  # compiles outside of the capture
    stream.synchronize()
    rows_of(table)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        table.observe(x * 2, 1, 0)
        TensorGroup(table, [x], [2], [0]).observe([x])
    for _ in range(3):
        graph.replay()
    rows = rows_of(table)
    assert rows[1, [op.COUNT, op.SUM, op.SQUARES]].tolist() == [3000, 6000, 12000]
    assert rows[2, [op.COUNT, op.SUM]].tolist() == [1000, 1000]  # many set their rows


def test_streams_add_to_one_row_at_the_same_time():
    table = DeviceTable("cuda", 1)
    xs = [torch.full((2_000_000,), float(i), device="cuda") for i in range(4)]
    streams = [torch.cuda.Stream() for _ in xs]
    torch.cuda.synchronize()
    for _ in range(10):
        for x, stream in zip(xs, streams, strict=True):
            with torch.cuda.stream(stream):
                table.observe(x, 0, 0)
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    row = rows_of(table)[0]
    assert row[[op.COUNT, op.SUM, op.MIN, op.MAX, op.ZEROS]].tolist() == [
        8e7,
        1.2e8,
        0,
        3,
        2e7,
    ]


def test_a_step_is_taken_while_the_next_is_on_its_way():
    table, x = DeviceTable("cuda", 1), torch.ones(10, device="cuda")
    sums, sent = [], []
    for step in range(100):
        table.observe(x * step, 0, 0)
        sent.append(Sent([table.table]))
        table.clear(1)
        while len(sent) > 1:
            sums.append(sent.pop(0).read()[0][0, op.SUM])
    sums.append(sent.pop().read()[0][0, op.SUM])
    assert sums == [10.0 * step for step in range(100)]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_a_tensor_of_another_than_the_current_device():
    table = DeviceTable("cuda:1", 2)
    x = torch.ones(1000, device="cuda:1")
    table.observe(x, 0, 0)
    TensorGroup(table, [x], [1], [0]).observe([x])
    assert torch.cuda.current_device() == 0
    assert rows_of(table)[:, op.SUM].tolist() == [1000, 1000]


# -- whole sessions ---------------------------------------------------------------------------------------------

STEADY = range(17, 25)
"""Full steps in which facts are not read and leftovers not looked for: in those a session may wait."""


def net() -> nn.Sequential:
    """In float64, so that a device and the CPU compute the same up to rounding far below what is compared. The gradient
    of a bias before batch norm would be nothing but rounding.
    """
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3),
    ).double()  # fmt: skip


def session(
    device: str, *, mode: str | None = None, guard=contextlib.nullcontext, micro: int = 2, **settings
) -> CapturedRun:
    """Train on batches that lie on the device already; ``guard`` is around each of the steady steps."""
    model = net().to(device)
    call = torch.compile(model, fullgraph=True, mode=mode) if mode is not None else model
    settings.setdefault("compiled", "observe")
    draw = torch.Generator().manual_seed(1)
    batches = [(torch.randn(4, 1, 6, 6, generator=draw).double(), torch.arange(4) % 3) for _ in range(26 * micro)]
    batches = [(x.to(device), y.to(device)) for x, y in batches]

    def program() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for step in range(26):
            with guard() if step in STEADY else contextlib.nullcontext():
                optimizer.zero_grad()
                for x, y in batches[step * micro : (step + 1) * micro]:
                    (F.cross_entropy(call(x), y) / micro).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

    return capture_run(program, model, probes=False, **settings)


@contextlib.contextmanager
def no_sync():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@KINDS
def test_a_session_never_waits_and_records_what_the_cpu_does(kind, monkeypatch):
    monkeypatch.setattr(device_module, "backend", lambda device: kind)
    compare(session("cuda", guard=no_sync), session("cpu"), facts=False)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_session_records_what_an_eager_one_does(mode):
    torch._dynamo.reset()
    seen, eager = session("cuda", mode=mode, guard=no_sync, micro=1), session("cuda", micro=1)
    torch._dynamo.reset()
    assert seen.scalars("loss") == pytest.approx(eager.scalars("loss"), rel=1e-6)
    for kind in ("activation", "output_grad", "param_grad"):
        for layer in ("0", "1", "4", "6"):
            for step in (2, 10, 20, 25):
                name = "weight" if kind == "param_grad" else ""
                there, here = (each.norm(kind, layer, name=name, step=step) for each in (seen, eager))
                assert there == pytest.approx(here, rel=1e-4), (kind, layer, step)


@pytest.mark.budget
@pytest.mark.parametrize("spoil", [math.nan, 1e6])
def test_a_light_step_never_waits_and_its_gradient_is_known_later(spoil, monkeypatch):
    monkeypatch.setattr(overhead_budget.Governor, "norms_every", lambda self, reading: 1)
    model, norms, bad = net().cuda(), [], 41
    x, y = torch.randn(4, 1, 6, 6, device="cuda", dtype=torch.float64), torch.arange(4, device="cuda") % 3

    def program() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(60):
            with no_sync() if step > 33 and step not in range(bad, bad + 20) else contextlib.nullcontext():
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                if step == bad:
                    model[4].weight.grad[1, 1] = spoil
                norms.append(torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().sqrt())
                optimizer.step()

    seen = capture_run(program, model, probes=False, overhead=1e-6, allowance_s=0.0)
    light = [step.index for step in seen.steps if step.light]
    assert bad in light
    np.testing.assert_allclose(
        seen.scalars("grad_norm")[: bad + 1], [float(norm) for norm in norms[: bad + 1]], rtol=1e-5
    )
    assert any(index not in light for index in range(bad + 1, bad + 12))
