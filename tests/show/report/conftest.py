"""Runs of real trainings whose names try to be markup, and their reports."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.saved import backgrounds
from neuraldbg.show.report.write import report

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord

LAYER = "<img src=x onerror=alert(1)>"
MODEL = "</style></title><script>alert(2)</script>"
SCRIPT = "/tmp/a ![x](http://evil.example/x.png) <svg onload=alert(3)> `` ``` &lt;.py"


@dataclass(frozen=True)
class Report:
    run: RunRecord
    diagnosis: Diagnosis
    html: str


def trained(learning_rate, steps):
    """Train a network with a hostile layer on sums of random numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(
        OrderedDict({"first": nn.Linear(8, 16), "relu": nn.ReLU(), LAYER: nn.Linear(16, 16), "$x_1$": nn.Linear(16, 3)})
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    with NeuralDbg(model, overhead=None) as dbg:
        for _ in range(steps):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            F.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
            optimizer.step()
    run = dbg.record()
    return replace(run, info=replace(run.info, script=SCRIPT, models=(MODEL,)))


def made(run):
    from neuraldbg.explain import diagnose

    diagnosis = diagnose(run)
    return Report(run, diagnosis, report(run, diagnosis, "html", backgrounds(diagnosis)))


@pytest.fixture(scope="session")
def doomed():
    return made(trained(learning_rate=300.0, steps=40))


@pytest.fixture(scope="session")
def quiet():
    return made(trained(learning_rate=0.05, steps=150))
