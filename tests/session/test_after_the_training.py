"""What a program does after its last step, as an evaluation or a freeze for export, is none of its training."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

LIGHT = {"capture": {"allowance_s": 0.0}}
"""Settings with which steps are light soon, so that settings are read every few steps."""


@pytest.mark.budget
@pytest.mark.parametrize(("steps", "broken"), [(200, 200), (41, 40)], ids=["sound", "nan"])
def test_a_model_that_is_frozen_after_its_last_step_was_trained(tmp_path, steps, broken):
    torch.manual_seed(0)
    x = torch.randn(512, 16)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, out=tmp_path / "run", settings=LIGHT) as dbg:
        for step in range(steps):
            rows = torch.randint(0, 512, (32,))
            opt.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows]) * (float("nan") if step >= broken else 1.0)
            loss.backward()
            opt.step()
        model.eval().requires_grad_(False)
        assert not [fact for fact in dbg.record().facts if fact.key == "change"]  # nor is a question in between
        with torch.no_grad():
            model(x)
    found = dbg.diagnose()
    assert not [fact for fact in dbg.record().facts if fact.key == "change"]
    assert found.verdict == ("healthy" if broken == steps else "failing"), found.summary
    assert all(one.cause != "param_frozen" for one in found.hypotheses)
