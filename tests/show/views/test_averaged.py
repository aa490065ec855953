"""A long or thinned series looks alike in all its parts: means of about equal stretches, with their range."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.nouns import Series
from neuraldbg.show.views.averaged import FEWEST, MOST, RAW, averaged


def stored(values, widths):
    """A series as a record keeps it, whose rows stand for so many of the values each: mean, least and largest."""
    starts = np.cumsum([0, *widths[:-1]])
    parts = [values[start : start + width] for start, width in zip(starts, widths, strict=True)]
    steps, width = np.array(starts, np.int64), np.array(widths, np.int64)
    return tuple(Series(steps, np.array([reduce(p) for p in parts]), width) for reduce in (np.mean, np.min, np.max))


def test_thinned_parts_look_like_the_others():
    """The first 64 and the last 1,000 steps are kept one by one, those between as means of 16 and of 256."""
    values = np.random.default_rng(0).normal(1.0, 0.3, 20_000)
    widths = [1] * 64 + [256] * 70 + [16] * 63 + [1] * 1_008
    assert sum(widths) == 20_000
    line = averaged("loss", stored(values, widths))
    distances = np.diff(line.steps)
    assert FEWEST <= len(line.steps) <= MOST
    assert 100 < distances.min() <= distances.max() < 400  # about as long everywhere
    spread = line.high - line.low
    assert 1.0 < spread.min() <= spread.max() < 3.0  # the band is everywhere, and as broad as the noise
    assert np.std(line.values) < 0.06  # and the mean is everywhere that of many steps
    assert (line.low.min(), line.high.max()) == (values.min(), values.max())
    assert (line.low <= line.values).all()
    assert (line.values <= line.high).all()


def test_a_point_is_the_mean_of_its_steps():
    values = np.arange(4_800.0)
    line = averaged("loss", stored(values, [1] * 4_800))
    blocks = values.reshape(MOST, 20)
    np.testing.assert_allclose(line.values, blocks.mean(axis=1))
    np.testing.assert_allclose((line.low, line.high), (blocks.min(axis=1), blocks.max(axis=1)))
    assert line.steps.tolist() == (np.arange(MOST) * 20 + 9).tolist()


def test_few_steps_are_drawn_as_they_are():
    values = np.random.default_rng(1).normal(size=RAW)
    line = averaged("loss", stored(values, [1] * RAW))
    np.testing.assert_array_equal(line.values, values)
    assert line.low is line.high is None


def test_the_first_step_that_is_not_finite_keeps_its_number():
    values = np.ones(5_000)
    values[3_333:] = np.nan
    line = averaged("loss", stored(values, [1] * 5_000))
    assert line.nonfinite[0] == 3_333
    assert line.steps[np.isnan(line.values)][0] == 3_333
    assert np.isfinite(line.values[line.steps < 3_333]).all()


def test_a_pause_breaks_the_line_and_a_lone_reading_keeps_its_range():
    steps = np.array([*range(1_000), *range(9_000, 9_016)])
    values = np.random.default_rng(2).normal(size=len(steps))
    one = Series(steps, values, np.ones(len(steps), np.int64))
    line = averaged("norm", (one, one, one))
    (gap,) = np.flatnonzero(np.isnan(line.values))
    assert (line.steps[gap], len(line.steps) - gap) == (1_000, 2)
    assert line.values[-1] == pytest.approx(values[-16:].mean())
    assert (line.low[-1], line.high[-1]) == (values[-16:].min(), values[-16:].max())


@pytest.mark.parametrize("count", [481, 1000, 2246, 9999])
def test_the_means_of_a_constant_are_that_constant(count):
    steps = np.arange(count)
    series = Series(steps, np.full(count, 0.002), np.ones(count, int))
    assert set(averaged("lr", (series, series, series)).values) == {0.002}
