"""Fused optimizers under a gradient scaler: a step whose gradients overflowed leaves the weights as they were."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import CapturedRun, capture_run
from tests.capture.chosen_light_steps import gaps
from tests.capture.simulated_device import SimulatedDevice
from torch import nn

from neuraldbg import NeuralDbg, TrainingHalted
from neuraldbg.detect.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Collection

STEPS = 40
BAD = (5, 20, 21, 30)
"""Steps whose scale is too large."""


class Training:
    """A training that notes the losses, and the steps in which no weight has changed."""

    def __init__(self, bad: Collection[int] = BAD, *, of_loss: bool = False, fused: bool = True) -> None:
        torch.manual_seed(0)
        self.bad, self.spoilt = bad, -1
        self.of_loss = of_loss
        """The scaled loss overflows, too, and not the gradients alone."""
        self.model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=fused)
        self.losses: list[float] = []
        self.left: list[int] = []

    def run(self) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for step in range(STEPS):
            x = torch.randn(16, 8)
            self.optimizer.zero_grad()
            # A steep term without a value: gradients overflow before the loss does.
            steep = (1e6 if step == self.spoilt else 16) * self.model[0].bias.sum()
            loss = F.cross_entropy(self.model(x), (x[:, 0] > 0).long()) * (4.0 if self.of_loss else 1.0)
            before = [p.detach().clone() for p in self.model.parameters()]
            scaler.scale(loss + steep - steep.detach()).backward()
            scaler.step(self.optimizer)
            scaler.update(2.0**127 if step + 1 in self.bad else 2.0**10)
            self.losses.append(loss.item())
            if all(torch.equal(a, b) for a, b in zip(before, self.model.parameters(), strict=True)):
                self.left.append(step)


def lightly(*, on: bool) -> contextlib.AbstractContextManager[None]:
    """Read all steps but the first lightly."""
    return gaps(lambda step: step < 4) if on else contextlib.nullcontext()


def check(seen: CapturedRun, training: Training) -> None:
    assert training.left == list(training.bad)
    assert [step.index for step in seen.steps] == list(range(STEPS))
    assert [step.index for step in seen.steps if not step.applied] == training.left
    counts = {step.index: step.scalars["overflowed"] for step in seen.steps if "overflowed" in step.scalars}
    assert counts == {5: 1, 20: 1, 21: 2, 30: 1}
    assert seen.scalars("loss") == pytest.approx(training.losses, rel=1e-5)
    assert not any("update_ratio" in step.scalars for step in seen.steps if not step.applied)
    watch = Watch({})
    for step, layout in zip(seen.steps, seen.layouts, strict=True):
        assert not [event for event in watch.observe(step, layout) if event.kind.startswith("nonfinite")]


@pytest.mark.parametrize("of_loss", [False, True], ids=["gradients", "loss"])
@pytest.mark.parametrize("light", [False, True], ids=["full", "light"])
@pytest.mark.parametrize("delay", [None, 0, 3], ids=["here", "device", "late device"])
def test_a_step_that_overflowed_is_recorded_as_not_applied(monkeypatch, of_loss, light, delay):
    training = Training(of_loss=of_loss)
    with monkeypatch.context() as patch, lightly(on=light):
        if delay is not None:
            SimulatedDevice(patch, delay)
        seen = capture_run(training.run, training.model, probes=False, **({"overhead": 0.01} if light else {}))
    assert any(step.light for step in seen.steps) == light
    check(seen, training)


def test_gradients_that_always_overflow_are_an_event_in_the_end():
    """The scale of a scaler is no reason any more after 16 steps."""
    training = Training(range(10, STEPS))
    with NeuralDbg(training.model, overhead=None, probes=False) as dbg:
        training.run()
    events = [event for event in dbg.record().events if event.kind == "nonfinite_gradient"]
    assert [event.first_step for event in events] == [26]


def test_a_loss_that_is_not_a_number_is_told_under_a_scaler_too():
    training = Training()
    with torch.no_grad():
        training.model[2].bias[0] = math.nan
    with NeuralDbg(training.model, overhead=None, probes=False) as dbg:
        training.run()
    assert {event.kind: event.first_step for event in dbg.record().events}["nonfinite_loss"] == 0


@pytest.mark.parametrize("of_loss", [False, True], ids=["gradients", "loss"])
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("light", [False, True], ids=["full", "light"])
def test_a_healthy_training_is_not_halted(of_loss, fused, light):
    """Neither by an overflow nor by the scale of the gradients, and it is bitwise the training that is not watched."""
    alone, watched = Training(of_loss=of_loss, fused=fused), Training(of_loss=of_loss, fused=fused)
    torch.manual_seed(1)
    alone.run()
    torch.manual_seed(1)
    with lightly(on=light), NeuralDbg(watched.model, halt=True, overhead=0.01 if light else None, probes=False):
        watched.run()
    assert alone.left == watched.left == list(BAD)
    assert alone.losses == watched.losses


@pytest.mark.parametrize("light", [False, True], ids=["full", "light"])
def test_a_gradient_that_is_too_large_halts_under_a_scaler_too(light):
    """The scale is left out of its norm: 3e4 times the usual one, and not 3e7 times."""
    training = Training(bad=())
    training.spoilt = 12
    options = {"halt": True, "overhead": 0.01 if light else None, "probes": False}
    with lightly(on=light), pytest.raises(TrainingHalted) as caught, NeuralDbg(training.model, **options):
        training.run()
    assert caught.value.step == 12
    norm = math.sqrt(float(training.model[0].bias.grad.square().sum() + training.model[0].weight.grad.square().sum()))
    assert f"the gradient norm of layer '0' is {norm / 2**10:.4g}" in caught.value.reason
