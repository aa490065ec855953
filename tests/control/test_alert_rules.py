"""Rules of alerts as a user writes them, and the sentences on what they have met."""

from __future__ import annotations

import pytest

from neuraldbg.control.alert_rules import met, rule_of, seen
from neuraldbg.control.condition import Condition
from neuraldbg.detect import DETECTORS
from neuraldbg.errors import ConfigError
from neuraldbg.explain import meaning
from neuraldbg.nouns import EVENT_KINDS, Event, Layout
from neuraldbg.nouns.alert import AlertSeverity, severity_of


@pytest.mark.parametrize(
    ("text", "name", "severity", "condition"),
    [
        ("nan", "nan", None, False),
        ("critical:loss > 5", "loss > 5", "critical", True),
        (" Critical : loss > 5 ", "loss > 5", "critical", True),
        ("info:exploding_gradients", "exploding_gradients", "info", False),
        ("gradient vanishing", "gradient vanishing", None, False),
        ("loss", "loss", None, False),
        ("isnan(loss)", "isnan(loss)", None, True),
        ("not loss", "not loss", None, True),
        ("layer.rms > 100", "layer.rms > 100", None, True),
        ("error:step == 3 or lr < 1e-5", "step == 3 or lr < 1e-5", "error", True),
    ],
)
def test_a_rule_is_a_name_or_a_condition(text, name, severity, condition):
    rule = rule_of(text)
    assert (rule.name, rule.severity, rule.condition is not None) == (name, severity, condition)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a rule of alerts is a text"),
        (3, "a rule of alerts is a text"),
        ("loud:nan", "'loud' is no severity: use info, warning, error, critical"),
        ("critical:", "names nothing"),
        ("los > 3", "no number called 'los'"),
        ("loss >", "is no condition"),
        ("__import__('os')", "not allowed"),
    ],
)
def test_wrong_rules_say_what_to_write(text, words):
    with pytest.raises(ConfigError, match="(?s)" + words.replace("(", r"\(")):
        rule_of(text)


def test_layers_are_for_conditions_on_layers():
    assert rule_of("layer.rms > 1", layers=("fc1",)).layers == ("fc1",)
    for rule in ("nan", "loss > 5"):
        with pytest.raises(ConfigError, match="layers="):
            rule_of(rule, layers=("fc1",))


def test_severities_are_text_or_names():
    assert [severity_of(one) for one in (AlertSeverity.CRITICAL, "ERROR", " info ")] == ["critical", "error", "info"]
    with pytest.raises(ConfigError, match="no severity 'fatal'"):
        severity_of("fatal")


def test_the_severity_follows_from_what_is_met():
    rule = rule_of("any")
    nan = Event("nonfinite_loss", "loss", 1, 1)
    spike, unsure = Event("loss_spike", "loss", 1, 1), Event("loss_spike", "loss", 1, 1, confidence=0.2)
    assert [rule.severity_for(one) for one in (nan, spike, unsure, None)] == ["critical", "warning", "info", "warning"]
    assert rule_of("info:any").severity_for(nan) == "info"


def test_every_kind_family_and_detector_is_a_name():
    for kind in EVENT_KINDS:
        assert kind in meaning(kind, Layout(())).kinds
    for detector in DETECTORS:
        assert meaning(detector.name, Layout(())).kinds, detector.name
    assert meaning("non_finite", Layout(())).kinds == {kind for kind in EVENT_KINDS if kind.startswith("nonfinite")}


def test_sentences_have_numbers_and_layers():
    words, value = met(Condition("loss > 5 and layer.rms > 100"), {"loss": 7.25, "step": 3.0}, {"rms": 1e18})
    assert words == "loss > 5 and layer.rms > 100 (loss = 7.25, layer.rms = 1e+18)"
    assert value == 7.25
    events = [Event("exploding_gradients", "gradient_health", 1_234, 1_240, f"fc{n}", "", 0.9,
                    {"norm": 1234567.5, "threshold": 1000.0}) for n in range(5)]  # fmt: skip
    words, value = seen(events)
    where = "fc0, fc1, fc2 and 2 more layers"
    assert words == f"exploding gradients in {where} at step 1,234 (norm 1.235e+06, threshold 1,000)"
    assert value == 1234567.5
