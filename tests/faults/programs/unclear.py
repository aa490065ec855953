"""Trainings of which nobody could name the cause from a record: the tool may say that something is wrong, not why."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import Mlp, adam, batches, fit, sgd
from torch import nn

NOISE = ("label_noise", "target_misaligned")
"""Targets that have nothing to do with the inputs: true of pure noise, though nobody need say it."""


@program("mlp", verdict=("failing", "suspect", "inconclusive"), tolerated=NOISE)
def pure_noise() -> None:
    x, y = torch.randn(4000, 16), torch.randint(10, (4000,))
    model = Mlp(16, 10)
    fit(model, adam(model, 1e-3), batches((x, y), 200))


@program("mlp", verdict=("failing", "suspect", "inconclusive"), tolerated=NOISE)
def noise_regression() -> None:
    x, y = torch.randn(4000, 16), torch.randn(4000, 1)
    model = Mlp(16, 1)
    fit(model, sgd(model, 0.02), batches((x, y), 200), F.mse_loss)


@program("mlp", verdict=("healthy", "inconclusive"))
def unknown_loss() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = sgd(model, 0.05)
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(32, 16)).square().mean().backward()
        optimizer.step()


HARD = ("failing", "suspect", "inconclusive", "healthy")
"""A task that is hard, and a fault in its labels, look alike for a while: whatever the verdict, no cause is sure."""
MORE = ("lr_too_low", "capacity_too_small")
"""True of a task that would be learnt with more of either."""


@program("mlp", verdict=HARD, tolerated=MORE)
def waves_along_a_direction() -> None:
    x, direction = torch.randn(2000, 12), torch.randn(12)
    y = torch.sin(x @ direction)[:, None] + 0.5 * torch.randn(2000, 1)
    model = Mlp(12, 1, width=128)
    fit(model, sgd(model, 0.05, momentum=0.9), batches((x, y), 200), F.huber_loss)


@program("mlp", verdict=HARD, tolerated=MORE)
def parity_of_six_bits() -> None:
    x = torch.randint(2, (4000, 16)).float()
    y = x[:, :6].sum(1).long() % 2
    model = Mlp(16, 2)
    fit(model, adam(model, 1e-3), batches((x * 2 - 1, y), 150))


@program("mlp", verdict=HARD)
def returns_of_tomorrow() -> None:
    x = torch.randn(6000, 20)
    y = 0.15 * x[:, :3].sum(1, keepdim=True) * 0.6 + torch.randn(6000, 1)
    model = Mlp(20, 1)
    fit(model, adam(model, 1e-3), batches((x, y), 250), F.mse_loss)


@program("mlp", verdict=HARD, tolerated=MORE)
def signs_of_three_products() -> None:
    x = torch.randn(4000, 24)
    y = (x[:, 0] * x[:, 1] * x[:, 2] > 0).long() * 2 + (x[:, 3] * x[:, 4] * x[:, 5] > 0).long()
    model = Mlp(24, 4)
    fit(model, sgd(model, 0.05), batches((x, y), 250))


@program("mlp", verdict=HARD)
def clicks_on_advertisements() -> None:
    x = torch.randn(8000, 20)
    y = torch.bernoulli(torch.sigmoid(-2.8 + 0.6 * x[:, :1] + 0.4 * x[:, 1:2]))
    model = Mlp(20, 1)
    fit(model, adam(model, 1e-3), batches((x, y), 300), nn.BCEWithLogitsLoss())
