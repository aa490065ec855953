"""Real trainings, recorded once for all tests of this folder: small models, real torch, real run files."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from neuraldbg import NeuralDbg

TAKEN = 1_060
"""Steps of each of two optimizers: more than the run file holds one by one with the settings below."""
NAMES = ("=1+1", "/a/b", '<img src="x">,\n%')
"""Names that a program may give its layers."""
TIGHT = {"record": {"full_steps": 64, "budget_mb": 4}}


def two_optimizers(folder):
    """Two models that take turns; the last inputs hold a NaN; most of the run is thinned by the time it ends."""
    torch.manual_seed(0)
    layers = zip(NAMES, (nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), strict=True)
    one, other = nn.Sequential(OrderedDict(layers)), nn.Sequential(nn.Linear(4, 1))
    first, second = torch.optim.Adam(one.parameters(), lr=1e-3), torch.optim.SGD(other.parameters(), lr=1e-2)
    with NeuralDbg(one, discover=True, probes=False, overhead=None, settings=TIGHT, out=folder):
        for step in range(TAKEN):
            x = torch.randn(16, 4)
            if step >= TAKEN - 5:
                x[0, 0] = torch.nan
            for model, optimizer in ((one, first), (other, second)):
                optimizer.zero_grad()
                (model(x) - x[:, :1]).square().mean().backward()
                optimizer.step()


def doomed(folder):
    """A learning rate that no model survives, in a few steps that are all read in full."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e6)
    with NeuralDbg(model, overhead=None, out=folder):
        for _ in range(30):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.randn(16, 4)), torch.randint(3, (16,)))
            loss.backward()
            optimizer.step()


def jumped(folder):
    """A learning rate that becomes far too high in the middle: most of the run is NaN."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, overhead=None, out=folder):
        for step in range(400):
            if step == 150:
                optimizer.param_groups[0]["lr"] = 1e6
            optimizer.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
