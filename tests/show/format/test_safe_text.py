from __future__ import annotations

import pytest

from neuraldbg.show.format.safe_text import duration, listed, number, plain, says, sentence


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("mean", "mean"),
        (0.0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (12345.0, "12,345"),
        (0.001234, "0.00123"),
        (4.2, "4.2"),
        (31415.9, "31,416"),
        (1e9, "1e9"),
        (3.14e-8, "3.1e-8"),
        (29057555.1, "2.9e7"),
        (float("nan"), "NaN"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (0.42, "0.42 s"), (12.34, "12.3 s"), (59.99, "60.0 s"), (250, "4 min 10 s"), (11100, "3 h 5 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_plain_escapes_what_steers_a_terminal():
    assert plain("a\tb\x1b[2J\x9b\u200f\u2066é") == r"a\tb\x1b[2J\x9b\u200f\u2066é"
    assert plain("é…", "ascii") == r"\xe9\u2026"


def test_says():
    assert says("grew 3 times, to 1,200", 1200.0)
    assert says("fell to -2.5e-3", -0.0025)
    assert not says("grew 3 times", 30.0)
    assert not says("the gradient of fc2", 2.0)
    assert says("44% of the units", 0.4355)
    assert not says("44% of the units", 0.43)
    assert not says("44 of the units", 0.44)
    assert says("a share of 99.5 %", 0.995)
    assert not says("nothing - at all, really.", 1.0)


def test_lists_and_sentences():
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b (+1 more: --json)"
    assert [sentence(text) for text in ("", "a", "a.", "a? ")] == ["", "a.", "a.", "a?"]
