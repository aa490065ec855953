"""Times of layers and parts of a step: they sum to the step's, and whatever a program does is left as it is."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.optim.optimizer as torch_optimizer
from tests.capture.profiling.profiled_run import layers_of, timing_of, train
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest.guard import StepMode
from neuraldbg.capture.profiling.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable

TRIES = 6
"""Of a comparison of two times: the machine may be busy with something else."""


def left_on(model: nn.Module) -> int:
    """Return the number of hooks on the modules of a model."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hooks_always_called")
    return sum(len(getattr(module, name)) for module in model.modules() for name in names)


class Sleeps(nn.Module):
    """A layer that takes a known time, forward and backward."""

    def __init__(self, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.times = forward_s, backward_s

    def forward(self, x: Tensor) -> Tensor:
        return _Slow.apply(x * self.weight, *self.times)


class _Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(ctx.backward_s)
        return grads[0], None, None


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(Sleeps(0.004, 0.008), Sleeps(0.002, 0.001))
        self.last = Sleeps(0.001, 0.003)

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.003)
        return self.last(self.inner(x))


def near(measured: float | None, known: float) -> bool:
    return measured is not None and 0.95 * known <= measured <= 1.6 * known + 0.002


def test_the_time_of_each_layer_is_its_own() -> None:
    for _ in range(TRIES):
        layers = layers_of(train(Nested(), lambda: torch.ones(1), steps=10))
        found = {path: (layers[path].forward_s, layers[path].own_forward_s, layers[path].backward_s) for path in layers}
        known = {
            "": (0.010, 0.003, 0.012),
            "inner": (0.006, 0.0, 0.009),
            "inner.0": (0.004, 0.004, 0.008),
            "inner.1": (0.002, 0.002, 0.001),
            "last": (0.001, 0.001, 0.003),
        }
        if all(near(one, real) for path in known for one, real in zip(found[path], known[path], strict=True)):
            break
    else:
        pytest.fail(f"{found}")
    assert [layers[path].calls for path in known] == [1] * 5
    assert layers["last"].inputs == ("float32[1]",)


class TimedDescent(torch.optim.Optimizer):
    """Times its steps itself."""

    took = 0.0

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        at = time.perf_counter()
        for parameter in self.param_groups[0]["params"]:
            for _ in range(5):
                parameter.add_(parameter.grad, alpha=-0.001)
        self.took = time.perf_counter() - at


class Timed:
    """A training that times the parts of its steps itself."""

    def __init__(self) -> None:
        self.model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(6)))
        self.optimizer = TimedDescent(self.model.parameters())
        self.inputs = torch.ones(256, 512)

    def step(self) -> dict[str, float]:
        self.optimizer.zero_grad()
        begin = time.perf_counter()
        output = self.model(self.inputs)
        forward = (middle := time.perf_counter()) - begin
        loss = output.square().mean()
        loss_s = (at := time.perf_counter()) - middle
        loss.backward()
        backward = time.perf_counter() - at
        self.optimizer.step()
        took = self.optimizer.took
        total = forward + loss_s + backward + took
        return {"forward": forward, "backward": backward, "optimizer": took, "total": total}


@pytest.mark.budget
def test_times_of_layers_and_parts_sum_to_those_of_the_step_within_a_tenth() -> None:
    """The oracle are the program's own clocks, in the same steps: whatever else the machine does, both see it."""
    program, real, light = Timed(), [], []
    with NeuralDbg(program.model, profile=True, settings={"capture": {"allowance_s": 0.0}}) as dbg:
        timer = next(part for part in dbg._profile._parts if isinstance(part, Timing))
        sampled, switch = timer._sampled, dbg._capture.scene.switch
        for _ in range(500):
            timed, mode = sampled.on and not sampled.counts, switch.mode
            parts = program.step()
            if timed:
                real.append(parts)
                light.append(mode is StepMode.LIGHT)
            if sum(light) == 5:
                break
    timing = timing_of(dbg)
    named = (timing.data_s, timing.forward_s, timing.backward_s, timing.optimizer_s, timing.evaluation_s)
    assert sum(part or 0.0 for part in (*named, timing.other_s)) == pytest.approx(timing.step_s, rel=1e-6)
    own = [sum(one.own_forward_s for one in timing.layers), sum(one.own_backward_s or 0.0 for one in timing.layers)]
    assert own[0] == pytest.approx(timing.forward_s, rel=1e-6)
    assert 0.9 * (timing.backward_s or 0.0) < own[1] <= (timing.backward_s or 0.0)
    each = [events.times(spans) for events, spans in timer._times]
    assert len(each) == len(real)
    for name in ("forward", "backward", "optimizer", "total"):
        measured = [one.total if name == "total" else one.phases[name] for one in each]
        ratios = [one / parts[name] for one, parts in zip(measured, real, strict=True)]
        # The clocks of the program have what a full step reads in its layers, and ours leave it out.
        ratios = list(itertools.compress(ratios, light))
        assert statistics.median(ratios) == pytest.approx(1.0, abs=0.1), (name, ratios)


def test_without_a_profile_nothing_is_measured() -> None:
    with NeuralDbg(model := nn.Linear(3, 2), profile=False) as dbg:
        for _ in range(12):
            model(torch.ones(4, 3)).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
    profile = dbg.profile()
    assert profile.timing is None
    assert "No step was timed" in profile.notes[0]
    assert not any(fact.key == "timing" for fact in dbg.record().facts)


def test_light_steps_of_native_code_are_sampled_too() -> None:
    """How often depends on what a step and a sample take on this machine: the training goes on until some were."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, profile=True, settings={"capture": {"allowance_s": 0.0}}) as dbg:
        part = next(part for part in dbg._profile._parts if isinstance(part, Timing))
        for step in range(20_000):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            if step > 200 and part._steps > 5 and part._step > 100:
                break
    timing = timing_of(dbg)
    assert timing.last > 100
    assert timing.steps > 5
    assert list(layers_of(timing)) == ["", "0", "1", "2"]


def test_default_samples_three_steps_once_they_do_not_get_faster() -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for step in range(60):
            time.sleep(0.05 / (step + 1) if step < 15 else 0.003)
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
    timing = timing_of(dbg)
    assert timing.steps == 3
    assert timing.first > 8
    assert timing.last >= timing.first + 6


def test_a_model_can_be_copied_and_saved_within_a_sampled_step() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, profile=True) as dbg:
        for _ in range(8):
            x = model(torch.ones(2, 4))
            copied = copy.deepcopy(model)
            assert left_on(copied) == 0
            assert torch.equal(copied(torch.ones(2, 4)), pickle.loads(pickle.dumps(model))(torch.ones(2, 4)))
            torch.save(model, held := io.BytesIO())
            held.seek(0)
            assert left_on(torch.load(held, weights_only=False)) == 0
            x.sum().backward()
            optimizer.step()
    assert timing_of(dbg).layers
    assert left_on(model) == 0


class Fails(nn.Module):
    """Raises in every second outermost call, and inside of a call that catches it."""

    def __init__(self) -> None:
        super().__init__()
        self.good, self.bad, self.calls = nn.Linear(3, 3), nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        try:
            self.bad(x)
        except RuntimeError:
            x = self.good(x)
        if self.calls % 2:
            raise ValueError
        return self.good(x)


def test_calls_that_raise_end_with_the_call_around_them() -> None:
    model = Fails()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, profile=True) as dbg:
        for _ in range(10):
            with pytest.raises(ValueError):
                model(torch.ones(2, 3))
            time.sleep(0.005)
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    timing = timing_of(dbg)
    layers = layers_of(timing)
    assert (layers[""].calls, layers["good"].calls) == (2, 3)
    assert (timing.forward_s or 0.0) < 0.005 < (timing.other_s or 0.0)  # the sleep is in no call


class Again(nn.Module):
    """Calls itself, one layer three times, and checkpoints another."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.three, self.kept, self.reentrant = nn.Linear(3, 3), nn.Linear(3, 3), reentrant

    def forward(self, x: Tensor, depth: int = 1) -> Tensor:
        for _ in range(3):
            x = self.three(x).relu_()
        x = checkpoint(self.kept, x, use_reentrant=self.reentrant)
        return self(x, depth - 1) if depth else x


@pytest.mark.parametrize("reentrant", [True, False])
def test_layers_within_themselves_and_recomputed_ones(reentrant: bool) -> None:
    model = Again(reentrant=reentrant)
    layers = layers_of(train(model, lambda: torch.ones(2, 3).requires_grad_()))
    # Reentrant checkpointing calls its layer without gradients, and once more in the backward pass.
    assert {path: one.calls for path, one in layers.items()} == {
        "": 2,
        "three": 6,
        **({} if reentrant else {"kept": 2}),
    }
    assert layers[""].forward_s >= layers["three"].forward_s + layers[""].own_forward_s - 1e-9
    assert layers[""].backward_s is not None
    assert layers[""].backward_s >= (layers["three"].backward_s or 0.0)


def test_a_compiled_model_is_timed_as_a_whole() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, profile=True) as dbg:
        for _ in range(10):
            compiled(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    timing = timing_of(dbg)
    assert [one.layer for one in timing.layers] == [""]
    assert timing.layers[0].own_forward_s > 0
    assert (timing.layers[0].own_backward_s or 0.0) > 0


def test_closures_two_optimizers_and_gradients_by_hand() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    with NeuralDbg(model, profile=True) as dbg:
        for _ in range(8):
            optimizer.step(closure)
    timing = timing_of(dbg)
    assert layers_of(timing)["Linear"].calls >= 1
    assert min(timing.forward_s or 0.0, timing.backward_s or 0.0, timing.optimizer_s or 0.0) > 0

    one, two = nn.Linear(3, 3), nn.Linear(3, 1)
    both = nn.Sequential(one, two)
    first, second = (torch.optim.SGD(part.parameters(), lr=0.1) for part in both)
    with NeuralDbg(both, profile=True) as dbg:
        for _ in range(8):
            loss = both(torch.ones(2, 3)).sum()
            grads = torch.autograd.grad(loss, list(both.parameters()), retain_graph=True)
            for parameter, grad in zip(both.parameters(), grads, strict=True):
                parameter.grad = grad
            first.step()
            both(torch.ones(2, 3)).sum().backward()
            second.step()
    layers = layers_of(timing_of(dbg))
    assert {path: one.calls for path, one in layers.items()} == {"": 2, "0": 2, "1": 2}
    assert all((one.own_backward_s or 0.0) > 0 for path, one in layers.items() if path)


def test_other_hooks_of_an_optimizer_and_other_threads_are_not_disturbed() -> None:
    model, other = nn.Linear(3, 1), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told: list[int] = []
    stop = threading.Event()

    def beside() -> None:
        while not stop.is_set():
            other(torch.ones(2, 3)).sum().backward()
            time.sleep(0.001)

    thread = threading.Thread(target=beside)
    with NeuralDbg(model):
        handle = torch_optimizer.register_optimizer_step_post_hook(lambda *_: told.append(1))
        thread.start()
        try:
            for _ in range(20):
                F.mse_loss(model(torch.ones(2, 3)), torch.zeros(2, 1)).backward()
                optimizer.step()
        finally:
            stop.set()
            thread.join()
            handle.remove()
    assert len(told) == 20


class SlowData(Dataset[Tensor]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self.seconds)
        return torch.full((3,), float(index))


def train_on(data: SlowData, work_s: float, **loader: Any) -> Any:
    model = nn.Sequential(nn.Linear(3, 3), Sleeps(work_s, 0.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with NeuralDbg(model, profile=True) as dbg:
        for batch in DataLoader(data, batch_size=4, **loader):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    return dbg.profile()


def test_waiting_for_the_data_loader_is_measured_and_named_with_its_share() -> None:
    for _ in range(TRIES):
        profile = train_on(SlowData(0.002), work_s=0.008)  # 8 ms of data, 8 ms of work
        found = [one for one in profile.bottlenecks if one.kind == "data_loading"]
        if found and 0.4 < (found[0].share or 0.0) < 0.6:
            break
    else:
        pytest.fail(f"{profile}")
    assert found[0].text.startswith(f"{found[0].share:.0%} of the step, ")
    assert found[0].text.endswith(" ms, waits for the data loader (num_workers=0)")
    assert profile.timing.workers == 0


def test_the_workers_of_a_data_loader_are_seen() -> None:
    profile = train_on(SlowData(0.0), work_s=0.001, num_workers=1)
    assert profile.timing.workers == 1


def dropout_net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.BatchNorm1d(6), nn.Linear(6, 2))


@pytest.mark.parametrize("make", [dropout_net, lambda: Again(reentrant=False)])
def test_a_training_is_bitwise_the_same(make: Callable[[], nn.Module]) -> None:
    def trained(profile: bool | None) -> list[Tensor]:
        torch.manual_seed(3)
        model, width = make(), 3 if make is not dropout_net else 6
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        options = {"profile": profile} if profile is not None else {}
        with NeuralDbg(model, **options):
            for _ in range(25):
                optimizer.zero_grad()
                loss = model(torch.randn(5, width)).cumprod(dim=1).sum()
                loss.backward()
                optimizer.step()
        return [*(p.detach() for p in model.parameters()), loss.detach(), torch.get_rng_state()]

    bare = trained(False)
    for profile in (True, None):
        assert all(torch.equal(one, other) for one, other in zip(bare, trained(profile), strict=True))


class Recursive(nn.Module):
    """Calls itself as deeply as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = nn.Linear(2, 2)

    def forward(self, x: Tensor, depth: int) -> Tensor:
        return self.leaf(x) if depth == 0 else self(x, depth - 1) + self.leaf(x)


def test_calls_nested_to_the_limit_within_a_sampled_step_are_no_error_of_ours() -> None:
    model = Recursive()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    caught = 0
    with NeuralDbg(model, profile=True, settings={"capture": {"allowance_s": 0.0}}) as dbg:
        timer = next(part for part in dbg._profile._parts if isinstance(part, Timing))
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.ones(3, 2), 3).sum().backward()
            if timer._sampled.on:
                with pytest.raises(RecursionError):
                    model(torch.ones(3, 2), 2 * sys.getrecursionlimit())
                caught += 1
            optimizer.step()
    assert caught > 2
    assert dbg.record().info.coverage["errors"] == 0
