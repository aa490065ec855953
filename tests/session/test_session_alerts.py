"""Alerts of real trainings: what raises them, who gets them, and what a training never notices."""

from __future__ import annotations

import itertools
import json
import logging
import math
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.session.seeded_trainings import Mlp, vectors
from torch import nn
from torch.nn import functional as F

import neuraldbg
from neuraldbg import Alerts, AlertSeverity, HookAction, HookBuilder, HookTrigger, NeuralDbg, TrainingHalted
from neuraldbg.errors import ConfigError, UnknownLayer, UnknownName
from neuraldbg.unlisted_thread import unlisted

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg import Alert


def train(model: nn.Module, steps: int = 8, *, broken_from: int | None = None, lr: float = 0.1) -> list[float]:
    """Train; from a step on the loss is NaN."""
    torch.manual_seed(0)
    x, y = vectors()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * (math.nan if broken_from is not None and step >= broken_from else 1.0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# -- rules ----------------------------------------------------------------------------------------------------------


def test_nan_is_told_once_for_each_kind_with_its_layers() -> None:
    with NeuralDbg(model := Mlp(), alerts=["nan"]) as dbg:
        train(model, broken_from=3)
    by_kind = {alert.subject: alert for alert in dbg.alerts}
    loss = by_kind["nonfinite_loss"]
    assert (loss.severity, loss.rule, loss.step, loss.layer) == ("critical", "nan", 3, None)
    assert math.isnan(loss.value)
    assert loss.text == "nonfinite loss at step 3 (loss NaN)"
    assert "nonfinite_gradient" in by_kind
    assert len(by_kind) == len(dbg.alerts), "one for each kind"


def test_a_condition_holds_at_the_steps_of_an_oracle() -> None:
    model, told = Mlp(), []
    dbg = NeuralDbg(model, alerts=Alerts([], every=0))
    dbg.alert_on("critical:loss > 1.0 or step == 2", told.append)
    with dbg:
        losses = train(model, 30, lr=0.5)
    expected = [step for step, loss in enumerate(losses) if loss > 1.0 or step == 2]
    assert [alert.step for alert in told] == expected
    assert [alert.value for alert in told] == pytest.approx([losses[step] for step in expected])
    assert {alert.severity for alert in told} == {"critical"}
    assert 0 < len(told) < 30


def test_a_condition_on_a_layer_names_the_layer() -> None:
    model, told, outputs = Mlp(), [], []
    with NeuralDbg(model, alerts=Alerts([], every=0)) as dbg:
        dbg.alert_on("layer.absmax > 1.5", told.append, layers="fc2")
        dbg.register_hook("after_layer", lambda _, x: outputs.append(float(x.abs().max())), layers="fc2")
        train(model, 30, lr=0.5)
    assert [alert.step for alert in told] == [step for step, size in enumerate(outputs) if size > 1.5]
    assert {alert.layer for alert in told} == {"fc2"}
    assert told
    at = told[0].step
    assert told[0].text == f"layer.absmax > 1.5 (layer.absmax = {outputs[at]:.4g}) in layer 'fc2' at step {at}"


def test_causes_families_and_detectors_are_rules() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=3.0)
    with NeuralDbg(model, alerts=["lr_too_high", "info:optimizer_stability", "weight_scale", "error:loss"]) as dbg:
        for _ in range(40):
            optimizer.zero_grad()
            x = torch.randn(32, 8)
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
    told = {(alert.rule, alert.subject): alert.severity for alert in dbg.alerts}
    assert told["lr_too_high", "lr_too_high"] == "warning"
    assert told["optimizer_stability", "update_ratio_high"] == "info"
    assert told["weight_scale", "large_weights"] == "warning", "of two rules for an event the more severe tells it"
    assert told["loss", "nonfinite_loss"] == "error"


def test_any_is_every_symptom_and_a_healthy_training_raises_none() -> None:
    with NeuralDbg(model := Mlp(), alerts=["any"]) as dbg:
        train(model, 40)
    assert dbg.alerts == ()
    with NeuralDbg(model := Mlp(), alerts=["any"]) as dbg:
        train(model, broken_from=2)
    assert {"nonfinite_loss", "nonfinite_gradient"} <= {alert.subject for alert in dbg.alerts}


def test_hooks_and_the_program_itself_raise_alerts() -> None:
    model = Mlp()
    hook = HookBuilder("alarm").trigger(HookTrigger.condition("loss > 0") & HookTrigger.step_range(3, 3))
    with NeuralDbg(model) as dbg:
        dbg.register_hook(hook.action(HookAction.alert("look", AlertSeverity.ERROR)).build())
        losses = train(model)
        dbg.alert("the accuracy fell", "critical", value=0.25, rule="accuracy")
    first, second = dbg.alerts
    assert (first.rule, first.severity, first.text, first.step) == ("alarm", "error", "look (step 3)", 3)
    assert first.value == pytest.approx(losses[3])
    assert (second.rule, second.severity, second.text, second.value) == (
        "accuracy", "critical", "the accuracy fell", 0.25,
    )  # fmt: skip


def test_a_halt_is_an_alert_where_alerts_are_asked_for() -> None:
    with pytest.raises(TrainingHalted), NeuralDbg(model := Mlp(), halt=True, alerts=["nan"]) as dbg:
        train(model, broken_from=4)
    halt = next(alert for alert in dbg.alerts if alert.rule == "halt")
    assert (halt.severity, halt.step) == ("critical", 4)
    assert halt.text == "the training is halted before step 4 is applied: the loss is nan"
    with pytest.raises(TrainingHalted), NeuralDbg(model := Mlp(), halt=True) as dbg:
        train(model, broken_from=4)
    assert dbg.alerts == ()
    dbg = NeuralDbg(model := Mlp(), halt=True)
    dbg.alert_on("vanishing_gradients")
    with pytest.raises(TrainingHalted), dbg:
        train(model, broken_from=4)
    assert [alert.rule for alert in dbg.alerts] == ["halt"], "a rule of alert_on asks for alerts, too"


@pytest.mark.parametrize(
    ("rule", "error", "words"),
    [
        ("los", UnknownName, "loss_spike"),
        ("loss > ", ConfigError, "no condition"),
        ("loud:nan", ConfigError, "no severity"),
        (5, ConfigError, "a rule of alerts is a text"),
    ],
)
def test_a_wrong_rule_is_refused(rule: Any, error: type[Exception], words: str) -> None:
    dbg = NeuralDbg(Mlp())
    with pytest.raises(error, match=words):
        dbg.alert_on(rule)
    if isinstance(rule, str):
        with pytest.raises(error, match=words):
            NeuralDbg(Mlp(), alerts=[rule])


def test_wrong_arguments_are_refused() -> None:
    dbg = NeuralDbg(Mlp())
    with pytest.raises(ConfigError, match="every: give seconds"):
        dbg.alert_on("nan", every=-1)
    with pytest.raises(ConfigError, match="action: give a function"):
        dbg.alert_on("nan", 3)
    with pytest.raises(UnknownLayer, match="fc1"):
        dbg.alert_on("layer.rms > 1", layers="fc11")
    with pytest.raises(ConfigError, match="no severity"):
        dbg.alert("x", "loud")


# -- who gets them --------------------------------------------------------------------------------------------------


def test_the_run_file_and_the_json_lines_have_the_same_alerts(tmp_path: Path) -> None:
    file = tmp_path / "alerts.jsonl"
    asked = Alerts(["nan", "loss > 0"], file=file)
    with NeuralDbg(model := Mlp(), out=tmp_path / "run", script="train.py", alerts=asked) as dbg:
        train(model, broken_from=3)
    saved = neuraldbg.load(tmp_path / "run").alerts
    told = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [(one["rule"], one["text"], one["step"]) for one in told] == [(a.rule, a.text, a.step) for a in saved]
    assert len(saved) > 3
    assert {(one["run"], one["script"], one["rank"]) for one in told} == {(str(tmp_path / "run"), "train.py", 0)}
    assert [a.time for a in saved] == [a.time for a in dbg.alerts]
    assert abs(saved[0].time - time.time()) < 600
    assert json.loads(saved[0].to_json())["script"] == "train.py"


def test_pythons_logging_gets_the_alert_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with NeuralDbg(model := Mlp(), alerts=["nan"]) as dbg:
        train(model, broken_from=3)
    records = [one for one in caplog.records if one.name == "neuraldbg.alerts"]
    assert [one.alert.text for one in records] == [alert.text for alert in dbg.alerts]
    assert {one.levelname for one in records} == {"CRITICAL"}
    assert records[0].getMessage() == records[0].alert.text
    assert records[0].alert.rule == "nan"


def test_the_terminal_gets_them_where_nobody_listens_to_the_logger(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with NeuralDbg(model := Mlp(), alerts=["nan"]) as dbg:
        train(model, broken_from=3)
    assert capsys.readouterr().err == "", "a handler of the program's has got them"
    monkeypatch.setattr(logging.getLogger("neuraldbg.alerts"), "propagate", False)
    with NeuralDbg(model := Mlp(), alerts=["nan"]) as dbg:
        train(model, broken_from=3)
        dbg.alert("\x1b[31m\nred")
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "neuraldbg: CRITICAL [nan] nonfinite loss at step 3 (loss NaN)"
    assert "neuraldbg: WARNING [program] ?[31m?red" in told
    with NeuralDbg(model := Mlp(), alerts=Alerts(["nan"], terminal=False)):
        train(model, broken_from=3)
    assert capsys.readouterr().err == ""


def test_a_rate_limit_by_the_real_clock(tmp_path: Path) -> None:
    model, told = Mlp(), []
    with NeuralDbg(model, alerts=Alerts([], every=0.3)) as dbg:
        dbg.alert_on("loss > 0", told.append)
        until = time.monotonic() + 1.0
        steps = 0
        while time.monotonic() < until or steps < 20:
            train(model, 1)
            steps += 1
    assert 2 <= len(told) <= 1 + (told[-1].time - told[0].time) / 0.25
    assert all(later.time - earlier.time >= 0.25 for earlier, later in itertools.pairwise(told))
    everything = dbg.alerts
    assert sum(alert.held_back + 1 for alert in everything) == steps, "none is lost"
    assert everything[-1].step == steps - 1


# -- what a training never notices ----------------------------------------------------------------------------------


def test_an_action_and_a_handler_that_raise_are_reported_and_the_training_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("my handler")

    logger = logging.getLogger("neuraldbg.alerts")
    handler = Broken()
    logger.addHandler(handler)
    try:
        with NeuralDbg(model := Mlp(), alerts=Alerts([], every=0)) as dbg:
            dbg.alert_on("loss > 0", lambda alert: 1 // 0)
            assert len(train(model)) == 8
    finally:
        logger.removeHandler(handler)
    notes = " ".join(dbg.diagnose().run["coverage"]["notes"])
    assert "the action of the alert on 'loss > 0', a function of the program, raised 8 times" in notes
    assert "RuntimeError: my handler" in notes
    assert "in <lambda>" in caplog.text


def test_an_action_can_stop_the_training() -> None:
    def stop(alert: Alert) -> None:
        raise TrainingHalted(alert.text, alert.step)

    dbg = NeuralDbg(model := Mlp())
    dbg.alert_on("loss > 0 and step >= 3", stop)
    with pytest.raises(TrainingHalted, match="loss > 0"), dbg:
        train(model)


def test_no_thread_is_listed_and_none_is_left(tmp_path: Path) -> None:
    before = threading.active_count()
    with NeuralDbg(model := Mlp(), alerts=Alerts(["loss > 0"], file=tmp_path / "a", every=0)):
        train(model)
        assert threading.active_count() == before
        assert "neuraldbg-alerts" in unlisted()
    assert "neuraldbg-alerts" not in unlisted()


def test_nothing_is_started_or_imported_that_was_not_asked_for() -> None:
    with NeuralDbg(model := Mlp()):
        train(model)
        assert "neuraldbg-alerts" not in unlisted()
    code = (
        "import sys, torch\nfrom neuraldbg import NeuralDbg\n"
        "with NeuralDbg(torch.nn.Linear(2, 1)): pass\n"
        "late = {'urllib.request', 'http.client', 'neuraldbg.alerts.webhook', 'neuraldbg.alerts.alert_command'}\n"
        "print(sorted(late & (set(sys.modules) - before)))"
    )
    code = code.replace("from neuraldbg import", "before = set(sys.modules)\nfrom neuraldbg import", 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_file_keeps_a_thousand_alerts_and_says_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuraldbg.session_alerts.RECORDED", 5)
    with NeuralDbg(model := Mlp(), alerts=Alerts(["loss > 0"], every=0)) as dbg:
        train(model, 12)
    assert [alert.step for alert in dbg.alerts] == [0, 1, 2, 3, 4]
    assert "7 alerts are not in the run file, which keeps 5" in dbg.diagnose().run["coverage"]["notes"]


def test_hooks_of_ours_leave_the_modules_when_a_hook_is_over() -> None:
    model = Mlp()

    def ours() -> int:
        with_hooks = (one._forward_hooks for one in model.modules())
        return sum(type(hook).__name__ == "_After" for hooks in with_hooks for hook in hooks.values())

    with NeuralDbg(model) as dbg:
        few = dbg.register_hook("after_layer", lambda *_: None, layers="fc1", max_executions=2)
        train(model, 1)
        assert ours() > 0
        train(model, 2)
        assert few.executions == 2
        assert ours() == 0
        raising = dbg.register_hook("after_layer", lambda *_: 1 // 0, layers="fc1")
        train(model, 1)
        assert not raising.enabled
        assert ours() == 0
        removed = dbg.register_hook("after_layer", lambda *_: None, layers="fc1")
        grads: list[str] = []
        dbg.register_hook("after_backward", lambda name, _: grads.append(name), layers="fc2")
        removed.remove()
        train(model, 2)
        assert grads == ["fc2", "fc2"], "hooks that another one needs stay"
        assert ours() > 0
