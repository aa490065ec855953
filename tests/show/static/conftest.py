"""A run that failed, recorded by a real training."""

from __future__ import annotations

import pytest

from neuraldbg.saved import Run


@pytest.fixture(scope="package")
def failed(tmp_path_factory):
    """Return a run of a small network whose learning rate is far too high, and its diagnosis."""
    import torch
    from torch import nn

    from neuraldbg import NeuralDbg

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=100.0)
    inputs, targets = torch.randn(256, 16), torch.randint(4, (256,))
    folder = tmp_path_factory.mktemp("failed")
    with NeuralDbg(model, optimizer, out=folder):
        for step in range(40):
            optimizer.zero_grad()
            batch = slice(32 * (step % 8), 32 * (step % 8) + 32)
            nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    run = Run.load(folder)
    diagnosis = run.diagnose()
    assert diagnosis.verdict == "failing"
    return run, diagnosis
