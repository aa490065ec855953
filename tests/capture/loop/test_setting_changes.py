"""Settings that a program changes while it trains: each a fact, once, with the steps between which it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.capture.captured_run import capture_run
from torch import nn

from neuraldbg.capture.loop.setting_changes import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, AT = 200, 151
WITHIN = 4 * EVERY
"""Steps within which the settings are read again: light steps are processed a few at a time."""


class Loop:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 2))
        self.opt: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.5)

    def train(self, change: Callable[[Loop, int], None], steps: int = STEPS) -> None:
        for step in range(steps):
            change(self, step)
            self.opt.zero_grad()
            self.model(torch.randn(8, 4)).pow(2).mean().backward()
            self.opt.step()


def changes(change: Callable[[Loop, int], None], steps: int = STEPS, **settings: Any) -> list[dict[str, Any]]:
    loop = Loop()
    run = capture_run(lambda: loop.train(change, steps), loop.model, **settings)
    return run.facts("change")


def momentum(loop: Loop, step: int) -> None:
    loop.opt.param_groups[0]["momentum"] = 0.5 if step < AT else 0.95


def decay(loop: Loop, step: int) -> None:
    loop.opt.param_groups[0]["weight_decay"] = 0 if step < AT else 0.1


def dropout(loop: Loop, step: int) -> None:
    loop.model[2].p = 0.1 if step < AT else 0.9


def evaluation(loop: Loop, step: int) -> None:
    loop.model.train(step < AT)


def frozen(loop: Loop, step: int) -> None:
    loop.model[0].requires_grad_(step < AT)


def remade(loop: Loop, step: int) -> None:
    if step == AT:
        loop.opt = torch.optim.SGD(loop.model.parameters(), lr=0.01, momentum=0.5)


EXPECTED = [
    (momentum, "momentum", "", 0.5, 0.95), (decay, "weight_decay", "", 0.0, 0.1), (dropout, "dropout", "2", 0.1, 0.9),
    (evaluation, "training", "2", 1.0, 0.0), (frozen, "trainable", "", 6.0, 4.0), (remade, "optimizer", "", None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "what", "name", "before", "after"), EXPECTED, ids=[one[0].__name__ for one in EXPECTED]
)
def test_a_change_is_dated_between_two_readings(change, what, name, before, after):
    found = [one for one in changes(change, allowance_s=0.0) if one["what"] == what]
    if what == "training":
        assert {one["name"] for one in found} == {"Sequential", "1", "2"}
    found = [one for one in found if what != "training" or one["name"] == name]
    assert [(one["name"], one["before"], one["after"]) for one in found] == [(name, before, after)]
    assert found[0]["since"] < AT <= found[0]["until"] < AT + WITHIN
    assert found[0]["since"] > AT - WITHIN
    if what == "trainable":
        assert found[0]["names"] == ["0.bias", "0.weight"]


def test_settings_that_stay_are_no_facts():
    assert changes(lambda loop, step: None) == []


def test_a_schedule_is_one_change_where_it_begins_and_one_where_it_rests():
    def ramp(loop: Loop, step: int) -> None:
        loop.opt.param_groups[0]["momentum"] = 0.5 + 0.4 * min(max(step - 50, 0), 80) / 80

    found = changes(ramp, overhead=None)
    assert len(found) == 2
    assert found[0]["before"] == found[1]["before"] == 0.5
    assert found[1]["after"] == pytest.approx(0.9)
    assert found[1]["since"] < 51
    assert 130 <= found[1]["until"] < 130 + WITHIN


def test_a_setting_that_always_changes_is_logged_a_few_times():
    def turns(loop: Loop, step: int) -> None:
        loop.model[0].requires_grad_(step // 3 % 2 == 0)

    assert len(changes(turns, overhead=None)) <= 16


def test_a_number_on_a_device_is_not_fetched():
    def tensor(loop: Loop, step: int) -> None:
        loop.opt.param_groups[0]["weight_decay"] = torch.tensor(0.1 if step < AT else 0.2)

    assert changes(tensor) == []


def ended(loop: Loop) -> None:
    """Do what programs do after their last step: evaluate the model, and freeze it for export."""
    loop.model.eval().requires_grad_(False)
    if hasattr(loop, "opt"):
        loop.opt.param_groups[0]["momentum"] = 0.0
    with torch.no_grad():
        loop.model(torch.randn(8, 4))


@pytest.mark.parametrize("steps", [3, 41])
@pytest.mark.parametrize("settings", [{}, {"overhead": None}, {"allowance_s": 0.0}], ids=["usual", "full", "light"])
def test_changes_after_the_last_step_are_none_of_the_training(steps, settings):
    loop = Loop()

    def train() -> None:
        loop.train(lambda loop, step: None, steps)
        ended(loop)

    assert capture_run(train, loop.model, **settings).facts("change") == []


class Turns(Loop):
    """Two optimizers that step by turns: a step is closed when the next begins, which may be an evaluation."""

    def train(self, change: Callable[[Loop, int], None], steps: int = STEPS) -> None:
        other = nn.Linear(4, 1)
        beside = torch.optim.SGD(other.parameters(), lr=0.01)
        for step in range(steps):
            self.model.train()
            change(self, step)
            super().train(lambda loop, step: None, 1)
            other(torch.randn(8, 4)).pow(2).mean().backward()
            beside.step()
            beside.zero_grad()
            if step % 7 == 6:
                self.model.eval()
                with torch.no_grad():
                    self.model(torch.randn(8, 4))
                self.model.train()


class ByHand(Loop):
    def __init__(self) -> None:
        super().__init__()
        del self.opt

    def train(self, change: Callable[[Loop, int], None], steps: int = STEPS) -> None:
        for step in range(steps):
            self.model.train()
            change(self, step)
            self.model(torch.randn(8, 4)).pow(2).mean().backward()
            with torch.no_grad():
                for weight in self.model.parameters():
                    if weight.grad is not None:
                        weight.sub_(0.01 * weight.grad)
                        weight.grad = None
            if step % 7 == 6:
                self.model.eval()
                with torch.no_grad():
                    self.model(torch.randn(8, 4))


@pytest.mark.parametrize("kind", [Turns, ByHand])
@pytest.mark.parametrize("settings", [{}, {"overhead": None}], ids=["usual", "full"])
def test_an_evaluation_between_two_steps_is_no_change_and_what_changes_in_the_training_is_one(kind, settings):
    for change, count in ((lambda loop, step: None, 0), (dropout, 1)):
        loop = kind()

        def train(loop: Loop = loop, change: Callable[[Loop, int], None] = change) -> None:
            loop.train(change)
            ended(loop)

        models = () if kind is Turns else (loop.model,)
        found = capture_run(train, *models, **settings).facts("change")
        assert len(found) == count
        if count:
            assert found[0]["what"] == "dropout"
            assert found[0]["since"] < (2 if kind is Turns else 1) * AT + 1


class Cut(nn.Module):
    """Two layers, the first of which may be cut off, or left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.cut = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh()
        return self.second(hidden.detach() if self.cut else hidden)


def cut(at: Callable[[int], bool], **settings: Any) -> list[dict[str, Any]]:
    """Return the changes of what gets a gradient, where the first layer is cut off in some steps."""
    loop = Loop()
    loop.model = Cut()
    loop.opt = torch.optim.SGD(loop.model.parameters(), lr=0.01)

    def change(loop: Loop, step: int) -> None:
        loop.model.cut = at(step)

    run = capture_run(lambda: loop.train(change, 600), loop.model, **settings)
    return [one for one in run.facts("change") if one["what"] == "gradients"]


@pytest.mark.parametrize("overhead", [0.01, None])
def test_parameters_that_lose_their_gradient_are_named_with_the_step(overhead: float | None) -> None:
    (found,) = cut(lambda step: step >= 423, overhead=overhead)
    assert found["names"] == ["first.bias", "first.weight"]
    assert (found["before"], found["after"]) == (4.0, 2.0)
    assert found["since"] < 423 <= found["until"] <= found["since"] + WITHIN


def test_parameters_that_never_had_a_gradient_or_lose_it_by_turns_are_few_facts() -> None:
    assert cut(lambda step: True) == []
    assert len(cut(lambda step: step % 2 == 1, overhead=None)) <= 16
