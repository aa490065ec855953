"""Loops without an optimizer of torch: their steps are seen by the weights, and a healthy one is called healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from neuraldbg import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, RATE = 60, 0.1


class Task:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(256, 8)
        self.y = (self.x.sum(1) > 0).long()
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.losses: list[float] = []

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.randint(256, (32,))
        return self.x[at], self.y[at]

    def loss(self) -> torch.Tensor:
        x, y = self.batch()
        loss = F.cross_entropy(self.model(x), y)
        self.losses.append(float(loss.detach()))
        return loss


def under_no_grad(task: Task) -> None:
    task.model.zero_grad()
    task.loss().backward()
    with torch.no_grad():
        for p in task.model.parameters():
            p.sub_(RATE * p.grad)


def new_data(task: Task) -> None:
    task.loss().backward()
    for p in task.model.parameters():
        p.data = p.data - RATE * p.grad
        p.grad = None


def data_in_place(task: Task) -> None:
    """Counted by no version, and the gradient is zero at once."""
    task.loss().backward()
    for p in task.model.parameters():
        p.data.add_(p.grad, alpha=-RATE)
        p.grad.zero_()


def new_parameters(task: Task) -> None:
    task.loss().backward()
    for layer in (task.model[0], task.model[2]):
        for name, p in list(layer.named_parameters()):
            setattr(layer, name, nn.Parameter(p.detach() - RATE * p.grad))


def autograd_grad(task: Task) -> None:
    weights = list(task.model.parameters())
    for p, grad in zip(weights, torch.autograd.grad(task.loss(), weights), strict=True):
        p.data.sub_(RATE * grad)


def in_the_backward(task: Task) -> None:
    def update(p: torch.Tensor) -> None:
        with torch.no_grad():
            p.sub_(RATE * p.grad)
        p.grad = None

    handles = [p.register_post_accumulate_grad_hook(update) for p in task.model.parameters()]
    task.loss().backward()
    for handle in handles:
        handle.remove()


def accumulated(task: Task) -> None:
    task.model.zero_grad()
    for _ in range(4):
        (task.loss() / 4).backward()
    with torch.no_grad():
        for p in task.model.parameters():
            p.sub_(RATE * p.grad)
        task.model(task.x)  # an evaluation in between


LOOPS = [under_no_grad, new_data, data_in_place, new_parameters, autograd_grad, in_the_backward, accumulated]


@pytest.mark.parametrize("options", [{}, {"overhead": None}])
@pytest.mark.parametrize("step", LOOPS)
def test_a_healthy_loop_by_hand(step: Callable[[Task], None], options: dict) -> None:
    bare, task = Task(), Task()
    torch.manual_seed(1)
    for _ in range(STEPS):
        step(bare)
    torch.manual_seed(1)
    with NeuralDbg(discover=True, **options) as dbg:
        for done in range(STEPS):
            step(task)
            assert dbg.steps == done + 1
    assert task.losses == bare.losses
    diagnosis = dbg.diagnose()
    assert diagnosis.verdict == "healthy", diagnosis.summary
    kinds = {event.kind for event in diagnosis.events}
    assert not kinds & {"vanishing_gradients", "unchanged_parameters", "exploding_gradients"}
    run = dbg.record()
    if step is not accumulated:
        assert run.scalar("loss").values.tolist() == pytest.approx(task.losses)


def test_gradients_and_updates_of_steps_by_hand() -> None:
    """From the second step on, against norms that the loop computes itself."""
    task, norms = Task(), []
    with NeuralDbg(discover=True, overhead=None) as dbg:
        for _ in range(12):
            task.model.zero_grad()
            task.loss().backward()
            grads = [p.grad.flatten().double() for p in task.model[0].parameters()]
            norms.append(float(torch.cat(grads).norm()))
            with torch.no_grad():
                for p in task.model.parameters():
                    p.sub_(RATE * p.grad)
    history = dbg.get_gradient_history("0")
    assert history.steps.tolist() == list(range(1, 12))
    assert history.values.tolist() == pytest.approx(norms[1:], rel=1e-5)
    assert all(0 < ratio < 1 for ratio in dbg.record().scalar("update_ratio").values)


def test_weights_that_a_model_is_called_with() -> None:
    task = Task()
    weights = {name: p.detach().clone().requires_grad_() for name, p in task.model.named_parameters()}
    with NeuralDbg(discover=True) as dbg:
        for _ in range(STEPS):
            x, y = task.batch()
            loss = F.cross_entropy(functional_call(task.model, weights, (x,)), y)
            grads = torch.autograd.grad(loss, list(weights.values()))
            weights = {
                name: (p - RATE * grad).detach().requires_grad_()
                for (name, p), grad in zip(weights.items(), grads, strict=True)
            }
    assert dbg.steps >= STEPS - 1, "the last update is seen by nobody"
    assert dbg.diagnose().verdict == "healthy", dbg.diagnose().summary


def test_a_nan_by_hand_is_found() -> None:
    task = Task()
    with NeuralDbg(discover=True) as dbg:
        for step in range(STEPS):
            task.model.zero_grad()
            (task.loss() * (float("nan") if step == 40 else 1.0)).backward()
            with torch.no_grad():
                for p in task.model.parameters():
                    p.sub_(RATE * p.grad)
    assert dbg.diagnose().verdict == "failing"
    assert "step 40" in dbg.diagnose().summary


def test_what_is_said_where_no_step_is_seen() -> None:
    task = Task()
    other = torch.optim.SGD(nn.Linear(4, 4).parameters(), lr=RATE)
    with NeuralDbg(discover=True) as dbg:
        for _ in range(STEPS):
            task.loss().backward()
    diagnosis = dbg.diagnose()
    assert diagnosis.verdict == "inconclusive"
    assert "60 backward passes" in diagnosis.summary
    assert "no optimizer" in diagnosis.summary, other
    assert "no backward pass" not in diagnosis.summary
    assert "No parameter of a module that is called was changed" in diagnosis.summary


def test_what_moves_weights_before_an_optimizer_of_torch_steps_is_no_step() -> None:
    task = Task()
    optimizer = torch.optim.SGD(task.model.parameters(), lr=RATE)
    with NeuralDbg(discover=True) as dbg:
        task.loss().backward()
        with torch.no_grad():
            task.model[0].weight.mul_(0.5)
        for _ in range(5):
            optimizer.zero_grad()
            task.loss().backward()
            optimizer.step()
    assert dbg.steps == 5


def test_an_optimizer_of_another_model_does_not_hide_steps_by_hand() -> None:
    """One that an earlier cell of a notebook has left, say."""
    other = torch.optim.SGD(nn.Linear(4, 4).parameters(), lr=RATE)
    task = Task()
    with NeuralDbg(discover=True) as dbg:
        for _ in range(12):
            under_no_grad(task)
    assert dbg.steps == 12
    assert not other.state
