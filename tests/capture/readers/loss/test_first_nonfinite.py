"""The first non-finite value is traced to its operation, line, layer and sample while the weights are still good."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
import torch
from tests.capture.captured_run import capture_run
from tests.faults.kit import Mlp, adam, batches, flat_digits
from tests.session.seeded_trainings import same
from torch import Tensor, nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg

BAD = 12
"""The step in which the harm is done."""


def birth(model: nn.Module, harm: Any = None, loss: Any = F.cross_entropy) -> dict[str, Any]:
    def program() -> None:
        course(model, harm, loss)

    facts = [fact for fact in capture_run(program).facts("experiment") if fact["name"] == "nonfinite_birth"]
    assert len(facts) == 1
    return facts[0]


def course(model: nn.Module, harm: Any, loss: Any, steps: int = 16) -> list[Tensor]:
    optimizer, losses = adam(model, 1e-3), []
    for step, (x, y) in enumerate(batches(flat_digits(), steps)):
        if step == BAD and harm is not None:
            harm(x)
        value = loss(model(x), y)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.detach().clone())
    return losses


class Rooted(nn.Module):
    """A square root of the first pixel, in a layer of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sqrt(x[:, :1])


class Net(Mlp):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.part(x))


def negative(x: Tensor) -> None:
    x[:, 0] = 1.0
    x[7, 0] = -0.5


def test_forward_operation_layer_line_and_sample():
    class Safe(Rooted):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.sqrt(x[:, :1] + 0.1)

    found = birth(Net(Safe()), negative)
    assert (found["phase"], found["op"], found["layer"], found["sample"]) == ("forward", "sqrt", "part", 7)
    assert found["step"] == BAD
    assert found["where"][2] == "return x + torch.sqrt(x[:, :1] + 0.1)"


def test_backward_operation_and_line_where_the_loss_is_finite():
    found = birth(Net(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), Zeroed(), Rooted())))
    assert (found["phase"], found["op"]) == ("backward", "sqrt")
    assert "torch.sqrt(x[:, :1])" in found["where"][2]


class Zeroed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.cat([torch.zeros(1), torch.ones(63)])


def test_a_row_of_attention_in_which_everything_is_masked():
    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.softmax(x.masked_fill(x > 5, float("-inf")), 1)

    def mask(x: Tensor) -> None:
        x[3] = 9.0

    found = birth(Net(Masked()), mask)
    assert (found["op"], found["layer"], found["sample"]) == ("softmax", "part", 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_sample_of_a_bad_input(value: float):
    def harm(x: Tensor) -> None:
        x[9, 4] = value
        x[20, 4] = value

    found = birth(Mlp(), harm)
    assert (found["phase"], found["sample"], found["count"]) == ("input", 9, 2)


def test_a_bad_input_is_found_beside_another_thread_of_the_program():
    def harm(x: Tensor) -> None:
        x[9, 4] = float("nan")

    over = threading.Event()
    thread = threading.Thread(target=lambda: over.wait(60.0), name="loader")
    thread.start()
    try:
        found = birth(Mlp(), harm)
    finally:
        over.set()
        thread.join()
    assert (found["phase"], found["sample"], found["count"]) == ("input", 9, 1)


def test_sample_of_a_bad_target_and_of_a_logarithm_in_the_loss():
    step = {"now": -1}

    def target(out: Tensor, y: Tensor) -> Tensor:
        step["now"] += 1
        want = F.one_hot(y, 10).float()
        if step["now"] == BAD:
            want[5, 0] = float("nan")
        return F.mse_loss(out, want)

    found = birth(Mlp(), None, target)
    assert (found["phase"], found["sample"]) == ("target", 5)
    step["now"] = -1

    def logarithm(out: Tensor, y: Tensor) -> Tensor:
        step["now"] += 1
        p = out.softmax(1)
        if step["now"] == BAD:
            p = p * (torch.arange(len(y)) != 11)[:, None]
        return -torch.log(p).gather(1, y[:, None]).mean()

    found = birth(Mlp(), None, logarithm)
    assert (found["phase"], found["op"], found["sample"]) == ("loss", "log", 11)


def test_the_odd_sample_of_a_jump():
    def huge(x: Tensor) -> None:
        x[31] *= 1e4

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(out, F.one_hot(y, 10).float())

    found = capture_run(lambda: course(Mlp(), huge, loss)).facts("experiment")
    assert [(f["step"], f["sample"]) for f in found if f["name"] == "odd_sample"] == [(BAD, 31)]


def test_the_search_changes_nothing():
    def run(watch: Any) -> dict[str, Any]:
        torch.manual_seed(0)
        model = Net(nn.Sequential(nn.Dropout(0.2), nn.BatchNorm1d(64), Rooted()))
        with watch(model):
            losses = course(model, negative, F.cross_entropy)
        return {"losses": torch.stack(losses), "state": model.state_dict(), "rng": torch.random.get_rng_state()}

    bare = run(lambda model: contextlib.nullcontext())
    assert bare["losses"].isnan().any()
    same(bare, run(lambda model: NeuralDbg(discover=True)))
