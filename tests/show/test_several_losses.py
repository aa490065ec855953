"""Runs with several optimizers: each loss is a curve of its own, under its name, wherever losses are shown."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.show.small_gan import ROUNDS, trained_gan

from neuraldbg.explain.evidence.wording import number
from neuraldbg.nouns.loss_names import loss_names
from neuraldbg.record.reader import read_scalars
from neuraldbg.show.static.crash import crash_figure
from neuraldbg.show.terminal.draw import drawn
from neuraldbg.show.views import view
from neuraldbg.show.views.crash import picture


@pytest.fixture(scope="module")
def gan():
    dbg = trained_gan(cut=False)
    return dbg.record(), dbg.diagnose()


def test_the_crash_picture_has_a_curve_for_each_loss(gan):
    run, diagnosis = gan
    shown = picture(run, diagnosis)
    assert [line.name for line in shown.losses] == ["d_loss", "g_loss"]
    for stream, line in enumerate(shown.losses):
        np.testing.assert_array_equal(line.values, run.scalar("loss", stream).values)
        assert len(line.steps) == ROUNDS
    legend = crash_figure(run, diagnosis).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["d_loss", "g_loss"]


def test_the_terminal_and_the_figure_name_both(gan):
    shown = view("loss", *gan)
    text = drawn(shown, 100).plain
    assert "d_loss" in text
    assert "g_loss" in text


def test_the_list_of_runs_names_both_without_reading_the_whole_run(tmp_path):
    trained_gan(cut=False, out=tmp_path / "gan")
    (file,) = (tmp_path / "gan").glob("*.ndbg")
    assert list(loss_names(read_scalars(file)).values()) == ["d_loss", "g_loss"]


def test_the_summary_says_the_way_of_each_loss():
    dbg = trained_gan(cut=False, rounds=120)
    run, said = dbg.record(), dbg.diagnose().summary
    for stream, name in enumerate(("d_loss", "g_loss")):
        first = number(float(run.scalar("loss", stream).values[0]))
        assert re.search(rf"'{name}' (fell|rose|went) from {re.escape(first)} to ", said)
