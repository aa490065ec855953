"""Scalars that come after their step was put: they are found in it wherever it is by then."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record.known_steps import INFO, layout

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import STATS, Step
from neuraldbg.nouns.step import metric_scalars
from neuraldbg.record import Recorder
from neuraldbg.record.binning import fold
from neuraldbg.record.budget import BIN
from neuraldbg.record.reader import read_file
from neuraldbg.record.row_block import Amendment, amended, rows_of
from neuraldbg.record.write_queue import Backlog

LIGHT = np.zeros((0, len(STATS)))


def step(index: int, **scalars: float) -> Step:
    return Step(index, 0, index / 10, LIGHT, {"loss": 1.0 / (1 + index), "loss_nonfinite": 0.0, **scalars})


@pytest.mark.parametrize("saved", [True, False], ids=["file", "memory"])
def test_each_step_gets_its_own_in_the_queue_in_an_open_block_and_in_a_closed_one(saved: bool, tmp_path) -> None:
    recorder = Recorder(tmp_path if saved else None, RecordSettings(), INFO)
    steps = 1_300  # two closed blocks of 512 rows, and an open one
    late = {0: 0.5, 511: 0.25, 512: 0.75, 1_200: 0.1, 1_299: math.nan}
    for index in range(steps):
        recorder.put(step(index), layout())
        if index % 97 == 0:
            recorder.flush()
        if index == 1_250:
            recorder.flush()
    for index, value in late.items():
        recorder.amend(index, metric_scalars("own", value))
    recorder.amend(0, metric_scalars("own", 0.625))  # the newest counts
    recorder.amend(5_000, metric_scalars("own", 1.0))  # no such step
    for run in (recorder.record(), recorder.record()):
        series = run.scalar("metric/own")
        assert series.steps.tolist() == sorted(late)
        np.testing.assert_array_equal(series.values, [0.625, 0.25, 0.75, 0.1, math.nan])
        assert run.steps == len(run.history) == steps
        np.testing.assert_array_equal(run.scalar("loss").values, [1.0 / (1 + index) for index in range(steps)])
    recorder.close()
    recorder.amend(3, metric_scalars("own", 1.0))  # nothing
    assert recorder.problem is None
    if saved:
        np.testing.assert_array_equal(
            read_file(recorder.path).scalar("metric/own").values, [0.625, 0.25, 0.75, 0.1, math.nan]
        )


def test_a_step_that_waits_in_the_queue_is_changed_there() -> None:
    backlog = Backlog(4, 1 << 20)
    for index in range(7):  # the last ones wait to be folded
        backlog.put(step(index), layout(), ())
    backlog.amend(2, {"own": 1.0}, {})
    backlog.amend(6, {"own": 3.0}, {})
    backlog.amend(99, {"own": 9.0}, {"own": 8.0})
    backlog.amend(99, {"own": 10.0}, {"own": 9.0})
    batch = backlog.take()
    assert [one.scalars.get("own") for one in batch.steps] == [None, None, 1.0, None]
    assert batch.rows[0].scalars[0, batch.rows[0].names.index("own")] == 3.0
    assert batch.late == {99: {"own": (10.0, 8.0)}}


def test_a_bin_has_the_mean_of_what_was_measured_in_it() -> None:
    given = [0.5, math.nan, 1.5]
    steps = [step(index, **metric_scalars("own", value)) for index, value in enumerate(given)] + [step(3)]
    block = fold(rows_of(steps, np.arange(4), np.arange(4)), 4)
    assert len(block) == 1

    def value(name: str, block=block) -> float:
        return float(block.scalars[0, block.names.index(name)])

    assert value("metric/own") == 1.0
    assert value("metric_nonfinite/own") == 1.0
    assert (value("metric_low/own"), value("metric_high/own")) == (0.5, 1.5)
    later = amended(block, {0: [{"metric/own": Amendment(4.0), "new": Amendment(2.0)}]})
    assert value("metric/own", later) == pytest.approx((0.5 + 1.5 + 4.0) / 3)
    assert value("new", later) == 2.0
    assert (value("metric_low/own", later), value("metric_high/own", later)) == (0.5, 4.0)
    first = amended(block, {0: [{"metric/late": Amendment(-2.0)}, {"metric/late": Amendment(3.0)}]})
    assert (value("metric_low/late", first), value("metric_high/late", first)) == (-2.0, 3.0)
    unchanged = amended(block, {0: [{"metric/own": Amendment(math.nan)}]})
    assert value("metric/own", unchanged) == 1.0


VALUES = st.floats(-1e3, 1e3) | st.sampled_from([math.nan, math.inf])


@given(
    st.lists(VALUES | st.none(), min_size=2, max_size=9), st.lists(st.tuples(st.integers(0, 8), VALUES), max_size=12)
)
def test_of_a_step_in_a_bin_its_newest_value_counts_once(
    given_: list[float | None], amendments: list[tuple[int, float]]
) -> None:
    first = [{} if value is None else metric_scalars("own", value) for value in given_]
    steps = [step(index, **scalars) for index, scalars in enumerate(first)]
    block = fold(rows_of(steps, np.arange(len(steps)), np.arange(len(steps))), 16)
    newest = list(given_)
    for index, value in amendments:
        at, before = index % len(newest), newest[index % len(newest)]
        block = amended(block, {0: [{"metric/own": Amendment(value, before)}]})
        newest[at] = value
    finite = [value for value in newest if value is not None and math.isfinite(value)]
    ever = [value for value in (*given_, *(value for _, value in amendments)) if value is not None]
    ever = [value for value in ever if math.isfinite(value)]
    if ever:
        ends = [block.scalars[0, block.names.index(f"metric_{end}/own")] for end in ("low", "high")]
        assert ends == [min(ever), max(ever)]
    if "metric/own" not in block.names:
        assert all(value is None for value in newest)
        return
    k = block.names.index("metric/own")
    assert block.measured[0, k] == len(finite)
    if finite:
        assert block.scalars[0, k] == pytest.approx(np.mean(finite), abs=1e-9)
    else:
        assert not math.isfinite(block.scalars[0, k])


@pytest.mark.parametrize("written", [True, False], ids=["in_the_file", "in_the_queue"])
def test_a_mean_that_is_told_many_times_counts_once_in_its_bin(written: bool) -> None:
    recorder = Recorder(None, RecordSettings(queue=4, flush_s=60.0), INFO)
    for index in range(300):  # the writer sleeps: those after the fourth are folded
        recorder.put(step(index, **metric_scalars("own", 0.0)), layout())
    if written:
        recorder.flush()
    at = 4 * BIN  # and the next, of the same bin
    for number in (at, at + 1):
        before = metric_scalars("own", 0.0)
        for value in (1.0, 2.0, 5.0):  # the mean as it grows in a validation of three batches
            told = metric_scalars("own", value) | {"metric_nonfinite/own": value}
            recorder.amend(number, told, before)
            before = told
            if written:
                recorder.flush()
    run = recorder.record()
    means, bad = run.scalar("metric/own"), run.scalar("metric_nonfinite/own")
    (row,) = np.flatnonzero((means.steps <= at) & (at < means.steps + means.width))
    assert means.width[row] > 1
    assert means.values[row] == pytest.approx(2 * 5.0 / means.width[row])
    assert bad.values[list(bad.steps).index(means.steps[row])] == 10.0, "counts are added"
    recorder.close()
