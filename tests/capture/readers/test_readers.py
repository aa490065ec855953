"""The frame that readers live in: the moments come in order, and an error in one reader costs nobody else anything."""

from __future__ import annotations

import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture import readers
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey


class Diary(Reader):
    """Writes down what it is told."""

    pages: list[str]

    def __init__(self, scene):
        super().__init__(scene)
        type(self).pages = []

    def patches(self):
        def zeroes(optimizer, set_to_none=True):
            if self.scene.switch.in_full_step():
                self.pages.append("zero_grad")
            yield

        return [(torch.optim.Optimizer, "zero_grad", zeroes)]

    def call_begins(self, call):
        self.pages.append(f"call {'eval' if call.evaluating else 'train'} {len(call.args)}")

    def call_ends(self, call, output):
        self.pages.append(f"output {tuple(output.shape)}")

    def backward_begins(self, backward):
        read = backward.walk is not None
        self.pages.append(f"backward {backward.terms[0]['kind'] if read else 'unread'}")

    def backward_ends(self, backward):
        self.pages.append(f"ended {backward.walk is None}")

    def step_begins(self, stream, opt):
        self.pages.append(
            f"step {stream.index} {all(p.grad is not None for g in opt.param_groups for p in g['params'])}"
        )

    def step_ends(self, stream, opt):
        self.pages.append("stepped")

    def step_closes(self):
        self.scene.scalars["clip_limit"] = 7.0
        self.pages.append(f"closes {self.scene.step}")

    def summarise(self):
        self.scene.log(FactKey.BATCH, {"model": "at the end", "inputs": {}})

    def stop(self):
        self.pages.append("stop")


class Broken(Reader):
    """Fails at every moment."""

    def call_begins(self, call):
        raise ZeroDivisionError

    def step_closes(self):
        raise ZeroDivisionError


@pytest.fixture
def members(monkeypatch):
    def register(*classes):
        for cls in classes:
            module = types.ModuleType(f"neuraldbg.capture.readers.{cls.__name__.lower()}")
            module.READER = cls
            monkeypatch.setitem(sys.modules, module.__name__, module)
        names = tuple(cls.__name__.lower() for cls in classes)
        monkeypatch.setattr(readers.Readers.__init__, "__defaults__", (names,))

    return register


def train(model, steps=6):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 1)).backward()
        optimizer.step()


def test_the_moments_come_in_the_order_of_the_loop(members):
    members(Diary)
    original = torch.optim.Optimizer.zero_grad
    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        train(model)
        with torch.no_grad():
            model(torch.randn(5, 3))
    assert torch.optim.Optimizer.zero_grad is original
    pages = Diary.pages
    first = ["zero_grad", "call train 1", "output (4, 1)", "backward mse", "ended True", "step 0 True", "stepped"]
    assert pages[:7] == first
    assert pages.count("zero_grad") == 6
    assert pages[pages.index("call eval 1") + 1] == "output (5, 1)"
    assert pages[-1] == "stop"
    assert [p for p in pages if p.startswith("closes")] == [f"closes {n}" for n in range(6)]
    run = dbg.record()
    assert run.scalar("clip_limit").values.tolist() == [7.0] * 6
    assert run.facts_of("batch")[-1].value["model"] == "at the end"


def test_facts_of_the_whole_run_are_there_while_it_runs(members):
    members(Diary)
    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        train(model, 3)
        assert dbg.record().fact("batch", model="at the end") is not None
        train(model, 3)
    assert len(dbg.record().facts_of("batch", model="at the end")) == 1, "no news, no second fact"


def test_an_error_in_one_reader_costs_the_others_nothing(members, monkeypatch):
    monkeypatch.delenv("NEURALDBG_STRICT")
    members(Broken, Diary)
    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        train(model)
    assert Diary.pages.count("stepped") == 6
    assert dbg.record().steps == 6
    assert dbg._capture.tally.errors == 12
