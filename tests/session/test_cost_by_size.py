"""Work that grows with the size of a model grows in proportion to it: ten times the layers cost ten times as much.

Calls are counted and not seconds, which two busy cores would decide.
"""

from __future__ import annotations

import cProfile
import pstats

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.statistics.unit_activity import Units


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()

    def forward(self, x):
        return x + self.act(self.norm(self.linear(x)))


def calls(blocks, how):
    """Count the function calls of a session around three steps of a model, its diagnosis included.

    Without experiments, which are left out where a pass takes long: on a busy machine of one size and not of the other.
    """
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(blocks)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    profile = cProfile.Profile()
    profile.enable()
    with NeuralDbg(model, probes=False) if how == "given" else NeuralDbg(discover=True, probes=False):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    profile.disable()
    return pstats.Stats(profile).total_calls


@pytest.mark.parametrize("how", ["given", "discovered"])
def test_ten_times_the_layers_are_ten_times_the_work(how):
    """Pairs of equal-shaped weights, repeated blocks and rows of layers were searched through once for each layer: of
    5,000 modules the first step took 13 s.
    """
    calls(8, how)  # what is imported and cached once
    small, large = calls(50, how), calls(500, how)
    assert large / small < 11, f"{small:,} calls at 200 layers, {large:,} at 2,000"


def test_units_of_many_sites_are_moved_a_few_times():
    units, moved = Units(20), 0
    for row in range(1000):
        before = units.highest
        units.add(row, 7, 0)
        moved += units.highest is not before
    assert moved < 15
    assert units.take() is None
    units.observe(999, torch.arange(14.0).reshape(2, 7), 1, 4096)
    units.observe(0, torch.ones(2, 7), 1, 4096)
    highest = units.take().highest
    assert highest.shape == (7000,)
    assert highest[-7:].tolist() == [7, 8, 9, 10, 11, 12, 13]
    assert highest[:7].tolist() == [1] * 7
    assert (highest[7:-7] == -float("inf")).all()
