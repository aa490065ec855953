"""What a session says to bad input, and that a run goes on whatever happens to its folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.session.seeded_trainings import ConvNet, Mlp, vectors
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg, NeuralDbgError, Run
from neuraldbg.errors import AttachError, ConfigError, RunNotFound, UnknownLayer

if TYPE_CHECKING:
    from pathlib import Path


def train(model: nn.Module, steps: int = 5) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x, y = vectors()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize("name", ["fc3", "fc_9", "linear3", "fc0", "encoder.layer.0", "conv1"])
def test_unknown_layers_come_with_suggestions(name: str) -> None:
    model = Mlp()
    with NeuralDbg(model) as dbg:
        train(model)
        for ask in (dbg.inspect, dbg.inspect_layer, dbg.get_gradient_history):
            with pytest.raises(UnknownLayer) as caught:
                ask(name)
            assert name in str(caught.value)
            assert set(caught.value.suggestions) <= {"fc1", "fc2", "norm", "drop"}
            assert caught.value.suggestions
    if name == "fc3":
        assert "Did you mean: fc" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((nn.ReLU(),), {}, "ReLU has no parameters"),
        ((None,), {}, "needs a model, or discover=True"),
        (("model",), {}, "expected a torch.nn.Module, got str"),
        ((Mlp,), {}, "expected a torch.nn.Module"),
        ((Mlp(), torch.optim.SGD(ConvNet().parameters())), {}, "made for another model"),
        ((Mlp(), "sgd"), {}, "expected a torch.optim.Optimizer"),
        ((Mlp(),), {"settings": {"captur": {}}}, "setting 'captur'.*known: capture"),
        ((Mlp(),), {"settings": {"capture": {"every": 0}}}, r"setting 'capture.every'"),
        ((Mlp(),), {"settings": {"capture": {"ever": 1}}}, r"setting 'capture.ever'.*known:.*every"),
        ((Mlp(),), {"thresholds": {"vanishing": {"floor": 1.0}}}, "vanishing"),
        ((Mlp(),), {"thresholds": {"vanishing_gradients": {"flor": 1.0}}}, "flor"),
        ((Mlp(),), {"snapshots": ["fc9"]}, "fc9"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(NeuralDbgError, match=message), NeuralDbg(*arguments, **options):
        pytest.fail("started")


def test_it_is_a_value_error_and_a_key_error_too() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(UnknownLayer, KeyError)
    assert issubclass(AttachError, RuntimeError)
    assert issubclass(RunNotFound, OSError)


def test_double_and_nested_sessions() -> None:
    model = Mlp()
    with NeuralDbg(model) as dbg:
        with pytest.raises(AttachError, match="runs already"):
            dbg.start()
        with NeuralDbg(model) as inner:
            train(model, 2)
        train(model)
    assert (dbg.steps, inner.steps) == (7, 2)
    with NeuralDbg(model) as again:
        train(model, 3)
    assert (dbg.steps, again.steps) == (7, 3)


def test_a_session_that_is_used_again_says_so_or_starts_clean(tmp_path: Path) -> None:
    model = Mlp()
    dbg = NeuralDbg(model, out=tmp_path / "run")
    with dbg:
        train(model)
    with pytest.raises(AttachError, match="ended"):
        dbg.start()
    assert Run.load(tmp_path / "run").steps == 5


def test_questions_before_there_is_an_answer() -> None:
    model = Mlp()
    dbg = NeuralDbg(model)
    with pytest.raises(AttachError, match="never started"):
        dbg.diagnose()
    assert dbg.steps == 0
    with dbg:
        assert dbg.explain_failure() == []
        assert dbg.diagnose().verdict == "inconclusive"
        assert not dbg.has_vanishing_gradients()
        assert not dbg.trace_causal_chain("nan")
        assert dbg.detect_coupled_failures() == []
        assert dbg.analyze_gradient_health().step == -1
        assert len(dbg.get_gradient_history("fc1")) == 0
        with pytest.raises(LookupError, match="no step"):
            dbg.inspect("fc1")
        with pytest.raises(UnknownLayer):
            dbg.inspect("nothing")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    model = Mlp()
    with NeuralDbg(model, out=tmp_path / "taken" / "run") as dbg:
        train(model)
        assert dbg.folder is None
        assert "taken" in dbg.problem
        assert dbg.inspect("fc1").step == 4
    assert dbg.steps == 5
    assert dbg.diagnose().run["steps"] == 5


def test_a_folder_that_vanishes_in_the_middle(tmp_path: Path) -> None:
    model = Mlp()
    with NeuralDbg(model, out=tmp_path / "run") as dbg:
        train(model)
        dbg.record()
        shutil.rmtree(tmp_path / "run")
        train(model)
    assert dbg.diagnose().run["steps"] == 10
    # What was kept in memory is saved where the folder was.
    assert Run.load(tmp_path / "run").diagnose().run["steps"] == 10


def test_our_own_errors_are_counted_and_told_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An internal error in every hook: training goes on, and the coverage says how many there were."""
    from neuraldbg.capture.layers.hook_manager import Probe

    monkeypatch.delenv("NEURALDBG_STRICT")

    def broken(self: Probe, *args: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Probe, "slot", broken, raising=True)
    with pytest.raises(ZeroDivisionError), NeuralDbg(Mlp()):
        pytest.fail("started")
    monkeypatch.undo()
    monkeypatch.delenv("NEURALDBG_STRICT")
    model = Mlp()
    with NeuralDbg(model) as dbg:
        monkeypatch.setattr("neuraldbg.capture.loop.backward.walk", broken)
        train(model)
    coverage = dbg.record().info.coverage
    assert coverage["errors"] >= 3
    assert any("ours" in note for note in coverage["notes"])
    assert dbg.steps == 5
    assert dbg.diagnose().verdict
