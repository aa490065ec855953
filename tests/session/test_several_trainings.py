"""Several trainings one after another in one session: each is judged by itself, and the answers say which."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg


def search(rates: list[float], steps: int = 60) -> NeuralDbg:
    """Train a new model with each learning rate."""
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    y = x.sum(1, keepdim=True)
    with NeuralDbg(discover=True) as dbg:
        for rate in rates:
            model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=rate)
            for _ in range(steps):
                at = torch.randint(0, 512, (32,))
                optimizer.zero_grad()
                F.mse_loss(model(x[at]), y[at]).backward()
                optimizer.step()
    return dbg


def test_healthy_trainings_are_told_apart() -> None:
    diagnosis = search([0.03, 0.01, 0.05]).diagnose()
    assert diagnosis.verdict == "healthy", diagnosis.summary
    assert "180 steps of 3 trainings, one after another" in diagnosis.summary
    assert "in steps 0 to 59" in diagnosis.summary
    assert not [event for event in diagnosis.events if event.kind in ("loss_spike", "loss_divergence")]
    [others] = [u.reason for u in diagnosis.unjudged if "other trainings" in u.what]
    assert "steps 60 to 119" in others
    assert "steps 120 to 179" in others
    assert "steps 0 to 59" not in others


@pytest.mark.parametrize(("rates", "step"), [([5.0, 0.03, 0.03], 0), ([0.03, 0.03, 5.0], 120)])
def test_the_training_that_broke_is_the_one_that_is_explained(rates: list[float], step: int) -> None:
    found = search(rates).explain_failure()
    assert (found[0].cause, found[0].step) == ("lr_too_high", step)
    assert "learning rate of 5 with SGD" in found[0].sentence


def test_optimizers_by_turns_are_one_training() -> None:
    torch.manual_seed(0)
    models = [nn.Linear(4, 1), nn.Linear(4, 1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
    x = torch.randn(64, 4)
    with NeuralDbg(discover=True) as dbg:
        for _ in range(40):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
                optimizer.step()
    assert "trainings" not in dbg.diagnose().summary
    assert not [u for u in dbg.diagnose().unjudged if "other trainings" in u.what]
