"""Schedulers that are made in mid-run, while steps are light: known with their step in the next step."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.budget
TIGHT = {"capture": {"overhead": 1e-6, "allowance_s": 0.0}}
AT, STEPS = 40, 90


def test_a_scheduler_that_is_made_in_a_light_step_is_read_in_the_next_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = None
    with NeuralDbg(model, settings=TIGHT) as dbg:
        for step in range(STEPS):
            if step == AT:
                schedule = lr_scheduler.StepLR(opt, step_size=10, gamma=0.5)
            opt.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            opt.step()
            if schedule is not None:
                schedule.step()
    facts = [fact for fact in dbg.record().facts if fact.key == "schedule"]
    first, last = facts[0], facts[-1].value
    assert AT < first.step <= AT + 2
    assert first.value["type"] == "StepLR"
    assert first.value["made"] == AT
    assert last["params"] == {"gamma": 0.5, "step_size": 10}
    assert last["made"] == AT
    assert last["position"] == STEPS - AT
    assert last["base_lr"] == 0.01


def test_many_schedulers_ask_for_no_facts_for_ever() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model, settings=TIGHT) as dbg:
        for _ in range(300):
            schedule = lr_scheduler.ConstantLR(opt, factor=1.0)
            opt.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            opt.step()
            schedule.step()
    read = dbg.record().history.read
    assert 10 < read.sum() < 120
