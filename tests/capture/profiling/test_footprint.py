"""The memory of a step: bytes by layer, and peaks equal to a count by hand and to independent trackers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg
from neuraldbg.capture.profiling import footprint as footprint_module
from neuraldbg.capture.profiling import memory_records, recorded_step
from neuraldbg.nouns.facts.footprint import FootprintFact, LayerFootprint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = 14
FLOAT = 4


def footprint(model: nn.Module, step: Callable[[], object], steps: int = STEPS, **options: Any) -> FootprintFact:
    """Return the fact of a training."""
    with NeuralDbg(model, **{"profile": True, **options}) as dbg:
        for _ in range(steps):
            step()
    known = dbg.record().known(FootprintFact)
    assert known is not None
    return known


def layer(fact: FootprintFact, path: str) -> LayerFootprint:
    return next(one for one in fact.layers if one.layer == path)


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))


def squares(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Callable[[], None]:
    """Return a step whose loss needs no memory beside its output's."""

    def step() -> None:
        optimizer.zero_grad()
        out = model(x)
        out.backward(torch.ones_like(out))
        optimizer.step()

    return step


def test_peaks_of_a_perceptron_equal_a_count_by_hand() -> None:
    model, batch = mlp(), 256
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    fact = footprint(model, squares(model, optimizer, torch.randn(batch, 64)))
    weights = [64 * 128 + 128, 128 * 256 + 256, 256 + 1]
    parameters = sum(weights) * FLOAT
    counters = 6 * FLOAT
    outputs = [batch * n * FLOAT for n in (128, 128, 256, 256, 1)]
    assert fact.method == "CPU allocator"
    assert (fact.parameters, fact.gradients, fact.optimizer) == (parameters, parameters, 2 * parameters + counters)
    given = outputs[4]  # the gradient that backward is given
    # a rectifier keeps its output, Linear its input, and the program the last output
    assert fact.activations == outputs[1] + outputs[3] + outputs[4] + given
    # zero_grad comes first: no gradients while the forward pass runs
    base = 3 * parameters + counters
    peaks = [
        base + outputs[0],
        base + outputs[0] + outputs[1],
        base + outputs[1] + outputs[2],
        base + outputs[1] + outputs[2] + outputs[3],
        base + outputs[1] + outputs[3] + outputs[4],
    ]
    assert [layer(fact, str(i)).peak for i in range(5)] == peaks
    assert [layer(fact, str(i)).activations for i in range(5)] == outputs
    assert layer(fact, "").peak == max(peaks)
    assert layer(fact, "").activations == 0, "its output is that of its last layer"
    assert [layer(fact, str(i)).parameters for i in (0, 2, 4)] == [n * FLOAT for n in weights]
    # Backward of the second rectifier: the gradients of its output and of its input beside what the forward pass kept,
    # and the gradients of the last layer, whose output and its gradient the program still holds.
    last = (256 + 1) * FLOAT
    assert fact.peak == base + outputs[1] + outputs[3] + 2 * outputs[4] + 2 * outputs[3] + last
    assert fact.peak_at == "backward of '3'"
    assert layer(fact, "3").backward_peak == fact.peak == layer(fact, "").backward_peak


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.head = nn.Conv2d(16, 32, 3, stride=2), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.conv1(x)))
        return self.head(self.conv2(x).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.embed(ids)))


def images() -> torch.Tensor:
    return torch.randn(16, 3, 24, 24)


def tokens() -> torch.Tensor:
    return torch.arange(8 * 24).reshape(8, 24) % 50


@pytest.mark.parametrize("kind", [mlp, Attention])
def test_peak_equals_that_of_torch_s_tracker(kind: Any) -> None:
    """``MemTracker`` is a dispatch mode, below which torch adds a bias out of place: a few percent more."""
    torch.manual_seed(0)
    model, x = kind(), torch.randn(256, 64) if kind is mlp else tokens()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    step = squares(model, optimizer, x)
    fact = footprint(model, step)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with warnings.catch_warnings(), tracker:
        warnings.simplefilter("ignore")
        step()
    expected = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert fact.peak == pytest.approx(expected, rel=0.06)


def test_peak_equals_that_of_torch_s_profiler() -> None:
    """The same records by Kineto, added up on their own."""
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    step = squares(model, optimizer, images())
    fact = footprint(model, step)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()  # the releases of older gradients are not told
        with torch.profiler.record_function("measured"):
            step()
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    begin = next(event.start_ns() for event in events if event.name() == "measured")
    moves = [event.nbytes() for event in events if event.name() == "[memory]" and event.start_ns() >= begin]
    running = highest = 0
    for move in moves:
        running += move
        highest = max(highest, running)
    parameters = sum(p.numel() for p in model.parameters()) * FLOAT
    buffers = sum(b.untyped_storage().nbytes() for b in model.buffers())
    assert fact.peak == 3 * parameters + buffers + highest


def test_shared_weights_count_once_and_buffers_are_parameters() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(40, 16), nn.Linear(16, 40, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("scale", torch.ones(1000))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(ids)) * self.scale[0]

    model = Tied()
    fact = footprint(model, squares(model, torch.optim.SGD(model.parameters(), 0.1), torch.arange(8)))
    assert fact.parameters == (40 * 16 + 1000) * FLOAT
    assert fact.gradients == 40 * 16 * FLOAT
    assert layer(fact, "").parameters == 1000 * FLOAT
    assert layer(fact, "embed").parameters == 40 * 16 * FLOAT
    assert fact.optimizer == 0


def test_checkpointing_lowers_the_activations() -> None:
    class Deep(nn.Module):
        def __init__(self, *, saves: bool) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)) for _ in range(6)
            )
            self.saves = saves

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.saves else block(x)
            return x

    found = {}
    for saves in (False, True):
        torch.manual_seed(0)
        model, x = Deep(saves=saves), torch.randn(512, 64)
        found[saves] = footprint(model, squares(model, torch.optim.SGD(model.parameters(), 0.1), x))
    one = 512 * 64 * FLOAT
    given = one  # the gradient that backward is given
    assert found[False].activations == 6 * 2 * one + given, "outputs of Tanh, and inputs of the next block"
    state = torch.get_rng_state().numel()  # each checkpoint keeps the generator's
    # the inputs of blocks but for the program's own, and the last output
    assert found[True].activations == 6 * (one + state) + given
    assert found[True].peak is not None
    assert found[False].peak is not None
    assert found[True].peak < found[False].peak


def test_default_reads_sizes_and_records_no_allocation() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    fact = footprint(model, squares(model, optimizer, torch.randn(32, 64)), profile=None)
    parameters = sum(p.numel() for p in model.parameters()) * FLOAT
    assert (fact.method, fact.peak, fact.activations) == ("sizes", None, None)
    assert {one.activations for one in fact.layers} == {None}
    assert (fact.parameters, fact.gradients) == (parameters, parameters)
    assert fact.optimizer == 2 * parameters + 6 * FLOAT


def test_default_tells_the_outputs_of_the_innermost_layers_that_were_read() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(64, 48), nn.Tanh()), nn.Linear(48, 8))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(32, 64)
    with NeuralDbg(model) as dbg:
        for _ in range(6):
            for _ in range(2):  # micro-batches
                model(x).square().mean().backward()
            optimizer.step()
    profile = dbg.profile()
    assert profile.outputs == 2 * 32 * (48 + 48 + 8) * FLOAT, "blocks hand on what their last layer returned"
    assert profile.footprint is not None
    assert profile.footprint.activations is None


@pytest.mark.parametrize("kind", [mlp, ConvNet, Attention])
def test_training_is_bitwise_the_same(kind: Any) -> None:
    data = {mlp: lambda: torch.randn(32, 64), ConvNet: images, Attention: tokens}[kind]

    def train(*, watched: bool) -> tuple[list[torch.Tensor], torch.Tensor]:
        torch.manual_seed(5)
        model, x = kind(), data()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        dbg = NeuralDbg(model, profile=True) if watched else None
        if dbg is not None:
            dbg.start()
        for _ in range(STEPS):
            loss = model(F.dropout(x, 0.1) if x.is_floating_point() else x).square().cumprod(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if dbg is not None:
            dbg.stop()
            known = dbg.record().known(FootprintFact)
            assert known is not None
            assert known.peak is not None
        return [p.detach().clone() for p in model.parameters()], torch.get_rng_state()

    bare, state = train(watched=False)
    seen, after = train(watched=True)
    assert all(torch.equal(a, b) for a, b in zip(bare, seen, strict=True))
    assert torch.equal(state, after)


def test_program_may_use_its_own_profiler_meanwhile() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    step, tables = squares(model, optimizer, torch.randn(16, 64)), []

    def profiled() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            step()
        tables.append(profiler.key_averages())

    fact = footprint(model, profiled, 24)
    assert len(tables) == 24
    assert all(any(row.key == "aten::addmm" for row in table) for table in tables)
    assert fact.method == "sizes", "the program's profiler has ended every record"
    assert not torch.autograd._profiler_enabled()


def test_end_within_the_recorded_step_leaves_nothing() -> None:
    for steps in range(8, 14):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        footprint(model, squares(model, optimizer, torch.randn(8, 64)), steps)
        assert not torch.autograd._profiler_enabled()
        assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


def test_several_optimizers_make_one_step() -> None:
    first, second = mlp(), mlp()
    both = nn.ModuleDict({"first": first, "second": second})
    optimizers = [torch.optim.SGD(one.parameters(), 1e-3) for one in (first, second)]
    x = torch.randn(16, 64)

    def step() -> None:
        for model, optimizer in zip((first, second), optimizers, strict=True):
            squares(model, optimizer, x)()

    fact = footprint(both, step)
    assert fact.method == "CPU allocator"
    assert layer(fact, "first.0").peak is not None
    assert layer(fact, "second.0").peak is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_records_nothing() -> None:
    """A data loader's workers are forked while a step is recorded, and would keep the record for ever."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    plain, seen = squares(model, optimizer, torch.randn(8, 64)), []

    def step() -> None:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"1" if torch.autograd._profiler_enabled() else b"0")
            os._exit(0)
        os.waitpid(child, 0)
        seen.append((torch.autograd._profiler_enabled(), os.read(reading, 1)))
        os.close(reading)
        os.close(writing)
        plain()

    footprint(model, step)
    assert any(parent for parent, _ in seen), "some steps were recorded"
    assert all(child == b"0" for _, child in seen)


@pytest.mark.slow
def test_nothing_is_written_to_standard_error(tmp_path: Path) -> None:
    """torch writes there at the first release that its profiler has not seen allocated."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        from torch import nn
        from neuraldbg import NeuralDbg

        model = nn.Linear(8, 8)
        optimizer = torch.optim.Adam(model.parameters())
        with NeuralDbg(model, profile=True) as dbg:
            for _ in range(20):
                loss = model(torch.ones(4, 8)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(next(fact.value["method"] for fact in reversed(dbg.record().facts) if fact.key == "footprint"))
        """),
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout == "CPU allocator\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_compiled_model_stays_compiled() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(16, 64)
    with NeuralDbg(compiled, profile=True) as dbg:
        for _ in range(9):
            squares(compiled, optimizer, x)()
        compilations = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        for _ in range(8):
            squares(compiled, optimizer, x)()
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compilations
    known = dbg.record().known(FootprintFact)
    assert known is not None
    assert known.peak is not None
    torch._dynamo.reset()


def test_what_lies_on_a_device_beside_the_model_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is a stand-in: its allocator holds 7 MiB beside the model, and is told of what the CPU's is."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    parameters, data = sum(p.numel() for p in model.parameters()) * FLOAT, 7 * 2**20
    # Weights, two moments and counters, and of the step before its gradients, and its output, which the program holds.
    at_begin = data + 4 * parameters + 6 * FLOAT + 32 * FLOAT
    monkeypatch.setattr(recorded_step, "device_bytes", lambda: at_begin)
    monkeypatch.setattr(footprint_module, "devices_in_use", lambda: [0])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 99 * 2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=2**30))
    peaks = memory_records.peaks
    monkeypatch.setattr(memory_records, "peaks", lambda records, events, device: peaks(records, events, device=False))
    fact = footprint(model, squares(model, optimizer, torch.randn(32, 64)))
    assert (fact.method, fact.beside, fact.whole_run, fact.device_total) == ("CUDA allocator", data, False, 2**30)
    assert fact.peak is not None
    assert fact.peak > at_begin
    unrecorded = footprint(model, squares(model, optimizer, torch.randn(32, 64)), profile=None)
    assert (unrecorded.peak, unrecorded.whole_run, unrecorded.beside) == (99 * 2**20, True, None)
    monkeypatch.setattr(footprint_module, "devices_in_use", lambda: [0, 1])
    several = footprint(model, squares(model, optimizer, torch.randn(32, 64)), profile=None)
    assert (several.method, several.peak, several.device_total) == (
        "CUDA allocators of 2 devices together", None, None,
    )  # fmt: skip


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_peak_on_a_device_is_that_of_its_allocator() -> None:
    model = mlp().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    step = squares(model, optimizer, torch.randn(4096, 64, device="cuda"))
    fact = footprint(model, step)
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    assert fact.method == "CUDA allocator"
    assert fact.peak == pytest.approx(torch.cuda.max_memory_allocated(), rel=0.01)
    assert fact.device_total == torch.cuda.get_device_properties(0).total_memory
