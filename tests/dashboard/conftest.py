from __future__ import annotations

import pytest
from tests.dashboard.served_page import HOSTILE, trained


@pytest.fixture(scope="session")
def doomed(tmp_path_factory):
    """A run with a learning rate of 100."""
    return trained(tmp_path_factory.mktemp("doomed"), lr=100.0)


@pytest.fixture(scope="session")
def broken(tmp_path_factory):
    """A run that ends in NaN."""
    return trained(tmp_path_factory.mktemp("broken"), lr=float("nan"))


@pytest.fixture(scope="session")
def healthy(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("healthy"), lr=0.1, steps=120)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """A run whose script and one layer have a name that would run a script, were it not text."""
    return trained(tmp_path_factory.mktemp("hostile"), lr=100.0, name=HOSTILE, script=f"{HOSTILE}.py")


@pytest.fixture(scope="session")
def scaled(tmp_path_factory):
    """A run of a model with weights of its own, not only its layers'."""
    import torch
    from torch import nn

    from neuraldbg import NeuralDbg
    from neuraldbg.saved import Run

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 3)
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.fc(x) * self.scale

    torch.manual_seed(0)
    model = Scaled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = tmp_path_factory.mktemp("scaled")
    with NeuralDbg(model, optimizer, out=folder, overhead=None, probes=False, script="train.py"):
        for _ in range(20):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(3, (16,))).backward()
            optimizer.step()
    return Run.load(folder)
