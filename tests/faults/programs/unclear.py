"""Trainings of which nobody could name the cause from a record: the tool may say that something is wrong, not why."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import Mlp, adam, batches, fit, flat_digits, sgd
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


@program("mlp", verdict=("inconclusive",))
def crash_of_shapes() -> None:
    x, y = flat_digits()
    model = Mlp()
    optimizer = adam(model, 1e-3)
    for step, (xb, yb) in enumerate(batches((x, y), 60)):
        wrong = xb[:, :60] if step == 40 else xb
        optimizer.zero_grad()
        F.cross_entropy(model(wrong), yb).backward()
        optimizer.step()


@program("mlp", verdict=("healthy", "inconclusive"))
def unknown_loss() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = sgd(model, 0.05)
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(32, 16)).square().mean().backward()
        optimizer.step()
