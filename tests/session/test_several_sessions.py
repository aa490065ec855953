"""Several sessions at once: each listens for itself and answers as if it were alone, in whatever order they end.

A program under ``neuraldbg run`` may say ``with NeuralDbg(model)`` itself, or be pytest with tests that do.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg, Run, TrainingHalted
from neuraldbg.control import TriggerEngine
from neuraldbg.errors import AttachError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OUTER = [
    {}, {"overhead": None}, {"settings": {"capture": {"allowance_s": 0.0}}},
    {"settings": {"capture": {"allowance_s": 3600.0}}},
]  # fmt: skip
"""As by default, with every site at every step, with light steps from the first that may be one, and with none that
follow from how fast this machine is."""


class Program:
    """A model whose loss takes a softmax twice, and a loop."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.Sigmoid(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.losses: list[float] = []

    def step(self) -> None:
        x, y = torch.randn(8, 6), torch.randint(3, (8,))
        self.optimizer.zero_grad()
        loss = F.cross_entropy(torch.softmax(self.model(x), -1), y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def state(self) -> tuple[list[float], list[list[float]]]:
        return self.losses, [p.flatten().tolist() for p in self.model.parameters()]


def told(session: NeuralDbg) -> dict[str, Any]:
    """Return the diagnosis without what the run cost."""
    told = json.loads(session.diagnose().to_json())
    for key in ("duration_s", "overhead_ratio"):
        del told["run"][key]
    del told["run"]["coverage"]["cost"]
    return told


MEASURED = {"timing", "footprint", "growth"}
"""Facts that are times and bytes of this moment."""
DERIVED = {"dead_indices"}
"""Facts from the steps that were delivered before theirs: how many those are depends on the time they wait. The last
version of each counts.
"""


def facts(session: NeuralDbg) -> list[tuple[int, str, str]]:
    """Return the facts of a session, without what was measured and without the code of those who call the training:
    a session in another is called by other lines.
    """
    told = [fact for fact in session.record().facts if fact.key not in MEASURED]
    values = [{name: held for name, held in fact.value.items() if not name.startswith("code above")} for fact in told]
    read = [(fact.step, fact.key, json.dumps(value, sort_keys=True)) for fact, value in zip(told, values, strict=True)]
    last = {key: (-1, key, value) for _, key, value in read if key in DERIVED}
    return [fact for fact in read if fact[1] not in {*DERIVED, "experiment"}] + list(last.values())


def same_experiments(one: NeuralDbg, other: NeuralDbg) -> bool:
    """Return True if each experiment that both had the time for came out the same: a busy machine leaves some out."""
    found: list[dict[str, Any]] = []
    for session in (one, other):
        values = [fact.value for fact in session.record().facts if fact.key == "experiment"]
        found.append({value["id"]: value for value in values if value["judged"]})
    return all(found[0][name] == found[1][name] for name in found[0].keys() & found[1].keys())


def nested(inner: Callable[[nn.Module], NeuralDbg] | None) -> tuple[Program, NeuralDbg | None]:
    program, session = Program(), None
    program.train(30)
    if inner is None:
        program.train(100)
    else:
        with inner(program.model) as session:
            program.train(100)
    program.train(40)
    return program, session


@pytest.mark.budget
@pytest.mark.parametrize("options", OUTER)
def test_a_session_in_another_answers_as_if_it_were_alone(options: dict[str, Any], tmp_path: Path) -> None:
    """Both do: what they say, which facts they read and what is in the file; and the program does not notice."""

    def inner(out: str) -> Callable[[nn.Module], NeuralDbg]:
        return lambda model: NeuralDbg(model, overhead=None, out=tmp_path / out)

    bare, _ = nested(None)
    _, alone = nested(inner("alone"))
    with NeuralDbg(discover=True, **options) as outer_alone:
        nested(None)
    with NeuralDbg(discover=True, **options) as outer:
        program, joined = nested(inner("joined"))
    assert program.state() == bare.state()
    assert alone is not None
    assert joined is not None
    assert (joined.steps, outer.steps) == (100, 170)
    assert told(joined) == told(alone)
    assert told(joined)["hypotheses"][0]["cause"] == "double_softmax"
    assert facts(joined) == facts(alone)
    assert same_experiments(joined, alone)
    assert Run.load(tmp_path / "joined").layout.sites == Run.load(tmp_path / "alone").layout.sites
    assert told(outer)["hypotheses"][0]["cause"] == told(outer_alone)["hypotheses"][0]["cause"] == "double_softmax"
    if options in OUTER[1::2]:  # else light steps follow from how fast this machine is
        assert facts(outer) == facts(outer_alone)
        assert same_experiments(outer, outer_alone)


@pytest.mark.parametrize("order", ["last first", "first first"])
def test_two_side_by_side_in_either_order_of_ending(order: str) -> None:
    """torch is left as it was found, too: see ``tests/conftest.py``."""
    one, other = Program(1), Program(2)
    first, second = NeuralDbg(one.model), NeuralDbg(other.model)
    first.start()
    one.train(3)
    second.start()
    for _ in range(10):
        one.step()
        other.step()
    ends, stays = (second, first) if order == "last first" else (first, second)
    ends.stop()
    (one if stays is first else other).train(5)
    stays.stop()
    assert (first.steps, second.steps) == ((18, 10) if stays is first else (13, 15))
    assert first.record().layout.by_path.keys() == second.record().layout.by_path.keys()
    assert first.inspect("2").step == first.steps - 1


def test_many_one_after_another_as_tests_of_a_suite_do(tmp_path: Path) -> None:
    with NeuralDbg(discover=True, out=tmp_path / "outer") as outer:
        for number in range(5):
            program = Program(number)
            with NeuralDbg(program.model, out=tmp_path / str(number)) as dbg:
                program.train(4)
            assert dbg.steps == 4
            assert Run.load(tmp_path / str(number)).steps == 4
    assert outer.steps == 20
    assert len(Run.load(tmp_path / "outer").info.models) == 5


def test_the_same_model_twice_and_all_questions() -> None:
    seen, stopped = [], []
    program = Program()
    with NeuralDbg(discover=True) as outer:
        program.train(3)
        with NeuralDbg(program.model, snapshots=["0"], on_step=lambda step, events: seen.append(step.index)) as dbg:
            with NeuralDbg(program.model, overhead=None) as third:
                program.train(4)
                dbg.capture_step(step=1003)
                assert (dbg.steps, third.steps, outer.steps) == (4, 4, 7)
            dbg.add_breakpoint("nonfinite_gradient", stopped.append)
            state = dbg.inspect("0", step=3)
            assert state.output.shape == (8, 16)
            assert dbg.get_gradient_history("0").steps.tolist() == [0, 1, 2, 3]
            assert dbg.analyze_gradient_health().layers["0"] == "healthy"
            with torch.no_grad():
                program.model[0].weight[0, 0] = float("nan")
            program.step()
            assert [event.kind for event in stopped][:1] == ["nonfinite_gradient"]
            assert dbg.has_exploding_gradients()
    assert seen == list(range(5))
    assert outer.diagnose().verdict == dbg.diagnose().verdict == "failing"


@pytest.mark.parametrize("halt", [True, TriggerEngine(1e-9, 3.0)])
def test_a_session_inside_halts_its_own_model(halt: bool | TriggerEngine) -> None:
    program = Program()
    with NeuralDbg(discover=True) as outer:
        program.train(5)
        with pytest.raises(TrainingHalted) as halted, NeuralDbg(program.model, halt=halt):  # noqa: PT012 (what halts is inside)
            program.train(2)
            before = program.state()[1]
            with torch.no_grad():
                before[0][0] = float("nan")
                program.model[0].weight[0, 0] = float("nan")
            program.train(3)
        if halt is True:
            assert halted.value.step == 2
            assert str(program.state()[1]) == str(before), "the weights of the step before"
            with torch.no_grad():
                program.model[0].weight[0, 0] = 0.0
        program.train(6)
    assert outer.steps in range(11, 15)


def test_an_experiment_of_one_is_no_training_of_another() -> None:
    """A copy that one session calls is no model of the program to the other, which discovers what is called."""
    programs = [Program(seed) for seed in range(2)]
    with NeuralDbg(discover=True, overhead=None) as outer, NeuralDbg(discover=True, overhead=None) as inner:
        for program in programs:
            program.train(40)
    for session in (outer, inner):
        assert len(session.record().info.models) == 2
        tried = [fact for fact in session.record().facts if fact.key == "experiment"]
        assert tried
        assert session.record().info.coverage["errors"] == 0
    assert facts(outer) == facts(inner)
    assert same_experiments(outer, inner)


def test_an_exception_inside_one_reaches_the_program_and_ends_that_one_alone() -> None:
    program = Program()
    with NeuralDbg(discover=True) as outer:
        with pytest.raises(KeyError, match="mine"), NeuralDbg(program.model) as dbg:  # noqa: PT012 (the same)
            program.train(2)
            raise KeyError("mine")
        program.train(2)
    assert (dbg.steps, outer.steps) == (2, 4)
    assert dbg.record().info.outcome.kind == "raised"
    assert outer.record().info.outcome.kind == "completed"


def test_saved_tensors_that_are_packed_are_told_by_both() -> None:
    program = Program()
    with NeuralDbg(discover=True) as outer, NeuralDbg(program.model) as dbg:
        with torch.autograd.graph.save_on_cpu():
            program.step()
        program.train(3)
    notes = [session.record().info.coverage["notes"] for session in (outer, dbg)]
    assert notes[0] == notes[1]
    assert "saved tensors are packed" in notes[0][0]


def test_one_session_cannot_be_started_twice() -> None:
    program = Program()
    with NeuralDbg(program.model) as dbg:
        with pytest.raises(AttachError, match="runs already"):
            dbg.start()
        program.train(2)
    assert dbg.steps == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_may_have_a_session_of_its_own() -> None:
    program = Program()
    read, write = os.pipe()
    with NeuralDbg(discover=True) as outer:
        program.train(2)
        child = os.fork()
        if child == 0:
            try:
                mine = Program(3)
                with NeuralDbg(mine.model, probes=False) as dbg:
                    mine.train(3)
                os.write(write, f"{dbg.steps} {dbg.diagnose().verdict}".encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        program.train(2)
    assert os.read(read, 100).split()[0] == b"3"
    os.close(read)
    os.close(write)
    assert outer.steps == 4


def test_compiled_models_under_two(fresh_compiler: None) -> None:
    """Each step is compiled with the hooks of both, and trains as with those of one."""

    def run(sessions: int) -> list[float]:
        torch._dynamo.reset()
        program = Program()
        program.model = torch.compile(program.model)
        if sessions == 0:
            program.train(6)
        elif sessions == 1:
            with NeuralDbg(program.model) as dbg:
                program.train(6)
        else:
            with NeuralDbg(discover=True) as outer:
                program.train(2)
                with NeuralDbg(program.model) as dbg:
                    program.train(4)
            assert outer.steps == 6
            assert outer.inspect("0").statistics["activation"]["count"] > 0
        if sessions:
            assert dbg.inspect("0").statistics["activation"]["count"] > 0
            assert dbg.record().info.coverage["errors"] == 0
        return program.losses

    bare = run(0)
    assert run(1) == pytest.approx(bare)
    assert run(2) == pytest.approx(bare)
