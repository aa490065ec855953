"""Hooks and stops in light steps, native and not: they come at their step, and not some steps later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.capture.simulated_device import SimulatedDevice
from tests.session.seeded_trainings import vectors
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg, TrainingHalted
from neuraldbg.capture.steps.overhead_budget import Governor

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 60


@pytest.fixture(autouse=True)
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all steps but the first lightly."""
    monkeypatch.setattr(Governor, "decide", lambda self: self.full_steps + self.light_steps < 6)


class Training:
    """A training that counts the steps of its optimizers."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.ModuleDict({"first": nn.Linear(8, 3), "second": nn.Linear(8, 3)})
        self.done = 0

    def loss(self, name: str) -> torch.Tensor:
        x, y = vectors()
        loss: torch.Tensor = F.cross_entropy(self.model[name](x), y)
        return loss

    def one_optimizer(self) -> None:
        optimizer = torch.optim.SGD(self.model["first"].parameters(), lr=0.01)
        while self.done < STEPS:
            optimizer.zero_grad()
            self.loss("first").backward()
            self.done += 1
            optimizer.step()

    def two_optimizers(self) -> None:
        both = {name: torch.optim.SGD(one.parameters(), lr=0.01) for name, one in self.model.items()}
        while self.done < STEPS:
            for name, optimizer in both.items():
                optimizer.zero_grad()
                self.loss(name).backward()
                self.done += 1
                optimizer.step()

    def scaler(self) -> None:
        optimizer = torch.optim.SGD(self.model["first"].parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        while self.done < STEPS:
            optimizer.zero_grad()
            scaler.scale(self.loss("first")).backward()
            self.done += 1
            scaler.step(optimizer)
            scaler.update()


LOOPS = [Training.one_optimizer, Training.two_optimizers, Training.scaler]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_hook_after_a_step_runs_after_that_step(loop: Callable[[Training], None]) -> None:
    training, told = Training(), []
    with NeuralDbg(training.model, probes=False) as dbg:
        dbg.register_hook("after_step", lambda step, loss: told.append((step, training.done - 1)))
        loop(training)
    assert told == [(step, step) for step in range(STEPS)]
    assert dbg.record().info.coverage["cost"]["light_steps"] > STEPS // 2


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_at_a_step_comes_at_that_step(loop: Callable[[Training], None]) -> None:
    training, told = Training(), []

    def stopped(context: Any) -> None:
        told.append((context.step, training.done - 1))

    with NeuralDbg(training.model, probes=False) as dbg:
        dbg.add_breakpoint(when="step == 33", action=stopped)
        loop(training)
    assert told == [(33, 33)]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_hook_halts_before_the_next_step(loop: Callable[[Training], None]) -> None:
    training = Training()

    def halt(step: int, loss: float | None) -> None:
        if step == 33:
            message = "enough"
            raise TrainingHalted(message, step)

    with pytest.raises(TrainingHalted), NeuralDbg(training.model, probes=False) as dbg:  # noqa: PT012
        dbg.register_hook("after_step", halt)
        loop(training)
    assert training.done == 34


@pytest.mark.parametrize("loop", LOOPS[:2])
@pytest.mark.parametrize("ask", ["alert", "layers", "breakpoint"])
def test_an_alert_makes_nothing_wait_for_a_device(
    monkeypatch: pytest.MonkeyPatch, loop: Callable[[Training], None], ask: str
) -> None:
    """A breakpoint does."""
    training = Training()
    far = SimulatedDevice(monkeypatch, 1)
    with NeuralDbg(training.model, probes=False) as dbg:
        if ask == "breakpoint":
            dbg.add_breakpoint(when="loss > 1e9", action=print)
        else:
            dbg.alert_on("loss > 1e9" if ask == "alert" else "layer.rms > 1e9")
        loop(training)
        waits = far.waits
    assert waits == 0 if ask != "breakpoint" else waits >= STEPS - 2
