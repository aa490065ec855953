"""Explanations of averages leave the sentence and stand below the text, each once."""

from __future__ import annotations

from neuraldbg.show.format.footnotes import Footnotes, brief_averages


def test_each_explanation_is_said_once_and_has_its_mark():
    notes = Footnotes()
    assert notes.without("from 2.3 to 32.6 (median of the last 6 losses)") == "from 2.3 to 32.6*"
    assert notes.without("3 times the weights (median over weight matrices), then 5") == "3 times the weights**, then 5"
    assert notes.without("0.2 (lowest median of 6 losses in a row), now 0.3 (median of the last 6 losses)") == (
        "0.2***, now 0.3*"
    )
    assert notes.lines() == [
        "* median of the last 6 losses",
        "** median over weight matrices",
        "*** lowest median of 6 losses in a row",
    ]


def test_other_brackets_stay_and_one_loss_is_no_average():
    notes = Footnotes()
    assert notes.without("at most (1) of (a, b) losses (R^2 0.3)") == "at most (1) of (a, b) losses (R^2 0.3)"
    assert notes.without("the loss is 0.2 (last loss)") == "the loss is 0.2"
    assert notes.lines() == []
    assert brief_averages("to 0.02 (median of the last 9 losses).") == "to 0.02 (median)."
