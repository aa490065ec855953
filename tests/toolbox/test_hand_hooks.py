"""Hooks by hand: which layers and steps they run at, what they do, and the alerts that they raise."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from neuraldbg import AlertSeverity, HookAction, HookBuilder, HookTrigger, register_hook
from neuraldbg.alerts import Alerts
from neuraldbg.control import registered_hooks
from neuraldbg.debugger import entry
from neuraldbg.errors import ConfigError, TrainingHalted, UnknownName
from neuraldbg.nouns import Event
from neuraldbg.toolbox import hand_stops
from neuraldbg.toolbox.hand_hooks import HandHooks, pattern_fits

if TYPE_CHECKING:
    from pathlib import Path


@np.errstate(over="ignore")
def statistics(x: np.ndarray) -> dict[str, float]:
    """The oracle: statistics as numpy computes them."""
    flat = np.asarray(x, np.float64).reshape(-1)
    finite = flat[np.isfinite(flat)]
    told = {"total": x.size, "count": x.size, "nonfinite": x.size - finite.size, "zeros": int((flat == 0).sum())}
    some = finite if finite.size else np.array([math.nan])
    told |= {"mean": some.mean(), "std": some.std(), "min": some.min(), "max": some.max()}
    told |= {"rms": np.sqrt((some**2).mean()), "norm": np.linalg.norm(finite), "absmax": np.abs(some).max()}
    return {name: float(value) for name, value in told.items()}


class Session:
    """A session by hand as hooks see it, which writes down what they ask of it."""

    def __init__(self, folder: Path | None = None, **more: Any) -> None:
        self.step = 0
        self.inspected: list[tuple[np.ndarray, str, str, str]] = []
        self.gradients: list[tuple[str, np.ndarray]] = []
        self.facts: list[Any] = []
        self.layers: list[str] = []
        self.read = 0
        more.setdefault("alerts", Alerts((), terminal=False))
        self.hooks = HandHooks(
            step=lambda: self.step,
            statistics=self.statistics,
            inspect=self.inspect,
            record_gradient=lambda layer, x: self.gradients.append((layer, x)),
            folder=lambda: folder,
            halt=self.halt,
            layers=lambda: self.layers,
            note=self.facts.extend,
            **more,
        )

    def statistics(self, x: np.ndarray) -> dict[str, float]:
        self.read += 1
        return statistics(x)

    def inspect(self, x: np.ndarray, name: str, layer: str, operation: str) -> int:
        self.inspected.append((x, name, layer, operation))
        return 100 + len(self.inspected)

    def halt(self, reason: str) -> None:
        raise TrainingHalted(reason, self.step)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def none_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_hooks, "_REGISTERED", registered_hooks._Registered())


def hook(*actions: HookAction, trigger: HookTrigger | None = None, name: str = "h") -> Any:
    builder = HookBuilder(name).trigger(trigger or HookTrigger())
    for action in actions:
        builder.action(action)
    return builder.build()


# -- the document ---------------------------------------------------------------------------------------------------


def test_the_example_of_the_document(session: Session) -> None:
    """Translated line by line from the source document on the toolbox, "Using Debugging Hooks"."""
    monitor = (
        HookBuilder("Layer Monitor")
        .trigger(HookTrigger.EveryForward)
        .action(HookAction.InspectTensor)
        .layer_patterns(["attention.*"])
        .max_executions(100)
        .build()
    )
    hook_id = session.hooks.register_hook(monitor)
    tensor_data = [1.0, 2.0, 3.0, 4.0]
    results = session.hooks.execute_hooks("attention_layer_1", tensor_data, [2, 2], True, None)
    assert hook_id == monitor.serial
    (result,) = results
    assert (result.action, result.layer, result.shape, result.dtype) == (
        "inspect_tensor", "attention_layer_1", (2, 2), "float64",
    )  # fmt: skip
    assert result.statistics == statistics(np.array(tensor_data))
    assert result.tensor_id == 101
    array, *named = session.inspected[0]
    assert array.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert named == ["attention_layer_1", "attention_layer_1", "forward"]
    for _ in range(200):
        session.hooks.execute_hooks("attention_layer_1", tensor_data)
    assert monitor.executions == 100
    assert monitor.over


def test_names_of_the_document_are_second_names_of_the_same_objects() -> None:
    for kind in (HookTrigger, HookAction):
        pairs = [
            (name, "".join(part.capitalize() for part in name.split("_"))) for name in vars(kind) if name.isupper()
        ]
        assert len(pairs) >= 3
        for upper, camel in pairs:
            assert getattr(kind, camel) is getattr(kind, upper)


# -- layers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("attention.*", ["attention_layer_1", "attention", "layers.0.attention.query"], ["my_attention"]),
        ("attention_.*", ["attention_layer_1"], ["attention.query"]),
        ("attention*", ["attention_layer_1", "attention", "attention.query", "layers.0.attention"], ["preattention"]),
        ("fc1", ["fc1", "encoder.fc1"], ["fc10", "fc11", "afc1"]),
        ("layers.1", ["layers.1"], ["layers_1", "layersX1", "layers.10", "layers.1.fc"]),
        (r"layers\.\d+", ["layers.1", "layers.10"], ["layers.1.fc", "layers_1"]),
        ("*.weight", ["fc.weight"], ["weights"]),
        ("(q|k|v)_proj", ["q_proj", "v_proj"], ["o_proj", "q_proj2"]),
        ("block_[0-3]", ["block_2", "net.block_2"], ["block_4"]),
        ("[", ["["], ["a"]),
        ("*", ["a", "a.b"], []),
    ],
)  # fmt: skip
def test_patterns(session: Session, pattern: str, fitting: list[str], others: list[str]) -> None:
    made = HookBuilder("p").action(HookAction.INSPECT_TENSOR).layer_patterns([pattern]).build()
    session.hooks.register_hook(made)
    for path in fitting:
        assert pattern_fits(pattern, path), path
        assert len(session.hooks.execute_hooks(path, [1.0])) == 1
        assert len(session.hooks.execute_hooks(path, [1.0])) == 1, "the second time from what is remembered"
    for path in others:
        assert not pattern_fits(pattern, path), path
        assert session.hooks.execute_hooks(path, [1.0]) == []


def test_forward_and_backward_are_two_moments(session: Session) -> None:
    forward, backward = hook(HookAction.INSPECT_TENSOR), hook(HookAction.TRACK_GRADIENTS)
    session.hooks.register_hook(forward)
    session.hooks.register_hook(backward)
    assert [one.moment for one in session.hooks.execute_hooks("fc", [1.0])] == ["after_layer"]
    (result,) = session.hooks.execute_hooks("fc", np.float32([3.0, 4.0]), is_forward=False)
    assert (result.action, result.dtype, result.statistics["norm"]) == ("track_gradients", "float32", 5.0)
    assert [(layer, x.tolist()) for layer, x in session.gradients] == [("fc", [3.0, 4.0])]
    assert len(session.inspected) == 1
    assert (forward.executions, backward.executions) == (1, 1)


def test_values_are_not_read_if_no_hook_is_due(session: Session) -> None:
    session.hooks.register_hook(hook(HookAction.INSPECT_TENSOR, trigger=HookTrigger.every_n_steps(10)))
    assert session.hooks.execute_hooks("fc", "no numbers", step=3) == []
    assert session.read == 0
    with pytest.raises(ConfigError, match="values are not numbers"):
        session.hooks.execute_hooks("fc", "no numbers", step=10)


def test_statistics_are_computed_once_for_all_hooks(session: Session) -> None:
    for _ in range(5):
        session.hooks.register_hook(hook(HookAction.INSPECT_TENSOR))
    assert len(session.hooks.execute_hooks("fc", np.ones(4))) == 5
    assert session.read == 1


@given(arrays.arrays(st.sampled_from(["f2", "f4", "f8", "i4", "u1", "?"]), arrays.array_shapes(min_side=0)))
def test_any_array_is_passed_on_as_it_is(x: np.ndarray) -> None:
    session = Session()
    session.hooks.register_hook(hook(HookAction.RECORD_ACTIVATIONS, HookAction.INSPECT_TENSOR))
    recorded, inspected = session.hooks.execute_hooks("fc", x)
    np.testing.assert_array_equal(recorded.tensor, x)
    assert recorded.tensor.dtype == x.dtype
    assert (recorded.shape, recorded.dtype) == (x.shape, str(x.dtype))
    assert recorded.tensor.base is None, "a copy"
    if x.size:
        np.testing.assert_equal(inspected.statistics, statistics(x))
    else:
        assert inspected.statistics == {}


@pytest.mark.parametrize("shape", [(3,), (2, 3), (-1, 2), (2.0, 2), "22"])
def test_a_shape_that_does_not_fit_is_refused(session: Session, shape: Any) -> None:
    session.hooks.register_hook(hook(HookAction.INSPECT_TENSOR))
    with pytest.raises(ConfigError, match="shape"):
        session.hooks.execute_hooks("fc", [1.0, 2.0, 3.0, 4.0], shape)


@pytest.mark.parametrize("values", [[[1.0], [1.0, 2.0]], ["a"], {"a": 1}, object(), None, np.array(["x"])])
def test_values_that_are_no_numbers_are_refused(session: Session, values: Any) -> None:
    session.hooks.register_hook(hook(HookAction.INSPECT_TENSOR))
    with pytest.raises(ConfigError, match="values are not numbers"):
        session.hooks.execute_hooks("fc", values)


# -- steps ----------------------------------------------------------------------------------------------------------


def test_hooks_of_steps_and_conditions_see_the_step_that_ended(session: Session) -> None:
    seen: list[Any] = []
    session.hooks.register_hook("after_step", lambda step, loss: seen.append((step, loss)), every=2)
    session.hooks.register_hook("on_loss", lambda step, loss: seen.append(("loss", step, loss)))
    late = hook(HookAction.INSPECT_TENSOR, trigger=HookTrigger.loss_above(5) & HookTrigger.step_range(1, 3))
    session.hooks.register_hook(late)
    for session.step in range(5):
        session.hooks.execute_hooks("fc", [1.0])
        session.hooks.step_ended(session.step, {"loss": 4.0 + session.step} if session.step != 1 else {})
    assert seen == [
        (0, 4.0),
        ("loss", 0, 4.0),
        (2, 6.0),
        ("loss", 2, 6.0),
        ("loss", 3, 7.0),
        (4, 8.0),
        ("loss", 4, 8.0),
    ]
    assert [one.step for one in late.results] == [3]


def test_conditions_on_the_layer_read_its_statistics(session: Session) -> None:
    made = hook(HookAction.alert("large", "error"), trigger=HookTrigger.condition("layer.absmax > 10"))
    session.hooks.register_hook(made)
    session.hooks.execute_hooks("fc", [1.0, -3.0])
    session.hooks.execute_hooks("fc", [1.0, -30.0], step=7)
    (alert,) = session.hooks.alerts
    assert (alert.severity, alert.rule, alert.layer, alert.step, alert.value) == ("error", "h", "fc", 7, 30.0)


def test_an_event_runs_its_hooks_once(session: Session) -> None:
    seen: list[Event] = []
    session.hooks.register_hook("on_event", seen.append)
    event = Event("nonfinite_loss", "loss", 3, 3)
    session.hooks.step_ended(3, {"loss": math.nan}, [event])
    session.hooks.step_ended(4, {"loss": math.nan}, [Event("nonfinite_loss", "loss", 3, 4)])
    assert seen == [event]


def test_memory_is_that_of_the_process_or_what_the_program_gave(session: Session) -> None:
    made = hook(HookAction.alert("much"), trigger=HookTrigger("after_step") & HookTrigger.memory_above(2**40))
    session.hooks.register_hook(made)
    session.hooks.step_ended(0, {})
    assert made.executions == 0
    session.hooks.step_ended(1, {"device_memory": 2.0**41})
    assert made.executions == 1


# -- actions --------------------------------------------------------------------------------------------------------


def test_a_callback_gets_the_values_and_cannot_change_them(session: Session) -> None:
    seen: list[Any] = []
    session.hooks.register_hook(hook(HookAction.callback(seen.append), trigger=HookTrigger("after_layer")))
    x = np.arange(6.0).reshape(2, 3)
    session.hooks.execute_hooks("fc", x)
    session.hooks.execute_hooks("fc", x)
    context = seen[1]
    assert (context.layer, context.step, context.call, context.moment) == ("fc", 0, 2, "after_layer")
    assert np.shares_memory(context.value, x)
    with pytest.raises(ValueError, match="read-only"):
        context.value[0, 0] = 1.0


def test_snapshots_are_files_of_numpy(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.hooks.register_hook(hook(HookAction.SAVE_SNAPSHOT, name="my hook"))
    (result,) = session.hooks.execute_hooks("block/0", [[1, 2], [3, 4]], step=12)
    assert result.file == str(tmp_path / "snapshots" / "my_hook-block_0-after_layer-step000012.npy")
    assert np.load(result.file).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ConfigError, match="has no folder: give the session an output_dir"):
        Session().hooks.register_hook(hook(HookAction.SAVE_SNAPSHOT))


def test_recorded_activations_stay_within_their_bytes(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuraldbg.hook_actions.RECORDED_BYTES", 100)
    made = hook(HookAction.RECORD_ACTIVATIONS)
    session.hooks.register_hook(made)
    for step in range(5):
        session.hooks.execute_hooks("fc", np.full(5, float(step)), step=step)
    assert [one.step for one in made.results if one.tensor is not None] == [3, 4]
    assert len(made.results) == 5


def test_halt_stops_the_training(session: Session) -> None:
    session.hooks.register_hook(hook(HookAction.HALT, trigger=HookTrigger("after_layer", first=2)))
    session.hooks.execute_hooks("fc", [1.0], step=1)
    with pytest.raises(TrainingHalted, match="the hook 'h' asked for it"):
        session.hooks.execute_hooks("fc", [1.0], step=2)


def test_a_hook_that_raises_is_reported_and_switched_off(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(context: Any) -> None:
        raise RuntimeError(f"at {context.layer}")

    bad, good = (
        hook(HookAction.callback(fail), trigger=HookTrigger("after_layer"), name="bad"),
        hook(HookAction.INSPECT_TENSOR),
    )
    session.hooks.register_hook(bad)
    session.hooks.register_hook(good)
    with caught() as told:
        assert len(session.hooks.execute_hooks("fc", [1.0])) == 1
        assert len(session.hooks.execute_hooks("fc", [1.0])) == 1
    assert len(told) == 1
    assert "the hook 'bad' raised at layer 'fc', step 0; it is switched off, and the training goes on" in told[0]
    assert "RuntimeError: at fc" in told[0]
    assert not bad.enabled
    assert "the hook 'bad', a function of the program, raised once, at step 0" in session.hooks.notes[0]


class caught:  # noqa: N801 (a context)
    """The messages of the logger ``neuraldbg`` in this context."""

    def __enter__(self) -> list[str]:
        self.told: list[str] = []
        self.handler = logging.Handler()
        self.handler.emit = lambda record: self.told.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("neuraldbg").addHandler(self.handler)
        return self.told

    def __exit__(self, *_: object) -> None:
        logging.getLogger("neuraldbg").removeHandler(self.handler)


def test_a_hook_that_executes_hooks_does_not_run_for_ever(session: Session) -> None:
    def again(context: Any) -> None:
        assert session.hooks.execute_hooks(context.layer, context.value) == []

    made = hook(HookAction.callback(again), trigger=HookTrigger("after_layer"))
    session.hooks.register_hook(made)
    session.hooks.execute_hooks("fc", [1.0])
    assert (made.executions, made.enabled) == (1, True)


def test_a_pause_without_a_terminal_keeps_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_stops, "entry", lambda: entry.Entry("nobody is there"))
    session = Session(tmp_path)
    session.hooks.register_hook(hook(HookAction.PAUSE, trigger=HookTrigger("after_layer"), name="look"))
    with caught() as told:
        (result,) = session.hooks.execute_hooks("fc", [3.0, 4.0], step=5)
    assert result.statistics["norm"] == 5.0
    assert result.message == "nobody is there"
    assert "'look' does not stop at step 5, layer 'fc': nobody is there" in told[0]
    row = json.loads((tmp_path / "stops.jsonl").read_text())
    assert (row["layer"], row["step"], row["statistics"]["output"]["norm"]) == ("fc", 5, 5.0)


def test_a_pause_in_a_terminal_enters_the_debugger(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[Any] = []
    monkeypatch.setattr(hand_stops, "entry", entry.Entry)
    monkeypatch.setattr(hand_stops, "stop", lambda at, way: stops.append(at) or ("quit" if len(stops) == 3 else ""))
    session.layers = ["fc"]
    session.hooks.register_hook(hook(HookAction.PAUSE, trigger=HookTrigger("after_layer", executions=1)))
    assert session.hooks.execute_hooks("fc", [3.0, 4.0], step=5) == []
    (at,) = stops
    assert at.title == "step 5, layer 'fc' (h)"
    assert at.names["output"].tolist() == [3.0, 4.0]
    assert at.controls.statistics(at.names["output"])["norm"] == 5.0
    assert at.controls.layers() == [("fc", "", "")]
    assert at.controls.numbers(at.names["output"]).tolist() == [3.0, 4.0]
    assert at.controls.otherwise(np.zeros(0)) == "it has no elements"
    at.controls.stop_next_step()
    session.hooks.execute_hooks("other", [1.0], step=5)
    assert len(stops) == 1
    session.hooks.execute_hooks("other", [1.0], step=6)
    assert len(stops) == 2
    at.controls.stop_at("fc")
    session.hooks.execute_hooks("other", [1.0], step=6)
    with pytest.raises(TrainingHalted, match="ended by hand at step 7, layer 'fc'"):
        session.hooks.execute_hooks("fc", [1.0], step=7)


PROGRAM = """
import numpy as np
from neuraldbg import HookAction, HookBuilder, HookTrigger
from neuraldbg.toolbox.hand_hooks import HandHooks

def oracle(x):
    return {"total": x.size, "nonfinite": 0, "zeros": 0, "mean": x.mean(), "std": x.std(), "rms": 0.0, "min": x.min(),
            "max": x.max(), "absmax": x.max(), "norm": float(np.linalg.norm(x))}

def halt(reason):
    raise SystemExit(reason)

hooks = HandHooks(step=lambda: 3, statistics=oracle, inspect=None, record_gradient=None, folder=lambda: None, halt=halt,
                  layers=lambda: ["fc"])
hooks.register_hook(HookBuilder("look").trigger(HookTrigger.EVERY_FORWARD).action(HookAction.PAUSE).build())

def train():
    mine = 41
    hooks.execute_hooks("fc", np.array([3.0, 4.0]))
    hooks.execute_hooks("fc", np.array([6.0, 8.0]))

train()
"""


def test_the_prompt_of_a_real_terminal_has_the_arrays_and_the_variables(tmp_path: Path) -> None:
    pexpect = pytest.importorskip("pexpect")
    (tmp_path / "train.py").write_text(PROGRAM)
    child = pexpect.spawn(sys.executable, [str(tmp_path / "train.py")], encoding="utf-8", timeout=20)
    child.expect_exact("NeuralDBG stops: step 3, layer 'fc' (look)")
    for said, answer in (
        ("p output.sum(), mine + 1", r"\(.*7\.0\)?, 42\)"),
        ("stats output", "norm 5"),
        ("layers", "fc"),
    ):
        child.expect_exact("(neuraldbg) ")
        child.sendline(said)
        child.expect(answer)
    child.expect_exact("(neuraldbg) ")
    child.sendline("continue")
    child.expect_exact("(neuraldbg) ")
    child.sendline("quit")
    child.expect("ended by hand at step 3, layer 'fc'")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


# -- registering ----------------------------------------------------------------------------------------------------


def test_hooks_are_added_and_removed_by_their_numbers(session: Session) -> None:
    first, second = hook(HookAction.INSPECT_TENSOR, name="one"), hook(HookAction.INSPECT_TENSOR, name="two")
    numbers = [session.hooks.register_hook(one) for one in (first, second)]
    assert session.hooks.hooks == (first, second)
    session.hooks.remove_hook(numbers[0])
    assert session.hooks.hooks == (second,)
    assert len(session.hooks.execute_hooks("fc", [1.0])) == 1
    with pytest.raises(ConfigError, match=rf"no hook has the number {numbers[0]}: {numbers[1]} \(two\)"):
        session.hooks.remove_hook(numbers[0])
    assert session.hooks.register_hook(HookBuilder("unbuilt").action(HookAction.INSPECT_TENSOR)) > 0  # type: ignore[arg-type]


def test_moments_that_are_not_told_by_hand_are_refused(session: Session) -> None:
    for moment in ("before_layer", "before_step"):
        with pytest.raises(ConfigError, match=f"runs at {moment}, which a session by hand is not told"):
            session.hooks.register_hook(moment, print)


@pytest.mark.usefixtures("none_registered")
def test_hooks_for_all_sessions_run_here_too(session: Session) -> None:
    early, late = [], []
    register_hook("after_layer", lambda layer, x: early.append((layer, x.tolist())))
    register_hook("before_layer", lambda *_: early.append("never"))
    session.hooks.start()
    register_hook("after_layer", lambda layer, x: late.append((layer, x.tolist())))
    session.hooks.execute_hooks("fc", [1.0])
    assert early == late == [("fc", [1.0])]
    session.hooks.stop()


def test_a_pattern_that_no_layer_fits_is_reported_at_the_end(session: Session) -> None:
    session.layers = ["attention_1", "fc"]
    session.hooks.register_hook(
        HookBuilder("lost").action(HookAction.INSPECT_TENSOR).layer_patterns(["atention_1"]).build()
    )
    session.hooks.execute_hooks("fc", [1.0])
    session.hooks.step_ended(0, {})
    with caught() as told:
        session.hooks.stop()
    assert "the hook 'lost' never ran: no layer is called 'atention_1'. Did you mean: attention_1" in told[0]


# -- alerts ---------------------------------------------------------------------------------------------------------


def test_rules_of_alerts_have_their_severity_and_limit(tmp_path: Path) -> None:
    file = tmp_path / "alerts.jsonl"
    session = Session(
        tmp_path, alerts=Alerts(["critical:loss > 5", "nan", "layer.absmax > 10"], file=file, terminal=False)
    )
    session.hooks.start()
    for step in range(4):
        session.hooks.execute_hooks("fc", [1.0, 50.0], step=step)
        events = [Event("nonfinite_loss", "loss", 2, step)] if step >= 2 else []
        session.hooks.step_ended(step, {"loss": 7.0 if step < 2 else math.nan}, events)
    session.hooks.alert_on("loss > 1", severity="info", every=0)
    session.hooks.step_ended(4, {"loss": 2.0})
    session.hooks.step_ended(5, {"loss": 3.0})
    session.hooks.stop()
    told = [(one.severity, one.rule, one.step, one.held_back) for one in session.hooks.alerts]
    assert told == [
        ("warning", "layer.absmax > 10", 0, 0),
        ("critical", "loss > 5", 0, 0),
        ("critical", "nan", 2, 0),
        ("info", "loss > 1", 4, 0),
        ("info", "loss > 1", 5, 0),
        ("warning", "layer.absmax > 10", 3, 2),
        ("critical", "loss > 5", 1, 0),
    ]
    assert [json.loads(line)["rule"] for line in file.read_text().splitlines()] == [rule for _, rule, _, _ in told]
    assert [fact.value["rule"] for fact in session.facts] == [rule for _, rule, _, _ in told]
    with pytest.raises(UnknownName, match="Did you mean"):
        session.hooks.alert_on("nonfinite_los")
    with pytest.raises(ConfigError, match="no severity"):
        session.hooks.alert_on("loss > 5", severity="awful")


def test_an_alert_of_a_hook_takes_any_spelling_of_a_severity(session: Session) -> None:
    for severity in ("critical", AlertSeverity.CRITICAL, "CRITICAL"):
        made = hook(HookAction.alert("m", severity), trigger=HookTrigger("after_step"), name=f"{severity!r}")
        session.hooks.register_hook(made)
    session.hooks.step_ended(3, {"loss": 1.0})
    assert [one.severity for one in session.hooks.alerts] == ["critical"] * 3
    assert session.hooks.alerts[0].text == "m (step 3)"


def test_the_toolbox_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import neuraldbg.toolbox.hand_hooks, neuraldbg.toolbox.hand_profiler, neuraldbg.toolbox.hand_stops"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
