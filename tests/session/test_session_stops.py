"""Stops of a session: what a person may change there is told, and what cannot be answered costs nothing in the end."""

from __future__ import annotations

import gc
import json
import logging
import math
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.session.seeded_trainings import vectors
from torch import Tensor, nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.capture.statistics import state_digests, whole_tensors
from neuraldbg.capture.steps.overhead_budget import Governor
from neuraldbg.control.hook_triggers import HookAction, HookTrigger
from neuraldbg.control.hooks import Hook
from neuraldbg.debugger import missed_stops
from neuraldbg.nouns.diagnosis import AS_WRITTEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = 6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(self.norm(self.fc1(x)).relu())
        return out


def train(model: nn.Module, *, validates: bool = False, steps: int = STEPS) -> None:
    x, y = vectors()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        if validates:
            with torch.inference_mode():
                model(x)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[dict[str, Any]], None]], list[Any]]:
    """Let a function answer each stop, given its names. Returns the list of the steps and layers of the stops."""

    def answers(function: Callable[[dict[str, Any]], None]) -> list[Any]:
        stops: list[Any] = []

        def hook() -> None:
            names = sys._getframe(1).f_locals
            stops.append((names["step"], names["layer_name"]))
            function(dict(names))

        monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
        monkeypatch.setattr(sys, "breakpointhook", hook)
        return stops

    return answers


# -- what is changed by hand ------------------------------------------------------------------------------------------


def by_data(names: dict[str, Any]) -> None:
    names["model"].fc1.weight.data[3, 2] += 1.0


def gradient(names: dict[str, Any]) -> None:
    names["model"].fc2.bias.grad.data.mul_(0)


def no_gradient(names: dict[str, Any]) -> None:
    names["model"].fc2.bias.grad = None


def buffer(names: dict[str, Any]) -> None:
    names["model"].norm.running_mean.data.fill_(math.nan)


def rate(names: dict[str, Any]) -> None:
    names["optimizer"].param_groups[0]["lr"] = 0.5


def mode(names: dict[str, Any]) -> None:
    names["model"].eval()


def replaced(names: dict[str, Any]) -> None:
    names["model"].fc1.bias = nn.Parameter(names["model"].fc1.bias.detach() + 1)


def moments(names: dict[str, Any]) -> None:
    names["optimizer"].state[names["model"].fc1.weight]["exp_avg"].zero_()


def several(names: dict[str, Any]) -> None:
    with torch.no_grad():
        for parameter in names["model"].parameters():
            parameter.zero_()


CHANGES = {
    by_data: "parameter 'fc1.weight'",
    gradient: "gradient of parameter 'fc2.bias'",
    no_gradient: "gradient of parameter 'fc2.bias'",
    buffer: "buffer 'norm.running_mean'",
    rate: "setting 'lr' of parameter group 0",
    mode: "training mode of layer '', 'fc1', 'norm' and 1 more",
    replaced: "parameter 'fc1.bias'",
    moments: "state 'exp_avg' of parameter 'fc1.weight'",
    several: "parameter 'fc1.weight', 'fc1.bias', 'norm.weight' and 3 more",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_by_hand_is_told(person: Any, change: Callable[[dict[str, Any]], None]) -> None:
    stops = person(change)
    model = Net()
    with NeuralDbg(model, probes=False) as dbg:
        dbg.add_breakpoint(before_step=True, step=2)
        train(model)
    assert stops == [(2, None)]
    told = dbg.record().info.coverage["unread"][AS_WRITTEN]
    assert CHANGES[change] in told
    assert told.endswith("changed by hand at step 2")


def test_a_look_changes_nothing(person: Any) -> None:
    """Nor do the readings of the digests: the training is bitwise the one without stops."""

    def look(names: dict[str, Any]) -> None:
        assert names["model"].fc1.weight.sum() + torch.randn(()) != 0

    torch.manual_seed(0)
    alone, model = Net(), Net()
    model.load_state_dict(alone.state_dict())
    torch.manual_seed(1)
    train(alone)
    stops = person(look)
    torch.manual_seed(1)
    with NeuralDbg(model, probes=False) as dbg:
        dbg.add_breakpoint(layers="fc2")
        dbg.add_breakpoint(before_step=True)
        train(model)
    assert len(stops) == 2 * STEPS
    assert AS_WRITTEN not in (dbg.record().info.coverage.get("unread") or {})
    for a, b in zip(alone.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_digests_of_odd_tensors_and_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = {
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.empty(3, device="meta"),
        "complex": torch.ones(3, dtype=torch.complex64),
        "bool": torch.ones(3, dtype=torch.bool),
        "eight bits": torch.ones(3).to(torch.float8_e4m3fn),
        "none": torch.empty(0),
        "half": torch.full((3,), math.nan, dtype=torch.float16),
    }
    with torch.inference_mode():
        odd["inference"] = torch.ones(3)
    before = state_digests.digests(odd, [], [])
    assert state_digests.changes(before, state_digests.digests(odd, [], [])) == []
    odd["complex"].data[0] = 5j
    with torch.inference_mode():
        odd["inference"][0] = 7
    assert state_digests.changes(before, state_digests.digests(odd, [], [])) == ["complex", "inference"]
    monkeypatch.setattr(state_digests, "MOST", 100)
    large = {"first": torch.zeros(90), "second": torch.zeros(100_000)}
    before = state_digests.digests(large, [], [])
    large["second"].data.add_(1)
    assert state_digests.changes(before, state_digests.digests(large, [], [])) == ["second"]


# -- stops that fail, or that nobody can answer -----------------------------------------------------------------------


def test_a_stop_in_inference_mode_leaves_the_breakpoint_on(person: Any) -> None:
    stops = person(lambda names: None)
    model = Net()
    with NeuralDbg(model, probes=False) as dbg:
        dbg.add_breakpoint(layers="fc2")
        train(model, validates=True)
    assert stops == [(step, "fc2") for step in range(STEPS) for _ in range(2)]
    assert [hook.error for hook in dbg.hooks] == [None]


@pytest.mark.parametrize("part", ["_where", "_names", "_state"])
def test_an_error_of_ours_leaves_the_breakpoint_on(person: Any, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    stops = person(lambda names: None)
    model = Net()
    with NeuralDbg(model, probes=False) as dbg:
        dbg._capture.tally.strict = False

        def fails(*_: Any) -> None:
            raise RuntimeError(part)

        monkeypatch.setattr(dbg._stops, part, fails)
        dbg.add_breakpoint(layers="fc2")
        train(model)
    assert len(stops) == STEPS
    assert dbg.record().info.coverage["errors"] >= STEPS
    assert [hook.error for hook in dbg.hooks] == [None]


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no stop be answered."""
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)


def rows_of(dbg: NeuralDbg) -> list[dict[str, Any]]:
    assert dbg.folder is not None
    file = dbg.folder / "stops.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.usefixtures("nobody")
def test_a_stop_at_the_first_nan_is_missed_once(tmp_path: Path) -> None:
    model = Net()
    with torch.no_grad():
        model.fc1.weight[0, 0] = math.nan
    with NeuralDbg(model, probes=False, out=tmp_path) as dbg:
        dbg.add_breakpoint("nan")
        train(model)
    assert [row["at"] for row in rows_of(dbg)] == ["step 0, after layer 'fc1' (Linear)"]
    assert dbg.hooks == ()


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("saved", [True, False])
def test_beyond_the_stops_that_are_recorded_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: bool
) -> None:
    monkeypatch.setattr(missed_stops, "MOST", 5)
    read: list[int] = []
    statistics = whole_tensors.statistics
    monkeypatch.setattr(whole_tensors, "statistics", lambda x: (read.append(len(x)), statistics(x))[1])
    model = Net()
    with NeuralDbg(model, probes=False, out=tmp_path if saved else None) as dbg:
        dbg.add_breakpoint(layers="fc2", each=True)
        train(model, steps=12)
    assert len(read) == 5, "one tensor of each stop, once"
    assert dbg.hooks == ()
    if saved:
        assert [row["step"] for row in rows_of(dbg)] == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("nobody")
def test_the_first_three_stops_at_events_of_a_breakpoint_are_told(caplog: pytest.LogCaptureFixture) -> None:
    model = Net()
    with NeuralDbg(model, probes=False) as dbg, caplog.at_level(logging.WARNING, "neuraldbg"):
        for step in range(5):
            dbg._stops.met("nan", f"event at step {step}")
    told = [one.getMessage() for one in caplog.records if "does not stop" in one.getMessage()]
    assert [f"event at step {step}" in line for step, line in enumerate(told)] == [True] * 3
    assert "Further stops of it are not reported." in told[2]


# -- the readings of layers -------------------------------------------------------------------------------------------


def test_an_alert_on_layers_reads_them_in_full_steps_and_the_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    read, told = [], []
    statistics = whole_tensors.statistics

    def slowly(x: Tensor) -> dict[str, float]:
        read.append(tuple(x.shape))
        time.sleep(0.002)
        return statistics(x)

    monkeypatch.setattr(whole_tensors, "statistics", slowly)
    monkeypatch.setattr(Governor, "decide", lambda self: self.full_steps + self.light_steps < 4)
    model = Net()
    with NeuralDbg(model, probes=False) as dbg:
        dbg.alert_on("layer.rms > 0", told.append, layers="fc*", every=0)
        train(model, steps=30)
    history = dbg.record().history
    full = history.steps[history.read].tolist()
    assert 4 <= len(full) < 20
    assert [(alert.step, alert.layer) for alert in told] == [(step, name) for step in full for name in ("fc1", "fc2")]
    assert len(read) == 2 * len(full)
    assert dbg.record().info.coverage["cost"]["parts_s"]["layers"] > 0.002 * len(read)


# -- which layers a hook is about -------------------------------------------------------------------------------------


def test_a_new_hook_does_not_inherit_the_layers_of_one_that_is_gone() -> None:
    """An identity comes again as soon as its hook is gone."""
    model, told = Net(), []
    x, _ = vectors()
    with NeuralDbg(model, probes=False) as dbg:
        for count in range(200):
            layer = ("fc1", "fc2")[count % 2]
            action = HookAction.callback(lambda context, layer=layer: told.append((layer, context.layer)))
            hook = Hook("hook", HookTrigger("before_layer"), [action], [layer])
            dbg._hooks.add(hook)
            model(x)
            dbg._hooks.drop([hook])
            del hook, action
            gc.collect(0)
    assert len(told) == 200
    assert [pair for pair in told if pair[0] != pair[1]] == []
