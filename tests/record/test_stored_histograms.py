from __future__ import annotations

import json
import sqlite3
import struct
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
from tests.record.known_steps import INFO, assert_same, histograms, layout, step

from neuraldbg.capture.statistics.histograms import Binning
from neuraldbg.config import RecordSettings
from neuraldbg.errors import RunDamaged, RunTooNew
from neuraldbg.nouns import BINS, StepHistograms
from neuraldbg.record import Recorder, file_bound, read_run, schema
from neuraldbg.record.budget import histogram_bytes, queue_bytes
from neuraldbg.record.codec import BlobDamaged
from neuraldbg.record.histograms import decode, encode, expendable, load
from neuraldbg.record.write_queue import Backlog
from neuraldbg.saved import Run

SETTINGS = RecordSettings(queue=1000)


def recorded(folder, steps, settings=SETTINGS, sites=4):
    recorder = Recorder(folder, settings, INFO)
    for s in steps:
        recorder.put(s, layout(sites))
    record = recorder.record()
    recorder.close()
    assert recorder.problem is None
    return record


def schedule(last):
    """The steps that capture would take histograms of, were all of them read in full."""
    binning, found, at = Binning(1), [], 0
    while at <= last:
        assert binning.begin(at)
        binning.take()
        found.append(at)
        at = binning.until(at)
    return found


def change(path, *statements):
    db = sqlite3.connect(path / "rank0.ndbg")
    with db:
        for statement in statements:
            db.execute(*statement) if isinstance(statement, tuple) else db.execute(statement)
    db.close()


def test_histograms_come_back_from_the_file_as_they_were(tmp_path):
    record = recorded(tmp_path, [step(i, binned=i % 10 == 0) for i in range(95)])
    assert_same(record.histograms, tuple(histograms(i) for i in range(0, 95, 10)))
    assert_same(record, read_run(tmp_path))
    assert_same(record, recorded(None, [step(i, binned=i % 10 == 0) for i in range(95)]))
    run = Run.load(tmp_path)
    assert_same(run.histograms, record.histograms)
    course = run.histogram(2)
    assert course.steps.tolist() == list(range(0, 95, 10))
    assert len(course.edges) == course.counts.shape[1] + 1
    np.testing.assert_array_equal(course.counts.sum(axis=1), [h.counts_of(2).sum() for h in record.histograms])
    assert len(run.histogram(3)) == 0  # the last site has none


def test_none_are_recorded_of_steps_that_have_none(tmp_path):
    assert recorded(tmp_path, [step(i) for i in range(20)]).histograms == ()
    assert read_run(tmp_path).histograms == ()


def test_a_run_that_grows_is_read_on(tmp_path):
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    known = ()
    for i in range(30):
        recorder.put(step(i, binned=i % 8 == 0), layout())
        recorder.flush()
        db = sqlite3.connect(tmp_path / "rank0.ndbg")
        now = load(db, known)
        assert (now is known) == (i % 8 > 0)
        assert all(one is other for one, other in zip(known, now, strict=False))
        assert_same(now, load(db))
        known = now
        db.execute("DELETE FROM histogram WHERE step = 8")
        assert [each.step for each in load(db, known)] == [s for s in range(0, i + 1, 8) if s != 8]
        db.close()  # and nothing was changed
    recorder.close()


@pytest.mark.parametrize("sites", [2, 300, 3000])
def test_a_blob_is_what_it_was_made_of(sites):
    one = histograms(3, sites)
    assert_same(decode(3, encode(one), 3000), one)
    blank = StepHistograms.of(5, [70_000], np.zeros((1, BINS), np.int64))
    assert_same(decode(5, encode(blank), 70_001), blank)
    # Two to three bytes a bin in use, mostly less than what memory takes.
    assert len(encode(one)) < one.nbytes


@pytest.mark.parametrize("cut", [0, 3, 4, 40, -1])
def test_a_blob_that_is_cut_or_changed_does_not_decode(cut):
    blob = encode(histograms(3))
    with pytest.raises(BlobDamaged):
        decode(3, blob[:cut], 3)
    flipped = bytearray(blob)
    flipped[cut] ^= 1
    with pytest.raises(BlobDamaged):
        decode(3, bytes(flipped), 3)


def sealed(body):
    return struct.pack("<I", zlib.crc32(body)) + body


@pytest.mark.parametrize(
    "body",
    [
        b"no zlib at all",
        zlib.compress(b""),
        zlib.compress(struct.pack("<II", 0, 0) + bytes(10_000_000)),  # unpacks to much more than it says
        zlib.compress(struct.pack("<II", 1, 0) + struct.pack("<I", 7) + bytes(2)),  # of a site that there is not
        zlib.compress(struct.pack("<II", 2, 0) + struct.pack("<II", 1, 0) + bytes(4)),  # twice the same
    ],
)
def test_a_blob_that_was_made_to_look_whole_is_damage_and_takes_no_memory(body):
    tracemalloc.start()
    with pytest.raises(BlobDamaged):
        decode(3, sealed(body), 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_a_damaged_histogram_is_a_damaged_file(tmp_path):
    recorded(tmp_path, [step(i, binned=i == 8) for i in range(20)])
    change(tmp_path, ("UPDATE histogram SET body = ?", (zlib.compress(b"something else"),)))
    with pytest.raises(RunDamaged, match="histograms fail their checksum"):
        read_run(tmp_path)


def test_a_file_of_version_2_has_none(tmp_path):
    record = recorded(tmp_path, [step(i, binned=i % 10 == 0) for i in range(30)])
    change(tmp_path, "DROP TABLE histogram", "PRAGMA user_version = 2")  # that is all that is new in version 3
    assert_same(read_run(tmp_path), replace(record, histograms=()))


def test_the_version_of_the_file_keeps_older_readers_away(tmp_path, monkeypatch):
    recorded(tmp_path, [step(0, binned=True)])
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    with pytest.raises(RunTooNew, match="version 3 of the run file; this NeuralDBG reads up to version 2"):
        read_run(tmp_path)


def test_a_million_steps_take_bounded_bytes(tmp_path):
    """The histograms of a million steps of a model of so many sites that not all of them can be kept."""
    settings, sites = RecordSettings(budget_mb=4), 200
    steps = schedule(10**6)
    assert len(steps) == 30
    recorder, largest = Recorder(tmp_path, settings, INFO), 0
    for i in steps:
        recorder.put(step(i, sites=sites, binned=True), layout(sites))
        recorder.flush()
        with sqlite3.connect(recorder.path) as db:
            kept = dict(db.execute("SELECT step, length(body) FROM histogram ORDER BY step"))
        db.close()
        largest = max(largest, sum(kept.values()))
        assert {0, i} <= kept.keys()
        assert sum(kept.values()) <= max(histogram_bytes(settings), kept[0] + kept[i])
    record = recorder.record()
    recorder.close()
    assert recorder.problem is None
    found = [each.step for each in record.histograms]
    assert found == list(kept)
    assert largest > 0.7 * histogram_bytes(settings)  # else nothing was thinned
    assert 6 <= len(found) <= 30
    assert found[1] < 10_000  # what is left is of all of the run
    assert_same(record.histograms[-1], histograms(steps[-1], sites))
    assert (tmp_path / "rank0.ndbg").stat().st_size <= file_bound(settings, sites)


def test_every_second_is_left_out_before_any_other():
    steps = schedule(10**5)
    left = list(steps)
    while len(left) > len(steps) // 2 + 1:
        left.remove(expendable(left))
    assert left[0] == 0
    assert left[-1] == steps[-1]
    at = [steps.index(step) for step in left]
    assert max(np.diff(at)) <= 3
    while len(left) > 2:
        left.remove(expendable(left))
    assert left == [0, steps[-1]]


def test_a_queue_that_is_full_keeps_no_more_histograms_but_all_else():
    settings = RecordSettings(budget_mb=4)
    backlog, sites = Backlog(4096, queue_bytes(settings)), 300
    some, plan = step(0, sites=sites, binned=True), layout(sites)
    for i in range(400):
        backlog.put(replace(some, index=i, histograms=replace(some.histograms, step=i)), plan, ())
    batch = backlog.take()
    kept = [each.step for each in batch.histograms]
    assert kept == list(range(len(kept)))
    assert 5 < len(kept) < 60
    assert sum(each.nbytes for each in batch.histograms) <= queue_bytes(settings)
    rows, _ = batch.blocks()
    assert sum(int(block.folded.sum()) for block in rows) == 400
    backlog.put(some, plan, ())
    assert [each.step for each in backlog.take().histograms] == [0]


def test_a_fall_back_into_memory_takes_them_along(tmp_path):
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    for i in range(0, 40, 8):
        recorder.put(step(i, binned=True), layout())
    recorder.flush()
    recorder._store._fall_back(recorder._store._file, "no space left")
    recorder.put(step(40, binned=True), layout())
    record = recorder.record()
    recorder.close()
    assert_same(record.histograms, tuple(histograms(i) for i in range(0, 41, 8)))
    assert json.loads(schema.dumps(record.info))["script"] == "train.py"
