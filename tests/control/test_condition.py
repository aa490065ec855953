"""Conditions against Python's own evaluation of the same text, and the texts that are refused."""

from __future__ import annotations

import itertools
import math

import pytest

from neuraldbg.control.condition import Condition
from neuraldbg.errors import ConfigError

VALUES = [float("nan"), float("-inf"), -2.5, 0.0, 1.0, 7.0, float("inf")]


class _Layer:
    def __init__(self, rms: float) -> None:
        self.rms = rms


@pytest.mark.parametrize(
    "text",
    [
        "loss > 5",
        "loss > 5 and layer.rms > 1",
        "not loss <= 1 or layer.rms == 7",
        "0 < loss < 5",
        "isnan(loss) or not isfinite(layer.rms)",
        "abs(loss) + 2 * layer.rms - 1 >= 3",
        "max(loss, layer.rms) != min(loss, 1, layer.rms)",
        "-loss > +layer.rms",
        "loss",
        "1",
    ],
)
def test_conditions_hold_as_python_says(text: str) -> None:
    condition = Condition(text)
    known = {"isnan": math.isnan, "isfinite": math.isfinite, "abs": abs, "max": max, "min": min}
    for loss, rms in itertools.product(VALUES, VALUES):
        wanted = bool(eval(text, {"__builtins__": {}}, {**known, "loss": loss, "layer": _Layer(rms)}))
        assert condition.holds({"loss": loss}, {"rms": rms}) is wanted, (loss, rms)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("loss > 5", False),
        ("not loss > 5", False),
        ("loss > 5 or step == 3", True),
        ("not (loss > 5 and step == 4)", True),
        ("isnan(loss)", False),
        ("not isfinite(loss)", False),
        ("loss != loss", False),
        ("loss + 1 > 0", False),
        ("1 / 0 > 1", False),
        ("not 1 / 0 > 1", False),
        ("log10(0 - 1) < 5", False),
        ("0 < step < loss", False),
        ("not 5 < step < loss", True),
    ],
)
def test_a_number_that_was_not_measured_makes_unknown_and_unknown_does_not_hold(text: str, holds: bool) -> None:
    assert Condition(text).holds({"step": 3.0}) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a condition is a text"),
        ("loss >", "invalid syntax"),
        ("los > 1", "no number called 'los'. Did you mean loss"),
        ("layer.rmz > 1", "no statistic 'rmz'. Did you mean rms"),
        ("zzz > 1", "no number called 'zzz'; known are "),
        ("layer > 1", "no number called 'layer'"),
        ("__import__('os').system('true')", "not allowed in a condition"),
        ("loss.real > 1", "not allowed"),
        ("[loss][0] > 1", "not allowed"),
        ("(lambda: 1)() > 0", "not allowed"),
        ("loss ** 9999 > 1", "not allowed"),
        ("'a' * 10 > 1", "not allowed"),
        ("abs(loss, 1)", "abs takes one number"),
        ("min(loss)", "min takes two numbers or more"),
        ("min(*loss, 1)", "not allowed"),
        ("abs(x=loss)", "not allowed"),
        ("loss if step else 1", "not allowed"),
        ("(loss := 3) > 1", "not allowed"),
        ("loss in (1, 2)", "not allowed"),
        ("(" * 400 + "1" + ")" * 400, "is no condition"),
        ("1" * 2000, "up to 1,000 characters"),
    ],
)
def test_what_is_refused_says_why(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="(?s)" + words.replace("'", ".")):
        Condition(text)
