"""Hooks of the user on real trainings: moments, arguments, triggers, actions, and what a hook must never do."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.session.seeded_trainings import Mlp, vectors
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import neuraldbg
from neuraldbg import HookAction, HookBuilder, HookTrigger, NeuralDbg, TrainingHalted, register_hook
from neuraldbg.errors import ConfigError, UnknownLayer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS = 6


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    """Take away the hooks that a test has registered for the whole process."""
    yield
    for hook in neuraldbg.control.registered_hooks.registered():
        hook.remove()


def train(model: nn.Module, dbg: NeuralDbg | None = None, steps: int = STEPS, lr: float = 0.1) -> list[float]:
    torch.manual_seed(0)
    x, y = vectors()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Blocks(nn.Module):
    def __init__(self, *, again: bool = False) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"query": nn.Linear(8, 8), "key": nn.Linear(8, 8)})
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(8, 3))
        self.again = again

    def mixed(self, x: Tensor) -> Tensor:
        return self.attention["query"](x) + self.attention["key"](x)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.mixed, x, use_reentrant=False) if self.again else self.mixed(x)
        return self.head(x)


def test_each_moment_has_its_arguments_in_the_order_of_the_loop() -> None:
    told: list[tuple[Any, ...]] = []
    model = Mlp()
    with NeuralDbg(model) as dbg:
        dbg.register_hook("before_layer", lambda name, inputs: told.append(("before", name, inputs)), layers="fc2")
        dbg.register_hook("after_layer", lambda name, out: told.append(("after", name, out)), layers="fc2")
        dbg.register_hook("after_backward", lambda name, grad: told.append(("grad", name, grad)), layers="fc2")
        dbg.register_hook("before_step", lambda step: told.append(("before_step", step)))
        dbg.register_hook("after_step", lambda step, loss: told.append(("after_step", step, loss)))
        dbg.register_hook("on_loss", lambda step, loss: told.append(("on_loss", step, loss)))
        losses = train(model, dbg)
    kinds = ["before", "after", "grad", "before_step", "after_step", "on_loss"]
    assert [one[0] for one in told] == kinds * STEPS
    for step in range(STEPS):
        (_, before, (inputs,)), (_, after, output), (_, back, grad), *ends = told[6 * step : 6 * step + 6]
        assert before == after == back == "fc2"
        assert inputs.shape == (32, 16)
        assert output.shape == grad.shape == (32, 3)
        assert not inputs.requires_grad
        assert not output.requires_grad
        assert output.grad_fn is None
        assert ends[0] == ("before_step", step)
        assert ends[1] == ("after_step", step, pytest.approx(losses[step]))
        assert ends[2] == ("on_loss", step, pytest.approx(losses[step]))


def test_the_gradient_is_that_of_the_output() -> None:
    model, found = Mlp(), []
    with NeuralDbg(model) as dbg:
        dbg.register_hook("after_backward", lambda _, grad: found.append(grad.clone()), layers="fc2")
        torch.manual_seed(0)
        x, y = vectors()
        output = model(x)
        output.retain_grad()
        F.cross_entropy(output, y).backward()
        assert torch.equal(found[0], output.grad)


@pytest.mark.parametrize(
    ("patterns", "layers"),
    [
        ((), {"attention.query", "attention.key", "head.0", "head.1"}),
        (("attention.*",), {"attention.query", "attention.key"}),
        (("query",), {"attention.query"}),
        (("Dense_3",), {"head.1"}),
        (("head.?",), {"head.1", "head.0"}),
        (("head",), {"head"}),
        ("head.1", {"head.1"}),
        ("Linear_*", {"attention.query", "attention.key", "head.1"}),
    ],
)
def test_patterns_are_paths_their_ends_and_aliases(patterns: Any, layers: set[str]) -> None:
    model, seen = Blocks(), set()
    with NeuralDbg(model) as dbg:
        dbg.register_hook("after_layer", lambda name, _: seen.add(name), layers=patterns)
        train(model, dbg, steps=2)
    assert seen == layers


def test_a_pattern_without_a_layer_lists_the_nearest() -> None:
    model = Blocks()
    with NeuralDbg(model) as dbg, pytest.raises(UnknownLayer, match=r"attention\.query"):
        dbg.register_hook("after_layer", print, layers="attention.querry")
    with pytest.raises(UnknownLayer, match=r"head\.1"):
        NeuralDbg(model).register_hook("after_layer", print, layers="head.7")


def test_every_and_max_executions_count_steps_and_calls() -> None:
    model, steps = Mlp(), []
    with NeuralDbg(model) as dbg:
        dbg.register_hook("after_layer", lambda *_: steps.append(dbg.steps), layers="fc1", every=3)
        few = dbg.register_hook("after_layer", lambda *_: None, layers="fc*", max_executions=3)
        train(model, dbg, steps=8)
    assert steps == [0, 3, 6]
    assert few.executions == 3
    assert few.enabled


def test_a_hook_of_the_process_runs_in_every_session_until_it_is_removed() -> None:
    names: list[str] = []

    @register_hook("after_layer", layers="fc1")
    def look(layer_name: str, activations: Tensor) -> None:
        names.append(layer_name)

    for _ in range(2):
        model = Mlp()
        with NeuralDbg(model) as dbg:
            train(model, dbg, steps=2)
    assert names == ["fc1"] * 4
    look("fc1", torch.zeros(1))
    assert len(names) == 5, "the decorator returns the function"
    (hook,) = neuraldbg.control.registered_hooks.registered()
    hook.remove()
    with NeuralDbg(model := Mlp()) as dbg:
        train(model, dbg, steps=2)
    assert len(names) == 5


def test_a_hook_that_raises_is_reported_and_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    model, calls = Mlp(), []

    def look(_: str, output: Tensor) -> None:
        calls.append(output)
        raise KeyError(len(calls))

    with NeuralDbg(model) as dbg, caplog.at_level(logging.WARNING, "neuraldbg"):
        hook = dbg.register_hook("after_layer", look, layers="fc1")
        good = dbg.register_hook("after_layer", lambda *_: None, layers="fc1")
        losses = train(model, dbg)
    (record,) = caplog.records
    text = record.getMessage()
    assert "the hook 'look' raised at layer 'fc1', step 0; it is switched off, and the training goes on" in text
    assert "KeyError: 1" in text
    assert "raise KeyError(len(calls))" in text
    assert "control/" not in text
    assert len(calls) == 1
    assert not hook.enabled
    assert "KeyError" in hook.error
    assert good.executions == STEPS
    assert len(losses) == STEPS
    assert dbg.diagnose().verdict != "failing"
    assert "error" not in str(dbg.diagnose().unjudged)


def test_builder_of_the_source_document() -> None:
    torch.manual_seed(0)  # a mean near zero has fewer digits than its terms
    model = Blocks()
    hook = (
        HookBuilder("Layer Monitor")
        .trigger(HookTrigger.EVERY_FORWARD)
        .action(HookAction.INSPECT_TENSOR)
        .layer_patterns(["attention.*"])
        .max_executions(5)
        .build()
    )
    outputs: list[Tensor] = []
    with NeuralDbg(model) as dbg:
        dbg.register_hook(hook)
        dbg.register_hook("after_layer", lambda _, x: outputs.append(x.clone()), layers="attention.*")
        train(model, dbg)
    assert hook.executions == len(hook.results) == 5
    for result, x in zip(hook.results, outputs, strict=False):
        wide = x.double()
        expected = {"mean": wide.mean(), "std": wide.std(correction=0), "min": wide.min(), "max": wide.max()}
        expected |= {"norm": wide.norm(), "absmax": wide.abs().max(), "total": wide.numel()}
        assert {name: result.statistics[name] for name in expected} == pytest.approx(
            {name: float(value) for name, value in expected.items()}
        )
        assert result.shape == tuple(x.shape)
        assert result.dtype == "float32"
    assert [one.step for one in hook.results] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("trigger", "steps"),
    [
        (HookTrigger.every_n_steps(4), [0, 4, 8]),
        (HookTrigger.step_range(3, 5), [3, 4, 5]),
        (HookTrigger.step_range(2, 8) & HookTrigger.every_n_steps(3), [2, 5, 8]),
        (HookTrigger.ONCE, [0]),
        (HookTrigger.condition("step >= 7"), [7, 8, 9]),
        (HookTrigger("before_layer") & HookTrigger.layer("fc1") & HookTrigger.condition("step >= 7"), [7, 8, 9]),
        (HookTrigger.condition(lambda context: context.step % 5 == 2), [2, 7]),
        (HookTrigger.memory_above(1), [*range(10)]),
        (HookTrigger.memory_above(1e15), []),
    ],
)
def test_triggers_choose_steps(trigger: HookTrigger, steps: list[int]) -> None:
    model, seen = Mlp(), []
    hook = HookBuilder("h").trigger(trigger).action(lambda context: seen.append(context.step)).build()
    with NeuralDbg(model) as dbg:
        dbg.register_hook(hook)
        train(model, dbg, steps=10)
    assert seen == steps


def test_thresholds_follow_loss_and_gradient() -> None:
    model, above = Mlp(), {"loss": [], "gradient": [], "layer": []}
    found: list[tuple[float, float]] = []
    with NeuralDbg(model, overhead=None) as dbg:
        for name, trigger in (
            ("loss", HookTrigger.loss_above(1.0)),
            ("gradient", HookTrigger.gradient_above(0.5)),
            ("layer", HookTrigger.condition("layer.absmax > 2") & HookTrigger.layer("fc2")),
        ):
            dbg.register_hook(
                HookBuilder(name).trigger(trigger).action(lambda c, name=name: above[name].append(c.step)).build()
            )
        outputs: list[float] = []
        dbg.register_hook("after_layer", lambda _, x: outputs.append(float(x.abs().max())), layers="fc2")
        dbg.register_hook(HookBuilder().action(lambda c: found.append((c.loss, c.scalars["grad_norm"]))).build())
        train(model, dbg, steps=30, lr=0.5)
    assert above["loss"] == [i for i, (loss, _) in enumerate(found) if loss > 1.0]
    assert above["loss"]
    assert above["gradient"] == [i for i, (_, norm) in enumerate(found) if norm > 0.5]
    assert above["gradient"]
    assert above["layer"] == [i for i, size in enumerate(outputs) if size > 2]
    assert 0 < len(above["layer"]) < 30


def test_the_loss_is_that_of_the_step_before_and_before_a_step_of_this_one() -> None:
    model, seen = Mlp(), {"layer": [], "gradient": [], "step": []}
    with NeuralDbg(model) as dbg:
        for name, moment in (("layer", "before_layer"), ("gradient", "after_backward"), ("step", "before_step")):
            hook = HookBuilder(name).trigger(HookTrigger(moment)).action(lambda c, name=name: seen[name].append(c.loss))
            dbg.register_hook((hook.layer_patterns(["fc1"]) if name != "step" else hook).build())
        losses = train(model, dbg)
    assert seen["layer"] == seen["gradient"] == [None, *(pytest.approx(loss) for loss in losses[:-1])]
    assert seen["step"] == pytest.approx(losses)


def test_snapshots_are_files_that_torch_loads(tmp_path: Path) -> None:
    model, outputs = Mlp(), []
    hook = HookBuilder("keep it").action(HookAction.SAVE_SNAPSHOT).layer_patterns(["fc1"]).max_executions(2).build()
    with NeuralDbg(model, out=tmp_path / "run") as dbg:
        dbg.register_hook(hook)
        dbg.register_hook("after_layer", lambda _, x: outputs.append(x.clone()), layers="fc1")
        train(model, dbg)
    first, second = (one.file for one in hook.results)
    assert first.startswith(str(tmp_path / "run" / "snapshots"))
    assert first != second
    assert torch.equal(torch.load(first), outputs[0])
    assert torch.equal(torch.load(second), outputs[1])
    with pytest.raises(ConfigError, match="no folder"):
        NeuralDbg(Mlp()).register_hook(HookBuilder().action(HookAction.SAVE_SNAPSHOT).build())


def test_recorded_activations_stay_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuraldbg.hook_actions.RECORDED_BYTES", 3 * 32 * 16 * 4)
    model = Mlp()
    hook = HookBuilder("r").action(HookAction.RECORD_ACTIVATIONS).layer_patterns(["fc1"]).build()
    with NeuralDbg(model) as dbg:
        dbg.register_hook(hook)
        train(model, dbg)
    kept = [one.step for one in hook.results if one.tensor is not None]
    assert kept == [3, 4, 5]
    assert len(hook.results) == STEPS


def test_alerts_go_to_pythons_logging(caplog: pytest.LogCaptureFixture) -> None:
    model = Mlp()
    alert = HookAction.alert("the loss is there", "error")
    with NeuralDbg(model) as dbg, caplog.at_level(logging.INFO, "neuraldbg.alerts"):
        dbg.register_hook(HookBuilder("a").trigger(HookTrigger.step_range(2, 3)).action(alert).build())
        train(model, dbg)
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert told == [("ERROR", "the loss is there (step 2)"), ("ERROR", "the loss is there (step 3)")]


@pytest.mark.parametrize("layers", [(), ("fc2",)])
def test_halt_stops_the_training_where_the_hook_runs(layers: tuple[str, ...]) -> None:
    model = Mlp()
    hook = HookBuilder("stop").trigger(HookTrigger.condition("step >= 3")).action(HookAction.HALT)
    dbg = NeuralDbg(model)
    dbg.register_hook(hook.layer_patterns(layers).build() if layers else hook.build())
    with pytest.raises(TrainingHalted, match="the hook 'stop' asked for it") as caught, dbg:
        train(model, dbg, steps=50)
    assert caught.value.step == (3 if layers else 4), "the step that was not applied: after a step it is the next"
    assert dbg.record().info.outcome.kind == "halted"


def test_nothing_stays_on_the_model_and_copies_carry_no_hook() -> None:
    model, calls = Mlp(), []
    with NeuralDbg(model) as dbg:
        dbg.register_hook("after_layer", lambda name, _: calls.append(name), layers="*")
        dbg.register_hook("before_layer", lambda name, _: calls.append(name), layers="*")
        train(model, dbg, steps=1)
        before = len(calls)
        x = vectors(4)[0]
        copy.deepcopy(model)(x)
        pickle.loads(pickle.dumps(model))(x)
        assert len(calls) == before
        scripted = torch.jit.script(model.fc1)
        assert torch.equal(scripted(x), F.linear(x, model.fc1.weight, model.fc1.bias))
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


def test_a_recomputed_forward_pass_is_no_second_call() -> None:
    model, names = Blocks(again=True), []
    with NeuralDbg(model) as dbg:
        dbg.register_hook("after_layer", lambda name, _: names.append(name), layers="query")
        train(model, dbg)
    assert names == ["attention.query"] * STEPS


def test_calls_of_the_model_within_a_hook_run_no_hooks() -> None:
    model, names = Mlp(), []

    def look(name: str, _: Tensor) -> None:
        names.append(name)
        model(vectors(4)[0])

    with NeuralDbg(model) as dbg:
        dbg.register_hook("after_layer", look, layers="fc2")
        train(model, dbg)
    assert names == ["fc2"] * STEPS


def test_layers_of_a_compiled_graph_run_no_hook_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model = Mlp()
    compiled = torch.compile(model, backend="eager")
    with NeuralDbg(model) as dbg, caplog.at_level(logging.WARNING, "neuraldbg"):
        hook = dbg.register_hook("after_layer", lambda *_: None, layers="fc1")
        train(compiled, dbg)
    assert hook.executions == 0
    assert "only inside of a compiled graph" in caplog.text


def test_a_pause_without_a_terminal_goes_on(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    model = Mlp()
    hook = HookBuilder("p").trigger(HookTrigger.ONCE).action(HookAction.PAUSE).layer_patterns(["fc1"]).build()
    with NeuralDbg(model) as dbg, caplog.at_level(logging.WARNING, "neuraldbg"):
        dbg.register_hook(hook)
        assert len(train(model, dbg)) == STEPS
    assert "'p' does not stop at step 0, after layer 'fc1' (Linear): there is no terminal" in caplog.text


def test_a_pause_enters_the_debugger_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(dict(sys._getframe(1).f_locals)))
    model = Mlp()
    hook = HookBuilder("p").trigger(HookTrigger.step_range(2, 2)).action(HookAction.PAUSE).layer_patterns(["fc1"])
    with NeuralDbg(model) as dbg:
        dbg.register_hook(hook.build())
        train(model, dbg)
    (bound,) = seen
    assert (bound["layer_name"], bound["step"]) == ("fc1", 2)
    assert bound["layer"] is model.fc1
    assert bound["model"] is model
    assert bound["output"].shape == (32, 16)
    assert bound["inputs"][0].shape == (32, 8)


SCRIPT = """
import torch
from torch import nn
from neuraldbg import register_hook

@register_hook("after_layer", layers="0")
def look(layer_name, activations):
    print("hook", layer_name, tuple(activations.shape))

model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(5, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_script_under_the_command_has_its_hooks_from_the_first_step_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "neuraldbg", "run", "--out", str(tmp_path / "run"), "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.count("hook 0 (5, 3)") == 3
    bare = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert bare.stdout == "", "without a session a hook does nothing"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: register_hook("after_leyer", print), "no moment 'after_leyer'"),
        (lambda: register_hook("after_layer", 5), "a hook is a function, not 5"),
        (lambda: register_hook("after_layer", print, every=0), "every is a whole number of at least 1, not 0"),
        (lambda: register_hook("after_step", print, layers="fc1"), "after_step is a moment of a step"),
        (lambda: register_hook("after_step", print, when="layer.rms > 1"), "needs a moment of a layer"),
        (lambda: register_hook("after_layer", when="los > 1"), "no number called 'los'"),
        (lambda: register_hook("after_layer", print, layers=[3]), "a pattern of layers is a text"),
        (lambda: register_hook("after_layer", print, layers=""), "a pattern of layers is a text"),
        (
            lambda: HookBuilder("x").trigger(HookTrigger.EVERY_FORWARD).action(HookAction.TRACK_GRADIENTS).build(),
            "track_gradients needs the moment after_backward",
        ),
        (lambda: NeuralDbg(Mlp()).add_breakpoint("loss_spike", print, step=3), "takes no layers, step"),
        (lambda: NeuralDbg(Mlp()).add_breakpoint("nan", each=True), "restricted by layers"),
        (lambda: HookBuilder("x").build(), "the hook 'x' does nothing"),
        (lambda: HookBuilder("x").action("print"), "a callback is a function"),
        (lambda: HookBuilder("x").trigger("every"), "a trigger is a HookTrigger"),
        (lambda: HookBuilder("x").trigger(HookTrigger.step_range(5, 3)), "last is a whole number of at least 5"),
        (lambda: HookTrigger.EVERY_FORWARD & HookTrigger.EVERY_BACKWARD, "a hook has one moment"),
        (lambda: HookTrigger.loss_above(float("nan")), "a bound is a finite number"),
        (lambda: HookAction.alert("x", "loud"), "no severity 'loud'"),
        (
            lambda: HookBuilder("x").trigger(HookTrigger("after_step")).action(HookAction.INSPECT_TENSOR).build(),
            "needs the tensor of a layer",
        ),
        (
            lambda: HookBuilder("x").action(HookAction.INSPECT_TENSOR).action(HookAction.TRACK_GRADIENTS).build(),
            "need two moments",
        ),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()
