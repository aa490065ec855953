"""What a session says to bad input, and that a run goes on whatever happens to its folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.session.seeded_trainings import ConvNet, Mlp, vectors
from torch import nn
from torch.nn import functional as F

from neuraldbg import (
    DebugVisualizer,
    HookManager,
    NeuralDbg,
    NeuralDbgError,
    RingBuffer,
    Run,
    TriggerEngine,
    VisualizationConfig,
    load,
)
from neuraldbg.errors import AttachError, ConfigError, RunNotFound, UnknownLayer, UnknownName
from neuraldbg.nouns import Chain, ChainNode, Remedy

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


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[NeuralDbg, Run]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    with NeuralDbg(model, out=tmp_path_factory.mktemp("runs") / "run") as dbg:
        train(model)
    assert dbg.folder is not None
    return dbg, Run.load(dbg.folder)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("wrong", [0, None, 3.5, [], b"x", nn.Linear(2, 2)])
def test_names_of_a_wrong_type(watched: tuple[NeuralDbg, Run], wrong: Any, *, live: bool) -> None:
    run = watched[not live]
    for ask in (run.inspect, run.inspect_layer, run.get_gradient_history):
        with pytest.raises(ConfigError, match="named by its path in the model"):
            ask(wrong)
    with pytest.raises(ConfigError, match="asked for by its name: give text, not"):
        run.trace_causal_chain(wrong)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("wrong", ["3", 3.5, [], True, float("nan"), torch.zeros(2)])
def test_steps_of_a_wrong_type(watched: tuple[NeuralDbg, Run], wrong: Any, *, live: bool) -> None:
    with pytest.raises(ConfigError, match=r"step: give (a|one) whole number"):
        watched[not live].inspect("linear1", step=wrong)
    assert watched[not live].inspect("linear1", step=torch.tensor(3)).step == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda dbg, run: dbg.add_breakpoint(0),
        lambda dbg, run: dbg.add_breakpoint("loss_spike", 5),
        lambda dbg, run: dbg.capture_step("3"),
        lambda dbg, run: run.compare(0),
        lambda dbg, run: run.compare(run, names="A"),
        lambda dbg, run: run.compare(run, names=("A", "B", "C")),
        lambda dbg, run: run.compare("no such run"),
        lambda dbg, run: load(3),
        lambda dbg, run: run.report(3),
        lambda dbg, run: run.export(3),
        lambda dbg, run: run.export("x.json", layers="linear1"),
        lambda dbg, run: run.export("x.json", stats=[1]),
        lambda dbg, run: NeuralDbg(Mlp(), halt="yes"),
        lambda dbg, run: NeuralDbg(Mlp(), out=3),
        lambda dbg, run: NeuralDbg(Mlp(), snapshots="fc1"),
        lambda dbg, run: NeuralDbg(Mlp(), snapshots=["fc1"], snapshot_bytes=-1),
        lambda dbg, run: NeuralDbg(Mlp(), settings=3),
        lambda dbg, run: NeuralDbg(Mlp(), thresholds={"loss_spike": 3}),
        lambda dbg, run: NeuralDbg(Mlp(), on_step=3),
        lambda dbg, run: NeuralDbg(Mlp()).has_exploding_gradients(),
        lambda dbg, run: TriggerEngine("x"),
        lambda dbg, run: TriggerEngine(100, 0),
        lambda dbg, run: TriggerEngine().check("x", {}),
        lambda dbg, run: TriggerEngine().check(1.0, [1]),
        lambda dbg, run: RingBuffer("x"),
        lambda dbg, run: RingBuffer(3).add("x", {}, {}),
        lambda dbg, run: RingBuffer(3).save_json(3),
        lambda dbg, run: HookManager(layers=3),
        lambda dbg, run: DebugVisualizer({"theme": "dark"}),
        lambda dbg, run: VisualizationConfig(size_in=(0, 1)),
        lambda dbg, run: VisualizationConfig(size_in=(-3, 2)),
        lambda dbg, run: VisualizationConfig(size_in="big"),
        lambda dbg, run: VisualizationConfig(size_in=(1,)),
        lambda dbg, run: VisualizationConfig(size_in=(1e9, 2)),
        lambda dbg, run: VisualizationConfig(formats="png"),
        lambda dbg, run: VisualizationConfig(output_directory=None),
    ],
)
def test_wrong_arguments_are_errors_of_the_tree(watched: tuple[NeuralDbg, Run], call: Any) -> None:
    with pytest.raises(NeuralDbgError) as caught:
        call(*watched)
    assert len(str(caught.value)) > 20


def test_a_verdict_that_does_not_exist(watched: tuple[NeuralDbg, Run]) -> None:
    with pytest.raises(ValueError, match="a verdict is one of healthy"):
        watched[1].diagnose().worse_or_equal("bad")


def test_a_run_is_compared_with_a_path(watched: tuple[NeuralDbg, Run]) -> None:
    dbg, run = watched
    assert dbg.folder is not None
    assert run.compare(dbg.folder).verdict == run.compare(run).verdict


def test_suggestions_are_what_was_meant(watched: tuple[NeuralDbg, Run]) -> None:
    for name, first in {
        "explodng": "exploding_gradients",
        "vanishng": "vanishing_gradients",
        "loss_spik": "loss_spike",
        "lienar1": "linear1",
        "linear9": "linear2",
    }.items():
        with pytest.raises(UnknownName) as caught:
            watched[1].trace_causal_chain(name)
        assert caught.value.suggestions[0] == first
    for name in ("lienar1", "linear9"):
        with pytest.raises(UnknownLayer) as unknown:
            watched[0].inspect(name)
        assert unknown.value.suggestions[0] in ("linear1", "linear2")
    with pytest.raises(UnknownLayer) as unknown:
        watched[0].inspect("linear9")
    assert unknown.value.suggestions == ("linear2", "linear1")


def test_answers_print_in_words(watched: tuple[NeuralDbg, Run]) -> None:
    state = watched[0].inspect("linear1", step=3)
    assert repr(state).startswith("<LayerState: 0 (Linear), step 3; activation")
    assert "param_grad/weight: norm" in str(state)
    node = ChainNode("cause:x", "cause", "softmax applied twice", step=0)
    assert (
        str(Chain((node,))) == "softmax applied twice, step 0: it stands alone, nothing else in this run follows "
        "from it or leads to it"
    )
    assert repr(Chain(about="nan")) == "<Chain about 'nan': nothing found>"
    assert str(Remedy("Lower it.", "lr = 1\nx = 2")) == "Lower it.\n    lr = 1\n    x = 2"


def test_the_steps_in_the_repr_are_those_so_far() -> None:
    model = Mlp()
    with NeuralDbg(model) as dbg:
        assert "0 steps" in repr(dbg)
        train(model, 3)
        assert "running, 3 steps of Mlp" in repr(dbg)
