"""Steps that are handed on together are told as if they came one by one, and are looked at together."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture import capture
from neuraldbg.capture.steps import delivery
from neuraldbg.detect.exploding_gradients import ExplodingGradients
from neuraldbg.detect.watch import Watch

N = 200
OFTEN = {"capture": {"overhead": None, "probes": False}}


def train(*, batch=None, on_step=None):
    """A run that breaks in its last quarter, and its session."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(64, 4)
    told = []

    def tell(step, events):
        told.append((step.index, repr(events)))
        if on_step is not None:
            on_step(dbg, step)

    with NeuralDbg(model, optimizer, settings=OFTEN, on_step=tell) as dbg:
        if batch is not None:
            dbg._capture.delivery.batch = batch
        for step in range(N):
            optimizer.zero_grad()
            scale = 1e4 if step in range(150, 153) else float("nan") if step > 190 else 1.0
            (scale * (model(x) - x.sum(1, keepdim=True)).square().mean()).backward()
            optimizer.step()
    return told, dbg


@pytest.fixture
def passed(monkeypatch):
    """How many steps were passed over by one detector in each block. No block ends early on a busy machine."""
    for module in (delivery, capture):
        monkeypatch.setattr(module, "BACKLOG_S", 60.0)
    counts, pass_over = [], ExplodingGradients.pass_over

    def count(self, block, first):
        counts.append(pass_over(self, block, first))
        return counts[-1]

    monkeypatch.setattr(ExplodingGradients, "pass_over", count)
    return counts


def test_events_are_those_of_steps_handed_on_one_by_one(passed):
    together, run = train()
    assert sum(passed) > 60
    passed.clear()
    alone, expected = train(batch=1)
    assert passed == []
    assert together == alone
    assert [index for index, _ in together] == list(range(N))
    assert repr(run.record().events) == repr(expected.record().events) != "()"


def test_a_callback_may_ask_for_the_run_at_any_step(passed):
    seen = {}

    def ask(key):
        def on_step(dbg, step):
            if step.index in (20, 77, 110, 151, 160):
                events = [(e.kind, e.layer, e.first_step) for e in dbg.record().events]
                seen.setdefault(key, []).append((step.index, events, dbg._watch.read))

        return on_step

    together, _ = train(on_step=ask("together"))
    assert sum(passed) > 60
    alone, _ = train(batch=1, on_step=ask("alone"))
    assert together == alone
    assert seen["together"] == seen["alone"]


def test_an_error_in_one_step_does_not_touch_the_others(monkeypatch):
    monkeypatch.delenv("NEURALDBG_STRICT")

    def fail(dbg, step):
        if step.index % 10 == 3:
            raise ValueError("no")

    together, run = train(on_step=fail)
    alone, expected = train(batch=1, on_step=fail)
    assert together == alone
    assert [index for index, _ in together] == list(range(N))
    for each in (run, expected):  # an exception of the user's function is no error of ours
        assert each._capture.tally.errors == 0
        assert any(f"raised {N // 10} times" in note for note in each.record().info.coverage["notes"])
    assert len(run.record().history.steps) == len(expected.record().history.steps) == N


def test_no_block_is_kept_by_the_session():
    _, dbg = train()
    assert isinstance(dbg._watch, Watch)
    assert dbg._watch._ahead is None
