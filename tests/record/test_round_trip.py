from __future__ import annotations

import math
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.record.known_steps import INFO, assert_same, event, layout, step, tables

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import STATS, Fact, FactKey, RunInfo, Step, column
from neuraldbg.record import Recorder, read_run
from neuraldbg.record.codec import BlobDamaged, decode, encode
from neuraldbg.record.row_block import to_float32
from neuraldbg.unlisted_thread import unlisted

SETTINGS = RecordSettings(queue=1000)  # these tests put steps faster than any training


def recorded(folder, steps, settings=SETTINGS, events=None, sites=4):
    recorder = Recorder(folder, settings, INFO)
    for s in steps:
        recorder.put(s, layout(sites), (events or {}).get(s.index, ()))
    live = recorder.record()
    recorder.close()
    assert recorder.problem is None
    return live, recorder


@pytest.mark.parametrize("steps", [0, 1, 63, 64, 65, 300])
def test_live_record_and_file_are_the_same(tmp_path, steps):
    events = {1: [event(1)], 5: [event(1, 5), event(5, kind="dead_units")]}
    live, recorder = recorded(tmp_path, [step(i) for i in range(steps)], events=events)
    assert_same(live, read_run(tmp_path))
    assert_same(live, recorder.record())
    memory, _ = recorded(None, [step(i) for i in range(steps)], events=events)
    assert_same(live, memory)


def test_everything_comes_back(tmp_path):
    steps = [step(i, grad_norm=math.inf if i == 7 else 1.0) for i in range(100)]
    record, _ = recorded(tmp_path, steps, events={3: [event(3)], 9: [event(3, 9)]})
    assert record.info == INFO
    assert record.layout == layout()
    assert record.steps == len(record.history) == 100
    assert record.history.steps.tolist() == list(range(100))
    assert (record.history.width == 1).all()
    assert record.history.applied.all()
    np.testing.assert_array_equal(record.history.mean, np.stack([s.table for s in steps]).astype(np.float32))
    assert record.history.low is record.history.mean
    np.testing.assert_array_equal(record.history.scalars["loss"], [s.scalars["loss"] for s in steps])
    assert record.scalar("grad_norm").at(7) == math.inf
    (found,) = record.events
    assert found == event(3, 9)
    assert math.isnan(record.facts[0].value["worst"])


def test_the_values_of_a_site_and_a_scalar_that_come_late(tmp_path):
    early, late = [step(i, sites=2) for i in range(70)], [step(i, sites=5, evals=2.0) for i in range(70, 80)]
    record, _ = recorded(tmp_path, early + late, sites=5)
    assert record.history.mean.shape == (80, 5, len(STATS))
    assert (record.history.stat(4, "count")[:70] == 0).all()
    assert np.isnan(record.history.stat(4, "rms")[:70]).all()
    assert len(record.series(4, "rms")) == 10
    assert record.scalar("evals").steps.tolist() == list(range(70, 80))


def test_a_growing_layout_is_stored_as_it_grows(tmp_path):
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    for sites in (2, 3, 7):
        recorder.put(step(sites, sites=sites), layout(sites), ())
        assert recorder.record().layout == layout(sites)
    recorder.close()
    assert read_run(tmp_path).layout == layout(7)


def test_float64_beyond_float32_stays_finite_and_nonzero():
    table = np.zeros((1, len(STATS)))
    table[0, :6] = [1e300, -1e300, 1e-300, -1e-300, np.inf, np.nan]
    mean = to_float32([table])[0, 0]
    biggest = np.finfo(np.float32).max
    assert mean[0] == biggest
    assert mean[1] == -biggest
    assert mean[2] > 0 > mean[3]
    assert mean[4] == np.inf
    assert np.isnan(mean[5])


def test_a_fact_key_is_stored_by_its_value(tmp_path):
    fact = Fact(0, FactKey.PARAMS, {"total": 3})
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    recorder.put(Step(0, 0, 0.0, np.zeros((0, len(STATS))), {}, (fact,)), layout(0), ())
    assert recorder.record().fact("params") == {"total": 3}
    recorder.close()


def test_info_is_updated_and_closing_twice_is_harmless(tmp_path):
    recorder = Recorder(tmp_path, SETTINGS, RunInfo(script="a.py"))
    recorder.update_info(INFO)
    recorder.close()
    recorder.close()
    recorder.put(step(0), layout(), ())
    recorder.flush()
    assert recorder.record().info == INFO
    assert read_run(tmp_path).steps == 0
    assert "neuraldbg-writer" not in unlisted()
    assert [p.name for p in tmp_path.iterdir()] == ["rank0.ndbg"]


def test_a_run_that_is_there_already_is_kept(tmp_path):
    first, _ = recorded(tmp_path, [step(i) for i in range(3)])
    second, _ = recorded(tmp_path, [step(i) for i in range(5)])
    assert_same(read_run(tmp_path), second)
    assert_same(read_run(tmp_path / "rank0.ndbg"), first)
    assert_same(read_run(tmp_path / "rank0-2.ndbg"), second)


def test_steps_are_on_disk_without_a_flush(tmp_path):
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    recorder.put(step(0), layout(), (event(0),))
    time.sleep(SETTINGS.flush_s + 0.1)
    record = read_run(tmp_path)
    assert (record.steps, len(record.events)) == (1, 1)
    recorder.close()


def test_the_reading_side_imports_no_torch(tmp_path):
    recorded(tmp_path, [step(0)])
    code = "import sys; from neuraldbg.record import read_run; read_run(sys.argv[1]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)


def test_putting_a_step_takes_microseconds(tmp_path):
    recorder = Recorder(tmp_path, RecordSettings(queue=4096), INFO)
    steps, plan, times = [step(i, sites=300) for i in range(50)], layout(300), []
    for s in steps * 10:
        begin = time.perf_counter()
        recorder.put(s, plan, ())
        times.append(time.perf_counter() - begin)
    recorder.close()
    assert sorted(times)[len(times) // 2] < 100e-6  # about 2e-6; a busy machine is not the matter here


def test_a_forked_child_leaves_the_recorder_alone(tmp_path):
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    recorder.put(step(0), layout(), ())
    with recorder._db_lock, recorder._backlog_lock:  # the worst moment for a fork
        child = os.fork()
        if child == 0:
            recorder.put(step(1), layout(), ())
            recorder.flush()
            ok = recorder.record().steps == 0
            recorder.close()
            del recorder
            os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    recorder.put(step(1), layout(), ())
    assert recorder.record().steps == 2
    recorder.close()
    assert read_run(tmp_path).steps == 2


def test_an_interrupt_in_the_middle_of_a_write_loses_and_doubles_nothing(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, RecordSettings(flush_s=60), INFO)
    recorder.put(step(0), layout(), (event(0),))
    recorder.flush()
    recorder.put(step(1), layout(5), (event(0, 1),))

    def interrupted(block):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("neuraldbg.record.codec.encode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            recorder.flush()
    recorder.put(step(2), layout(5), ())
    record = recorder.record()
    recorder.close()
    assert record.history.steps.tolist() == [0, 1, 2]
    assert (record.events, record.layout, len(record.facts)) == ((event(0, 1),), layout(5), 1)
    assert_same(record, read_run(tmp_path))


def test_an_internal_error_never_reaches_the_training(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, RecordSettings(flush_s=60), INFO)
    recorder.put(step(0), layout(), ())

    def wrong(block):
        raise TypeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("neuraldbg.record.codec.encode", wrong)
        with pytest.raises(TypeError):  # but in our own tests it raises
            recorder.flush()
        patch.delenv("NEURALDBG_STRICT")
        recorder.put(step(1), layout(), ())
        recorder.flush()
    recorder.put(step(2), layout(), ())
    assert recorder.record().history.steps.tolist() == [2]
    recorder.close()
    assert recorder.dropped == 2
    assert "TypeError: a bug" in recorder.problem


@pytest.mark.parametrize("cut", [0, 3, 11, 40, -1])
def test_a_blob_that_is_cut_or_changed_does_not_decode(cut):
    blob = encode(tables([step(i) for i in range(5)]))
    assert_same(decode(blob), decode(bytes(blob)))
    with pytest.raises(BlobDamaged):
        decode(blob[:cut])
    flipped = bytearray(blob)
    flipped[cut] ^= 1
    with pytest.raises(BlobDamaged):
        decode(bytes(flipped))


def test_unchanging_columns_cost_nothing():
    still = [Step(i, 0, 0.0, np.ones((300, len(STATS)))) for i in range(64)]
    blob = encode(tables(still))
    assert len(blob) < 300 * len(STATS) * 4 * 2
    assert decode(blob).mean[:, :, column("rms")].min() == 1
