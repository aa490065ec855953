"""Real trainings, recorded once for all tests of this folder: small models, real torch, real run files."""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg

TAKEN = 1_400
"""Steps of each of two optimizers: more than the run file holds one by one with the settings below."""
TIGHT = {"record": {"full_steps": 64, "budget_mb": 4}}


def two_optimizers(folder):
    """Two models that take turns; the last inputs hold a NaN; most of the run is thinned by the time it ends."""
    torch.manual_seed(0)
    one, other = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), nn.Sequential(nn.Linear(4, 1))
    first, second = torch.optim.Adam(one.parameters(), lr=1e-3), torch.optim.SGD(other.parameters(), lr=1e-2)
    with NeuralDbg(one, overhead=None, settings=TIGHT, out=folder):
        for step in range(TAKEN):
            x = torch.randn(16, 4)
            if step >= TAKEN - 5:
                x[0, 0] = torch.nan
            for model, optimizer in ((one, first), (other, second)):
                optimizer.zero_grad()
                (model(x) - x[:, :1]).square().mean().backward()
                optimizer.step()


def light(folder):
    """A run most of whose steps are read in part only: the budget allows no more."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with NeuralDbg(model, overhead=0.01, settings={"capture": {"allowance_s": 0.0}}, out=folder):
        for _ in range(80):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
