"""What causes ask for in vain: more of it is missing the less was recorded."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from neuraldbg import NeuralDbg, debug_session
from neuraldbg.explain import CAUSES, judge_all
from neuraldbg.explain.missing_evidence import OF_THE_PROGRAM, AskedCase


def missing_evidence(run):
    case = AskedCase(run)
    judge_all(case, case.judged)
    return case.missing


def judged(run):
    return {cause for cause, asked in missing_evidence(run).items() if not asked}


def test_each_cause_is_judged_or_says_what_it_lacks():
    session = debug_session()
    for step in range(20):
        session.record_step(step, loss=1 / (step + 1))
    little = session.stop().run
    session = debug_session()
    weight = np.ones((4, 4))
    session.record_optimizer("SGD", learning_rate=0.1, momentum=0.9)
    session.record_loss("mse")
    for step in range(20):
        weight = weight * 0.99
        session.record_step(
            step,
            loss=1 / (step + 1),
            learning_rate=0.1,
            gradients={"fc.weight": weight},
            parameters={"fc.weight": weight},
        )
    more = session.stop().run
    assert set(missing_evidence(little)) == {cause.id for cause in CAUSES}
    assert len(judged(little)) < len(judged(more))
    asked = set().union(*missing_evidence(little).values())
    assert {OF_THE_PROGRAM, "the optimizer", "inputs"} <= asked
    assert "the optimizer" not in set().union(*missing_evidence(more).values())
    told = {one.what: one.reason for one in more.diagnose().unjudged}
    assert told["causes that look at more"].startswith(f"{len(judged(more))} causes of {len(CAUSES)} could be judged")


def test_a_watched_training_lacks_little():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for _ in range(60):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), x[:, :4].argmax(dim=1)).backward()
            optimizer.step()
    run = dbg.record()
    assert len(judged(run)) > len(CAUSES) / 2
    assert not any("causes that look at more" in one.what for one in dbg.diagnose().unjudged)
