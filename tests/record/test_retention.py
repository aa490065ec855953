from __future__ import annotations

import math
import time
import tracemalloc

import numpy as np
import pytest
from tests.record.known_steps import INFO, assert_same, covered, event, layout, rows, step, tables

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import STATS, Step, column
from neuraldbg.record import Recorder, read_run
from neuraldbg.record.binning import fold
from neuraldbg.record.budget import file_bound, table_limits
from neuraldbg.record.codec import decode, encode
from neuraldbg.record.row_block import join
from neuraldbg.record.write_queue import LIGHT_BYTES, Backlog

SMALL = RecordSettings(full_steps=128, queue=10_000)


def run(folder, steps, settings=SMALL, events=None, sites=4):
    recorder = Recorder(folder, settings, INFO)
    plan = layout(sites)
    for i, s in enumerate(steps):
        recorder.put(s, plan, (events or {}).get(s.index, ()))
        if i % 500 == 499:
            recorder.flush()
    record = recorder.record()
    recorder.close()
    assert (recorder.problem, recorder.dropped) == (None, 0)
    return record


def test_every_step_is_stood_for_once_and_recent_ones_are_full():
    record = run(None, (step(i) for i in range(20_000)))
    assert covered(record.history) == list(range(20_000))
    assert (record.history.width[-128:] == 1).all()
    assert (record.history.width[:64] == 1).all()
    assert set(np.unique(record.history.width)) >= {1, 16, 256, 4096} - {4096}
    assert record.steps == 20_000


def test_bins_hold_the_mean_and_the_extremes():
    steps = [step(i) for i in range(4000)]
    record = run(None, steps)
    wide = np.stack([s.table for s in steps])
    history = record.history
    thin, tabled = np.flatnonzero(history.width > 1), np.flatnonzero((history.width > 1) & history.read)
    assert len(tabled) > 20
    for row in tabled:
        part = wide[history.steps[row] : history.steps[row] + history.width[row]]
        rms = column("rms")
        np.testing.assert_allclose(history.mean[row, :, rms], part[:, :, rms].mean(axis=0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(history.low[row, :, rms], part[:, :, rms].min(axis=0), rtol=1e-6)
        np.testing.assert_allclose(history.high[row, :, rms], part[:, :, rms].max(axis=0), rtol=1e-6)
        zeros = column("zeros")
        np.testing.assert_allclose(history.mean[row, :, zeros], part[:, :, zeros].mean(axis=0), rtol=1e-6)
    thin = thin[~np.isnan(history.scalars["loss"][thin])]
    assert len(thin) > 20
    for row in thin:
        losses = [s.scalars["loss"] for s in steps[history.steps[row] : history.steps[row] + history.width[row]]]
        np.testing.assert_allclose(history.scalars["loss"][row], np.mean(losses), rtol=1e-9)


def test_non_finite_counts_and_losses_survive_thinning():
    bad = {700, 701, 5000}
    steps = [step(i, nonfinite=3.0 * (i in bad), loss=math.nan if i in bad else 1.0) for i in range(12_000)]
    history = run(None, steps).history
    assert history.mean[:, 0, column("nonfinite")].sum() == 3 * len(bad)
    assert np.nansum(history.scalars["loss_nonfinite"]) == len(bad)
    spans = history.steps + history.width
    for index in bad:
        there = (history.steps <= index) & (index < spans)
        row = np.flatnonzero(there & np.isfinite(history.scalars["loss"]))[-1]
        assert history.width[row] > 1
        assert history.scalars["loss"][row] == 1.0
        table = np.flatnonzero(there & history.read)[-1]
        assert history.high[table, 0, column("nonfinite")] == 3.0


def test_a_site_read_at_every_other_step_only_is_averaged_over_those():
    rows = [step(i, seen=i % 2 == 0) for i in range(16)]
    folded = fold(tables(rows), 16)
    assert len(folded) == 1
    assert folded.seen[0, 0] == 8
    read = np.stack([s.table for s in rows if s.table[0, column("count")] > 0])
    np.testing.assert_allclose(folded.mean[0, :, column("rms")], read[:, :, column("rms")].mean(axis=0), rtol=1e-5)
    assert folded.mean[0, 0, column("count")] == 64
    assert folded.low[0, 0, column("count")] == 64


def test_a_site_not_seen_in_a_bin_counts_as_not_seen():
    folded = fold(tables([step(i, seen=False) for i in range(16)]), 16)
    assert (folded.mean[:, :, column("count")] == 0).all()
    assert np.isnan(folded.high[:, :, column("rms")]).all()


def test_folding_twice_is_folding_once():
    steps = [step(i, nonfinite=i % 2, grad_norm=float(i)) for i in range(512)]
    for part in (rows(steps), tables(steps)):
        once, twice = fold(part, 256), fold(fold(part, 16), 256)
        np.testing.assert_allclose(once.mean, twice.mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(once.scalars, twice.scalars, rtol=1e-9)
        for name in ("low", "high", "steps", "width", "folded", "seen", "measured"):
            np.testing.assert_array_equal(getattr(once, name), getattr(twice, name))


def test_optimizers_that_take_turns_keep_their_own_losses():
    steps = [step(i, stream=i % 2, loss=10.0 if i % 2 else 1.0) for i in range(4000)]
    record = run(None, steps)
    for stream, loss in ((0, 1.0), (1, 10.0)):
        series = record.scalar("loss", stream=stream)
        np.testing.assert_allclose(series.values, loss)
        assert series.width.max() > 16
    assert record.steps == 4000
    assert len(record.history) < 2500


def test_an_optimizer_made_anew_at_every_step_is_thinned_too():
    record = run(None, [step(i, stream=i) for i in range(5000)])
    assert record.steps == 5000
    assert len(record.history) < 2500


def test_the_surroundings_of_an_event_stay_full():
    record = run(None, [step(i) for i in range(8000)], events={3000: [event(3000)], 3100: [event(3000, 3100)]})
    history = record.history
    around = (history.steps >= 2984) & (history.steps <= 3016)
    assert around.sum() == 33
    assert (history.width[around] == 1).all()
    assert record.events[0].last_step == 3100


def test_many_events_do_not_keep_everything():
    steps, events = [step(i) for i in range(20_000)], {i: [event(i)] for i in range(0, 20_000, 50)}
    record = run(None, steps, events=events)
    assert len(record.events) == 400
    assert len(record.history) < 6000


def test_two_hundred_thousand_steps_stay_small_and_fast(tmp_path):
    row = step(0, sites=8).table
    recorder = Recorder(tmp_path, RecordSettings(queue=20_000), INFO)
    plan = layout(8)
    begin = time.perf_counter()
    sizes = []
    for i in range(200_000):
        bad = row if i % 50_000 else np.where(np.arange(len(STATS)) == column("nonfinite"), 1.0, row)
        recorder.put(Step(i, 0, i * 0.001, bad, {"loss": 1.0, "loss_nonfinite": 0.0}), plan, ())
        if i % 2000 == 1999:
            recorder.flush()
            sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
    recorder.close()
    elapsed = time.perf_counter() - begin
    record = read_run(tmp_path)
    assert recorder.problem is None
    assert recorder.dropped == 0
    assert record.steps == 200_000
    assert covered(record.history) == list(range(200_000))
    assert record.history.mean[:, 0, column("nonfinite")].sum() == 4
    assert len(record.history) < 5000
    assert max(sizes) < 24 << 20  # most of it the log of writes
    assert (tmp_path / "rank0.ndbg").stat().st_size < 3 << 20
    assert elapsed < 60, elapsed


def test_memory_is_bounded_when_there_is_no_folder():
    recorder = Recorder(None, SMALL, INFO)
    rows, plan = [step(i, sites=50) for i in range(64)], layout(50)
    tracemalloc.start()
    try:
        marks = []
        for i in range(6000):
            recorder.put(Step(i, 0, float(i), rows[i % 64].table, rows[i % 64].scalars), plan, ())
            if i % 1000 == 999:
                recorder.flush()
                marks.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    recorder.close()
    # A batch of the writer's comes and goes within a megabyte or two; every step kept would be many times that.
    assert max(marks) < 6000 * rows[0].table.nbytes / 3, marks


def test_a_model_of_very_many_sites_keeps_fewer_full_steps():
    settings = RecordSettings()
    assert table_limits(settings, sites=250).block_rows == 64
    assert table_limits(settings, sites=500).block_rows == 32
    assert table_limits(settings, sites=16_000).block_rows == 16
    assert file_bound(settings, 450) == 64 << 20
    assert 64 << 20 < file_bound(settings, 1000) < 100 << 20


@pytest.mark.parametrize(("limit", "most"), [(10, 1 << 30), (10_000, 10 * (LIGHT_BYTES + step(0).table.nbytes))])
def test_a_writer_that_does_not_keep_up_coarsens_and_loses_no_event(limit, most):
    backlog, plan = Backlog(limit, most), layout()
    for i in range(1000):
        full = backlog.put(step(i, nonfinite=1.0), plan, (event(i, kind="dead_units"),))
        assert full == (i < 10)
    batch = backlog.take()
    assert len(batch.steps) == 10
    for part in map(join, batch.blocks()):
        assert len(part) < 150
        assert part.folded.sum() == 1000
        assert (np.diff(part.ordinal) > 0).all()
    assert part.mean[:, 0, column("nonfinite")].sum() == 1000
    assert list(batch.events) == [event(i, kind="dead_units").key for i in range(1000)]
    assert not backlog.take()


def test_a_stuck_writer_is_waited_for_by_nobody(tmp_path):
    recorder = Recorder(tmp_path, RecordSettings(queue=16), INFO)
    with recorder._db_lock:
        for i in range(2000):
            recorder.put(step(i, nonfinite=1.0), layout(), (event(i // 100, i),))
    record = recorder.record()
    recorder.close()
    assert recorder.dropped > 1000
    assert record.steps == 2000
    assert record.history.mean[:, 0, column("nonfinite")].sum() == 2000
    assert len(record.events) == 20
    assert_same(record, read_run(tmp_path))


@pytest.mark.parametrize("bin_steps", [16, 4096])
def test_bins_survive_the_codec(bin_steps):
    steps = [step(i) for i in range(100)]
    for folded in (fold(rows(steps), bin_steps), fold(tables(steps), bin_steps)):
        assert_same(folded, decode(encode(folded)))
