"""Smoothed lines and the losses of several runs, against sums written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.show.made_views import EMPTY, lines

from neuraldbg.nouns import Series
from neuraldbg.show.forms import Scale, SmoothedLines
from neuraldbg.show.interactive.draw import figure
from neuraldbg.show.views.several_losses import losses_of
from neuraldbg.show.views.smoothing import moving_average, smoothed


def test_an_average_is_that_of_all_values_before_each_weighted_by_distance():
    steps, values, weight = np.arange(5), np.array([1.0, 5.0, np.nan, 2.0, 8.0]), 0.6
    found = moving_average(steps, values, weight)
    for at in range(5):
        if np.isnan(values[at]):
            assert np.isnan(found[at])
            continue
        known = [i for i in range(at + 1) if not np.isnan(values[i])]
        shares = np.array([weight ** (at - i) for i in known])
        assert found[at] == pytest.approx((shares * values[known]).sum() / shares.sum())
    assert found[0] == 1.0, "it begins at the first value, not at 0"


def test_after_a_gap_more_is_forgotten():
    values = np.array([1.0, 1.0, 1.0, 9.0])
    near = moving_average(np.array([0, 1, 2, 3]), values, 0.9)
    far = moving_average(np.array([0, 1, 2, 60]), values, 0.9)
    assert near[-1] < far[-1]
    assert far[-1] > 8.9


def test_smoothed_lines_keep_what_was_measured_and_draw_it_pale():
    view = lines(y=Scale("loss"))
    assert smoothed(view, 0.0) is view
    assert smoothed(replace(view, empty=EMPTY), 0.9).empty
    even = smoothed(view, 0.9)
    assert isinstance(even, SmoothedLines)
    assert (even.measured, even.marks, even.guilty) == (view.lines, view.marks, view.guilty)
    np.testing.assert_array_equal(even.lines[0].values, moving_average(view.lines[0].steps, view.lines[0].values, 0.9))
    made = figure(even)
    for line in view.lines:
        (pale,) = [trace for trace in made.data if trace.name == f"{line.name}, measured"]
        (bold,) = [trace for trace in made.data if trace.name in {line.name, f"▶ {line.name}"}]
        np.testing.assert_array_equal(pale.y, line.values)
        assert (pale.line.color, pale.showlegend) == (bold.line.color, False)
        assert pale.opacity < 1


def test_on_a_log_axis_powers_of_ten_are_averaged():
    view = lines(y=Scale("loss", log=True))
    even = smoothed(view, 0.9)
    powers = moving_average(view.lines[1].steps, np.log10(view.lines[1].values), 0.9)
    np.testing.assert_allclose(even.lines[1].values, 10**powers)
    assert "powers of ten" in even.notes[0]


def test_losses_of_runs_are_named_by_run_and_loss():
    one = Series(np.arange(3), np.array([3.0, np.nan, 1.0]), np.ones(3, np.int64))
    other = Series(np.arange(2) * 4, np.array([5.0, 4.0]), np.full(2, 4))
    view = losses_of([("a", [("loss", one)]), ("gan", [("d_loss", one), ("g_loss", other)])])
    assert [line.name for line in view.lines] == ["a", "gan, d_loss", "gan, g_loss"]
    np.testing.assert_array_equal(view.lines[0].values, one.values)
    assert view.lines[0].nonfinite.tolist() == [1]
    assert view.title == "Loss of 2 runs"
    assert view.notes == ("Points of long runs are means of several steps",)
    assert losses_of([("a", [])]).empty
