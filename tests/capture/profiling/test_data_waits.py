"""The batches of a step: how often a real training waits for its data loader, and the switches of its optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from neuraldbg import NeuralDbg
from neuraldbg.nouns.facts.optimizer import OptimizerFact
from neuraldbg.nouns.facts.timing import TimingFact


@pytest.mark.parametrize("accumulated", [1, 4])
def test_a_step_waits_for_each_batch_that_it_accumulates(accumulated: int) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    data = TensorDataset(torch.randn(8 * accumulated * 24, 8))
    with NeuralDbg(model, profile=True) as dbg:
        for at, (x,) in enumerate(DataLoader(data, 8), 1):
            model(x).square().mean().div(accumulated).backward()
            if at % accumulated == 0:
                optimizer.step()
                optimizer.zero_grad()
    timing = dbg.record().known(TimingFact)
    assert timing is not None
    assert timing.batches == accumulated
    known = dbg.record().known(OptimizerFact)
    assert known is not None
    assert [group.fused for group in known.groups] == [True]
