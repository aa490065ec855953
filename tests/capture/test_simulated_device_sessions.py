"""Whole sessions on a simulated device (``simulated_device.py``): the same record as on the CPU, and nothing waits.

With Triton's kernels in the interpreter these run once more in a process of their own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import CapturedRun, capture_run
from tests.capture.simulated_device import KIND, Asking, SimulatedDevice, compare
from tests.families import some
from torch import Tensor, nn

from neuraldbg import NeuralDbg
from neuraldbg.capture import Capture
from neuraldbg.capture.loop import setting_changes
from neuraldbg.capture.readers.data.input_ledger import TOGETHER
from neuraldbg.capture.statistics.device import async_copy
from neuraldbg.capture.steps import overhead_budget
from neuraldbg.config import CaptureSettings
from neuraldbg.errors import TrainingHalted

if TYPE_CHECKING:
    from collections.abc import Callable

TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = KIND == "triton"
STEPS = 4 if INTERPRETED else 24


class Net(nn.Module):
    """A small convolutional net with batch norm, in-place activation and dropout-free head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.relu(self.norm(self.conv(x))).mean((2, 3)))


class Tokens(nn.Module):
    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(13, 6, sparse=sparse), nn.Linear(6, 13)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.embed(tokens))


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def vectors() -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 8)
    return x, (x.sum(1) > 0).long()


def simple(make: Callable[[], nn.Module], batch: Callable[[], tuple[Tensor, Tensor]], opt=torch.optim.Adam, micro=1):
    model = make()

    def program() -> None:
        optimizer = opt(model.parameters(), lr=1e-2)
        for _ in range(STEPS):
            optimizer.zero_grad()
            for _ in range(micro):
                x, y = batch()
                (F.cross_entropy(model(x).flatten(0, -2), y.flatten()) / micro).backward()
            optimizer.step()

    return program, [model]


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 1, 6, 6), torch.randint(3, (4,))


def tokens() -> tuple[Tensor, Tensor]:
    some = torch.randint(13, (4, 6))
    return some[:, :-1], some[:, 1:]


def closure():
    model = mlp()

    def program() -> None:
        x, y = vectors()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

        def evaluate() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(min(STEPS, 6)):
            optimizer.step(evaluate)

    return program, [model]


def two_optimizers():
    a, b = mlp(), nn.Linear(3, 3)

    def program() -> None:
        first = torch.optim.SGD(a.parameters(), lr=0.1)
        second = torch.optim.Adam(b.parameters(), lr=0.01)
        for _ in range(STEPS):
            x, y = vectors()
            first.zero_grad()
            second.zero_grad()
            F.cross_entropy(b(a(x)), y).backward()
            first.step()
            second.step()

    return program, [a, b]


def unscaled_inside():
    """As a fused optimizer with a GradScaler: it divides the gradients inside of its step."""
    model = mlp()

    class Fused(torch.optim.SGD):
        def step(self, closure=None):
            scale, self.grad_scale = self.grad_scale, None
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.div_(scale)
            super().step(closure)
            scale.mul_(2)  # as a scaler's update() does, before the step is closed

    def program() -> None:
        optimizer = Fused(model.parameters(), lr=0.1)
        for step in range(STEPS):
            x, y = vectors()
            optimizer.zero_grad()
            optimizer.grad_scale = torch.tensor(256.0 * 2 ** (step % 3))
            (F.cross_entropy(model(x), y) * optimizer.grad_scale).backward()
            optimizer.step()

    return program, [model]


def scaler():
    model = mlp()

    def program() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaling = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        for step in range(STEPS):
            x, y = vectors()
            optimizer.zero_grad()
            scaling.scale(F.cross_entropy(model(x), y) * (math.inf if step == 3 else 1.0)).backward()
            scaling.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaling.step(optimizer)
            scaling.update()

    return program, [model]


def bad_numbers():
    """A NaN of one step in a gradient, and an infinite weight."""
    model = mlp()

    def program() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            x, y = vectors()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if step == 2:
                model[2].weight.grad[3, 4] = math.nan
            optimizer.step()
            with torch.no_grad():
                for p in model.parameters():
                    p.nan_to_num_(0.0)
                if step == 3:
                    model[0].bias[2] = math.inf
                    model[0].bias[1] = -1e30

    return program, [model]


def replaced():
    """Weights that are replaced, frozen, turned around in memory and cleared, and gradients that come and go."""
    model = mlp()

    def program() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            x, y = vectors()
            optimizer.zero_grad()
            if step % 4 == 1:
                model[2].weight.data = model[2].weight.data.clone()
            if step % 4 == 2:
                model[2].weight.data = model[2].weight.data.t().contiguous().t()
            model[0].bias.requires_grad_(step % 3 != 1)
            F.cross_entropy(model(x), y).backward()
            if step % 5 == 3:
                model[4].bias.grad = torch.ones(1).expand(3)
            optimizer.step()

    return program, [model]


PROGRAMS = {
    "mlp": lambda: simple(mlp, vectors),
    "half": lambda: simple(lambda: mlp().bfloat16(), lambda: (vectors()[0].bfloat16(), torch.randint(3, (16,)))),
    "conv": lambda: simple(Net, images),
    "micro-batches": lambda: simple(mlp, vectors, micro=3),
    "tied and dense": lambda: simple(lambda: Tokens(sparse=False), tokens),
    "sparse": lambda: simple(lambda: Tokens(sparse=True), tokens, opt=torch.optim.SGD),
    "closure": closure,
    "two optimizers": two_optimizers,
    "unscaled inside": unscaled_inside,
    "scaler": scaler,
    "bad numbers": bad_numbers,
    "replaced": replaced,
}


def run(name: str, **settings: object) -> CapturedRun:
    torch.manual_seed(0)
    program, models = PROGRAMS[name]()
    return capture_run(program, *models, **settings)


@pytest.mark.parametrize("delay", some([1, 0, 5], 3))
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_record_is_that_of_the_cpu(name, delay, monkeypatch):
    near = run(name, probes=False)
    with monkeypatch.context() as patch:
        far = SimulatedDevice(patch, delay)
        away = run(name, probes=False)
    compare(away, near)
    assert far.waits <= delay, "only the end of the run may wait"


def test_one_copy_a_step_and_none_waits(monkeypatch):
    torch.manual_seed(0)
    model = mlp()
    far, asking = SimulatedDevice(monkeypatch, 1), Asking(monkeypatch)
    optimizer = torch.optim.Adam(model.parameters())

    def program() -> None:
        for step in range(24):
            x, y = vectors()
            before = far.sent
            # In the first steps, and where facts are read, leftovers are looked for and targets are copied.
            with asking if step > 16 else contextlib.nullcontext():
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            if step > 3:
                assert far.sent - before == (2 if step % TOGETHER == TOGETHER - 1 else 1)  # and what batches look like
        assert far.waits == 0

    seen = capture_run(program, model, probes=False)
    assert len(seen.steps) == 24
    assert asking.found == []


@pytest.mark.skipif(INTERPRETED, reason="few steps are taken there")
@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"closure", "scaler", "unscaled inside"}))
def test_no_kind_of_program_is_made_to_wait_in_a_usual_step(name, monkeypatch):
    """In the first steps, and where facts are read, leftovers are looked for and targets are copied. Of what is left
    out here a closure ends before, a scaler asks, and a loss is multiplied by what would be on the CPU. Facts are read
    when a setting changes, too: one program does so all the time, and its settings are not compared.
    """
    monkeypatch.setattr(setting_changes.SettingChanges, "check", lambda *_, **__: False)
    SimulatedDevice(monkeypatch, 1)
    watching: list[Capture] = []
    made = Capture.__init__

    def note(self: Capture, *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)
        watching.append(self)

    monkeypatch.setattr(Capture, "__init__", note)
    asking = Asking(monkeypatch, lambda: bool(watching) and watching[0].steps in range(22, STEPS))
    asking.on = True
    run(name, probes=False)
    asking.on = False
    assert asking.found == []


BAD = 61
"""A light step whose loss or gradient is not as the others, and of which nothing is left in the weights."""


def lightly(spoil: str = "") -> tuple[CapturedRun, list[float], list[float]]:
    """Train with light steps, but for those that must be full. Returns the losses and the gradients' norms, too."""
    torch.manual_seed(0)
    model, losses, norms = mlp(), [], []

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(100):
            x, y = vectors()
            before = [p.detach().clone() for p in model.parameters()]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if step == BAD:
                loss = loss * {"a loss": 1e4, "a NaN loss": math.nan}.get(spoil, 1.0)
            loss.backward()
            if step == BAD:
                model[2].weight.grad[1, 1] = {"a gradient": 1e6, "a NaN gradient": math.nan}.get(spoil, 0.0)
            losses.append(loss.item())
            norms.append(math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters())))
            optimizer.step()
            if step == BAD:
                with torch.no_grad():
                    torch._foreach_copy_(list(model.parameters()), before)

    return capture_run(train, model, probes=False, overhead=1e-6, allowance_s=0.0), losses, norms


@pytest.mark.budget
@pytest.mark.skipif(INTERPRETED, reason="a program of the interpreter takes milliseconds: see the next test")
@pytest.mark.parametrize("delay", [0, 1, 3])
@pytest.mark.parametrize("spoil", ["", "a loss", "a NaN loss", "a gradient", "a NaN gradient"])
def test_a_light_step_is_known_a_little_later(spoil, delay, monkeypatch):
    monkeypatch.setattr(overhead_budget.Governor, "norms_every", lambda self, reading: 1)
    far = SimulatedDevice(monkeypatch, delay)
    seen, losses, norms = lightly(spoil)
    assert far.waits <= delay
    light = [step.index for step in seen.steps if step.light]
    assert [step.index for step in seen.steps] == list(range(100))
    assert len(light) > (70 if spoil else 85)
    np.testing.assert_allclose(seen.scalars("loss"), losses, rtol=1e-5)
    np.testing.assert_allclose(seen.scalars("grad_norm"), norms, rtol=1e-5)
    assert BAD in light
    alarmed = [index for index in range(BAD + 1, BAD + 12) if index not in light and index != 64]
    if spoil:
        assert BAD + 1 + delay <= min(alarmed) <= BAD + 2 + delay
    else:
        assert not alarmed


@pytest.mark.budget
@pytest.mark.skipif(INTERPRETED, reason="a program of the interpreter takes milliseconds")
@pytest.mark.parametrize("spoil", ["a loss", "a gradient", "a NaN gradient"])
def test_a_spike_is_seen_where_not_all_gradients_are_read_at_each_step(spoil, monkeypatch):
    monkeypatch.setattr(overhead_budget.Governor, "norms_every", lambda self, reading: 8)
    far = SimulatedDevice(monkeypatch, 1)
    seen, _, norms = lightly(spoil)
    assert far.waits <= 1
    at_bad = seen.steps[BAD].scalars["grad_norm"]
    assert math.isnan(at_bad) if math.isnan(norms[BAD]) else at_bad > 100 * max(norms[20:60])
    told = [step.index for step in seen.steps if step.light and "grad_norm" in step.scalars]
    assert len(told) < 30
    assert any(not step.light for step in seen.steps[BAD + 1 : BAD + 4])


def test_the_gradients_of_a_light_step_in_the_interpreter(monkeypatch):
    """Blocks that move on from step to step, over gradients of different sizes."""
    SimulatedDevice(monkeypatch, 0)
    from neuraldbg.capture.guest.weak_references import TensorRef
    from neuraldbg.capture.parameters.device_gradient_norm import DeviceNorm, squares

    tensors = [torch.zeros(n, requires_grad=True) for n in (40_000, 3, 1024, 5000)]
    for tensor, many in zip(tensors, (40_000, 3, 1024, 5000), strict=True):
        tensor.grad = torch.ones(many)
    norm = DeviceNorm([TensorRef(tensor) for tensor in tensors], 1024)
    for _ in range(3):
        total, bad = squares(norm.read().numpy())
        assert total == pytest.approx(46_027)
        assert bad == 0
    tensors[0].grad[20_000] = math.inf
    tensors[2].grad = None
    turns = [squares(norm.read().numpy())[1] for _ in range(80)]
    assert sum(turns) >= 1
    if KIND == "triton":
        assert sum(turns) <= 5  # blocks are read in turn, all of them within some steps


def test_a_session_that_judges_waits_and_halts_in_time(monkeypatch):
    SimulatedDevice(monkeypatch, 5)
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dbg = NeuralDbg(model, halt=True, probes=False)
    before: list[Tensor] = []

    def train() -> None:
        for step in range(10):
            x, y = vectors()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if step == 6:
                model[2].weight.grad[0, 0] = math.nan
            before[:] = [p.detach().clone() for p in model.parameters()]
            optimizer.step()

    with pytest.raises(TrainingHalted) as halted, dbg:
        train()
    assert halted.value.step == 6
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    run = dbg.record()
    assert list(run.scalar("loss").steps) == list(range(7))
    assert ("2", 6) in [(event.layer, event.first_step) for event in run.events if event.kind == "nonfinite_gradient"]


@pytest.mark.budget
def test_a_light_step_is_judged_by_its_own_gradients(monkeypatch):
    def judged() -> list[dict[str, float]]:
        torch.manual_seed(0)
        program, models = two_optimizers()
        found: list[dict[str, float]] = []
        settings = CaptureSettings(probes=False, overhead=1e-6, allowance_s=0.0)
        capture = Capture(
            settings, lambda *_: None, judge=lambda stream, loss, norms: found.append({"": loss, **norms})
        )
        capture.start()
        for model in models:
            capture.models.watch(model)
        program()
        capture.stop()
        return found

    near = judged()
    SimulatedDevice(monkeypatch, 1)
    away = judged()
    assert len(away) == len(near) == 2 * STEPS
    for there, here in zip(away, near, strict=True):
        assert there == pytest.approx(here, rel=1e-5)


def test_judged_closures_count_no_gradient_twice(monkeypatch):
    def both_runs() -> CapturedRun:
        torch.manual_seed(0)
        program, models = closure()
        found = CapturedRun()
        settings = CaptureSettings(probes=False)

        def emit(step, layout):
            found.steps.append(step)
            found.layouts.append(layout)

        capture = Capture(settings, emit, judge=lambda stream, loss, norms: None)
        capture.start()
        capture.models.watch(models[0])
        program()
        capture.stop()
        return found

    near = both_runs()
    with monkeypatch.context() as patch:
        SimulatedDevice(patch, 1)
        far = both_runs()
    compare(far, near)


def test_what_is_under_way_when_a_program_raises_is_recorded(monkeypatch):
    SimulatedDevice(monkeypatch, 40)
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dbg = NeuralDbg(model, probes=False)

    def train() -> None:
        for step in range(9):
            x, y = vectors()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if step == 7:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), dbg:
        train()
    run = dbg.record()
    assert list(run.scalar("loss").steps) == list(range(8))
    assert list(run.scalar("grad_norm").steps) == list(range(8))
    assert run.history.read.all()


def test_what_was_recorded_before_a_device_died_is_kept(monkeypatch):
    """As after an index out of range in a kernel: all that is asked of the device from then on raises."""
    monkeypatch.delenv("NEURALDBG_STRICT")
    SimulatedDevice(monkeypatch, 1)
    torch.manual_seed(0)
    model, dead = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dbg = NeuralDbg(model, probes=False)
    arrived, wait, made = async_copy.Sent.arrived, async_copy.Sent.wait, async_copy.Sent.__init__

    def unless_dead(original: Callable[..., object]) -> Callable[..., object]:
        def asked(*args: object) -> object:
            if dead:
                raise RuntimeError("CUDA error: device-side assert triggered")
            return original(*args)

        return asked

    for name, original in (("arrived", arrived), ("wait", wait), ("__init__", made)):
        monkeypatch.setattr(async_copy.Sent, name, unless_dead(original))

    def train() -> None:
        for step in range(9):
            if step == 8:
                dead.append(True)
                raise RuntimeError("CUDA error: device-side assert triggered")
            x, y = vectors()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    with pytest.raises(RuntimeError, match="device-side"), dbg:
        train()
    run = dbg.record()
    assert list(run.scalar("backwards").steps) == list(range(8))
    assert list(run.scalar("loss").steps) == list(range(7))


def test_what_never_seems_to_arrive_is_waited_for_some_day(monkeypatch):
    from neuraldbg.capture.steps import delivery

    monkeypatch.setattr(delivery, "MOST_LATE", 4)
    far = SimulatedDevice(monkeypatch, 10**6)
    seen = run("mlp", probes=False)
    assert [step.index for step in seen.steps] == list(range(STEPS))
    assert far.waits in range(STEPS, STEPS + 3)  # and, twice, for what batches look like


def test_a_breakpoint_stops_at_its_step(monkeypatch):
    SimulatedDevice(monkeypatch, 3)
    torch.manual_seed(0)
    model, stopped = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, probes=False) as dbg:
        dbg.add_breakpoint("nonfinite_gradient", lambda event: stopped.append((event.first_step, now)))
        for now in range(6):
            x, y = vectors()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if now == 4:
                model[2].weight.grad[0, 0] = math.nan
            optimizer.step()
    assert stopped[0] == (4, 4)


def test_a_hook_manager_alone_waits_for_what_it_is_asked(monkeypatch):
    from neuraldbg.capture.layers.hook_manager import HookManager

    def norms() -> list[dict[str, float]]:
        torch.manual_seed(0)
        model, found = mlp(), []
        observer = HookManager().attach(model)
        for step in range(4):
            observer.reset_step()
            for _ in range(2):
                x, y = vectors()
                F.cross_entropy(model(x), y).backward()
            if step != 1:  # a step that nobody asks about leaves nothing behind
                found += [observer.grad_norms, observer.act_norms, observer.grad_norms]
        observer.detach()
        return found

    near = norms()
    SimulatedDevice(monkeypatch, 2)
    for there, here in zip(norms(), near, strict=True):
        assert there == pytest.approx(here, rel=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not TRITON, reason="Triton is not installed")
@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_all_of_this_with_the_kernels_in_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
    done = subprocess.run(
        [*command, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
