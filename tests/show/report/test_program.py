"""What a report says of the learning rate: its course, not the one number that was in a fact."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.show.report.program import program


def optimizers(rate, groups=1):
    """Train with a rate for each step and return what is said of the optimizer."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4) for _ in range(groups)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD([{"params": one.parameters(), "lr": 1e-3 / 10**k} for k, one in enumerate(layers)])
    with NeuralDbg(model) as dbg:
        for step in range(40):
            optimizer.param_groups[0]["lr"] = rate(step)
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    return [told for name, told in program(dbg.record()) if name.startswith("optimizer ")]


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (lambda step: 1e-3, "lr 0.001, "),
        (lambda step: 0.1 if step < 30 else 0.5, "lr 0.1 to 0.5, "),
        (lambda step: 1e-3 * 0.5 ** (step // 10), "lr 0.001 to 0.000125, "),
        (lambda step: 1e-4 if step in (0, 39) else 1e-3, "lr 0.0001 to 0.001, varied, "),
    ],
)
def test_a_rate_that_changed_is_said_with_its_course(rate, said):
    (told,) = optimizers(rate)
    assert told.startswith(said)


def test_the_course_is_that_of_the_group_with_the_largest_rate():
    one, other = optimizers(lambda step: 0.1 if step < 30 else 0.5, groups=2)
    assert one.startswith("lr 0.1 to 0.5, ")
    assert other.startswith("lr 0.0001 at step ")
