"""Light steps, whose sites were not read: nearly free, thinned apart from tables, and seen through by the reader."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from tests.record.known_steps import INFO, assert_same, covered, event, layout, step, tables, turns

from neuraldbg import answers
from neuraldbg.config import RecordSettings
from neuraldbg.explain import diagnose
from neuraldbg.nouns import STATS, History, column
from neuraldbg.record import Recorder, file_bound, read_run
from neuraldbg.record.binning import fold
from neuraldbg.record.codec import encode
from neuraldbg.record.row_block import rows_of

NONE = np.zeros((0, len(STATS)))


def light(index, **kwargs):
    return replace(step(index, **kwargs), table=NONE)


def mixed(index, every=10, **kwargs):
    return step(index, **kwargs) if index % every == 0 else light(index, **kwargs)


def recorded(folder, steps, settings=None, events=None, sites=4, flush=200):
    recorder, plan = Recorder(folder, settings or RecordSettings(full_steps=128), INFO), layout(sites)
    for i, s in enumerate(steps):
        recorder.put(s, plan, (events or {}).get(s.index, ()))
        if i % flush == flush - 1:
            recorder.flush()
    record = recorder.record()
    recorder.close()
    assert (recorder.problem, recorder.dropped) == (None, 0)
    return record


@pytest.mark.parametrize("every", [1, 10, 1000])
def test_a_light_step_has_its_scalars_and_no_site(tmp_path, every):
    steps = [mixed(i, every) for i in range(100)]
    record = recorded(tmp_path, steps)
    assert_same(record, read_run(tmp_path))
    assert record.history.steps.tolist() == list(range(100))
    np.testing.assert_array_equal(record.history.scalars["loss"], [s.scalars["loss"] for s in steps])
    np.testing.assert_array_equal(record.history.read, [not s.light for s in steps])
    assert (record.history.stat([0, 3], "count", "max")[~record.history.read] == 0).all()
    assert np.isnan(record.history.stat([0, 3], "rms")[~record.history.read]).all()
    assert record.series(2, "rms").steps.tolist() == list(range(0, 100, every))


def test_a_run_of_light_steps_alone():
    record = recorded(None, [light(i) for i in range(3000)], sites=0)
    assert record.steps == 3000
    assert covered(record.history) == list(range(3000))
    assert record.history.mean.shape == (len(record.history), 0, len(STATS))
    assert not record.history.read.any()


def test_tables_are_kept_by_their_own_number():
    every = 50
    record = recorded(None, (mixed(i, every) for i in range(20_000)), RecordSettings(full_steps=200))
    assert record.steps == 20_000
    assert covered(record.history) == list(range(20_000))
    full = record.history.read & (record.history.width == 1)
    # The last 200 tables, which are of 10,000 steps; not those among the last 200 steps.
    assert set(range(10_000, 20_000, every)) <= set(record.history.steps[full].tolist())
    series = record.series(1, "rms")
    assert set(series.steps.tolist()) == set(record.history.steps[record.history.read].tolist())
    assert record.scalar("loss").width[-200:].max() == 1


def test_nothing_non_finite_is_lost_in_a_mixture():
    bad = {700, 710, 5000}
    steps = (mixed(i, nonfinite=3.0 * (i in bad), loss=math.nan if i in bad else 1.0) for i in range(12_000))
    history = recorded(None, steps).history
    assert history.stat(0, "nonfinite").sum() == 3 * len(bad)
    assert np.nansum(history.scalars["loss_nonfinite"]) == len(bad)


def test_the_surroundings_of_an_event_keep_scalars_and_tables():
    record = recorded(None, (mixed(i) for i in range(12_000)), events={3000: [event(3000)]})
    around = (record.history.steps >= 2984) & (record.history.steps <= 3016)
    assert (record.history.width[around] == 1).all()
    assert around.sum() == 33
    assert record.history.steps[around & record.history.read].tolist() == [2990, 3000, 3010]


def test_a_light_step_takes_few_bytes(tmp_path):
    count = 512
    steps = [light(i) for i in range(count)]
    numbers = np.arange(count)
    assert len(encode(rows_of(steps, numbers, turns(steps)))) / count < 64  # loss, time; lr and the rest do not vary
    assert len(encode(fold(rows_of(steps, numbers, turns(steps)), 16))) / count < 16
    full = encode(tables([step(i, sites=100) for i in range(64)]))
    assert len(full) / 64 > 100 * 5 * 4


def test_what_is_asked_for_is_what_the_whole_table_holds(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, RecordSettings(full_steps=64), INFO)
    for i in range(3000):
        recorder.put(mixed(i, 5, sites=2 if i < 1500 else 5, nonfinite=float(i % 7 == 0)), layout(5))
        if i % 200 == 199:
            recorder.flush()
    recorder.close()
    history, whole = read_run(tmp_path).history, read_run(tmp_path).history
    dense = History(**{name: getattr(whole, name) for name in History.__dataclass_fields__})
    assert dense.mean.shape == (len(dense), 5, len(STATS))
    for reduce in ("min", "mean", "max"):
        for name in ("rms", "count", "nonfinite", "under"):
            for rows in (4, [0, 4, 2], list(range(5)), []):
                np.testing.assert_array_equal(history.stat(rows, name, reduce), dense.stat(rows, name, reduce))
        for at in (0, 17, 1, len(dense) - 1, -1):
            np.testing.assert_array_equal(history.row(at, reduce), dense.row(at, reduce))
    assert "mean" not in history.__dict__  # none of this unpacked it all
    assert (history.sites, dense.sites) == (5, 5)
    np.testing.assert_array_equal(history.read, dense.read)
    with pytest.raises(IndexError):
        history.stat(5, "rms")
    assert_same(pickle.loads(pickle.dumps(history)), dense)
    for reduce in ("min", "mean", "max"):
        for i in range(200):  # who asks that often has this statistic of all sites unpacked
            np.testing.assert_array_equal(history.stat(i % 5, "rms", reduce), dense.stat(i % 5, "rms", reduce))
        np.testing.assert_array_equal(history.stat([3, 0], "rms", reduce), dense.stat([3, 0], "rms", reduce))
    assert set(history.__dict__["_planes"]) == {(name, column("rms")) for name in ("low", "mean", "high")}
    assert not {"mean", "low", "high"} & set(history.__dict__)
    with pytest.raises(IndexError):
        history.stat(5, "rms")
    monkeypatch.setattr("neuraldbg.record.history._MOST", 3 * history.__dict__["_planes"]["mean", column("rms")].nbytes)
    for name in STATS:
        for i in range(20):
            np.testing.assert_array_equal(history.stat(i % 5, name), dense.stat(i % 5, name))
    assert set(history.__dict__["_planes"]) == {("mean", k) for k in range(len(STATS) - 3, len(STATS))}
    assert_same(replace(history, low=dense.mean).low, dense.mean)
    np.testing.assert_array_equal(replace(history, low=dense.mean).stat(3, "rms", "min"), dense.stat(3, "rms"))


def test_a_layer_is_inspected_where_it_was_last_read():
    record = recorded(None, [mixed(i) for i in range(95)])
    assert answers.inspect(record, "fc1").step == 90
    assert answers.inspect(record, "fc1", 55).step == 50
    assert answers.inspect(record, "fc1").statistics["param_grad/weight[1]"]["count"] == 64


def test_what_was_recorded_coarsely_is_said_in_the_coverage(tmp_path):
    recorder = Recorder(tmp_path, RecordSettings(queue=16, flush_s=60), INFO)
    with recorder._db_lock:
        for i in range(2000):
            recorder.put(mixed(i, nonfinite=1.0), layout())
        recorder.update_info(INFO)
    record = recorder.record()
    recorder.close()
    assert record.steps == 2000
    assert record.history.stat(0, "nonfinite").sum() == 200
    (note,) = set(record.info.coverage["notes"]) - set(INFO.coverage["notes"])
    assert "1,984 steps are recorded in bins" in note
    assert record.info.coverage["coarse"] == 1984
    assert any(one.what == "some single steps" for one in diagnose(record).unjudged)
    assert_same(record, read_run(tmp_path))


@pytest.mark.parametrize(("sites", "every", "steps"), [(60, 1, 6_000), (60, 10, 30_000), (600, 1, 600)])
def test_a_run_file_stays_within_its_bound(tmp_path, sites, every, steps):
    settings = RecordSettings(budget_mb=4)
    random = np.random.default_rng(0)
    noise = [random.standard_normal((sites, len(STATS))) for _ in range(16)]  # the worst case: all of it varies

    bare = step(0, sites=0)

    def noisy(i):
        table = noise[i % 16] * (1 + i)
        table[:, column("count")] = 64 + i % 3
        return replace(bare, index=i, time=i * 0.01, table=table if i % every == 0 else NONE)

    events = {i: [event(i)] for i in range(0, steps, 50)}
    record = recorded(tmp_path, map(noisy, range(steps)), settings, events, sites, flush=2 if sites > 100 else 20)
    assert record.steps == steps
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < file_bound(settings, sites)
