"""Another program holds a lock on the run file: nothing waits for it for long, nothing is lost, and it is said."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from tests.record.known_steps import INFO, assert_same, covered, event, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder, read_run
from neuraldbg.record.follow import abandoned

SETTINGS = RecordSettings(flush_s=60)
HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
db.execute("ROLLBACK")
db.close()
"""


@contextmanager
def locked(file):
    """Hold the lock that ``sqlite3 FILE 'BEGIN EXCLUSIVE'`` takes, in another process."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout.readline() == b"locked\n"
        yield holder
        holder.stdin.close()
        holder.wait()


@pytest.fixture
def patience(monkeypatch):
    """Set how long a lock is waited for, in the middle of a run and at its end."""

    def set_(middle, end=0.3, retry=0.0):
        monkeypatch.setattr("neuraldbg.record.store.LOCKED_S", middle)
        monkeypatch.setattr("neuraldbg.record.store.RETRY_S", retry)
        monkeypatch.setattr("neuraldbg.record.recorder._LOCK_END_S", end)

    return set_


def put(recorder, first, last):
    for i in range(first, last):
        recorder.put(step(i, binned=i % 20 == 0), layout(), (event(0, i),))


def begun(folder):
    recorder = Recorder(folder, SETTINGS, INFO)
    put(recorder, 0, 50)
    recorder.flush()
    return recorder


def test_what_comes_during_a_short_lock_is_written_after_it(tmp_path, patience):
    patience(middle=60)
    recorder = begun(tmp_path)
    with locked(recorder.path):
        put(recorder, 50, 100)
        begin = time.monotonic()
        for _ in range(3):
            recorder.flush()
        assert time.monotonic() - begin < 3  # it was 5 s for each
        put(recorder, 100, 150)
        recorder.flush()
        assert read_run(tmp_path).steps == 50
    recorder.flush()
    assert covered(read_run(tmp_path).history) == list(range(150))
    recorder.close()
    assert (recorder.problem, recorder.remark, recorder.dropped) == (None, None, 0)
    assert recorder._store.notes == []


def test_a_long_lock_is_waited_for_in_memory(tmp_path, patience):
    patience(middle=0)
    recorder = begun(tmp_path)
    with locked(recorder.path):
        put(recorder, 50, 100)
        recorder.flush()
        time.sleep(0.01)
        for first in range(100, 6000, 100):
            put(recorder, first, first + 100)
            recorder.flush()
        assert recorder.path is None
        assert covered(recorder.record().history) == list(range(6000))
        assert covered(read_run(tmp_path).history) == list(range(50))
    recorder.flush()
    assert recorder.path == tmp_path / "rank0.ndbg"
    recorder.update_info(INFO)
    record = recorder.record()
    assert covered(record.history) == list(range(6000))
    assert "was locked by another program" in record.info.coverage["notes"][-1]
    recorder.close()
    assert_same(read_run(tmp_path), record)
    assert (recorder.problem, recorder.remark, recorder.dropped) == (None, None, 0)
    assert [file.name for file in tmp_path.iterdir()] == ["rank0.ndbg"]


def test_a_question_during_a_lock_is_answered_at_once_and_in_full(tmp_path, patience):
    patience(middle=60, retry=60)
    recorder = begun(tmp_path)
    with locked(recorder.path):
        put(recorder, 50, 100)
        begin = time.monotonic()
        record = recorder.record()
        assert time.monotonic() - begin < 3
        assert covered(record.history) == list(range(100))
        put(recorder, 100, 120)
        assert covered(recorder.record().history) == list(range(120))
    recorder.close()
    assert covered(read_run(tmp_path).history) == list(range(120))
    assert recorder.path == tmp_path / "rank0.ndbg"


@pytest.mark.parametrize("asked", [True, False])
def test_a_lock_to_the_end_leaves_the_file_and_saves_the_run_beside_it(tmp_path, patience, asked):
    patience(middle=60, end=0.3)
    recorder = begun(tmp_path)
    with locked(recorder.path):
        put(recorder, 50, 100)
        if asked:
            recorder.record()
        begin = time.monotonic()
        recorder.close()
        assert time.monotonic() - begin < 5
        assert recorder.path == tmp_path / "rank0-2.ndbg"
        assert recorder.problem is None
        assert "it is locked by another program" in recorder.remark
        assert "the whole run is saved in" in recorder.remark
        assert "space" not in recorder.remark
        assert covered(recorder.record().history) == list(range(100))
    assert covered(read_run(tmp_path).history) == list(range(100))
    assert covered(read_run(tmp_path / "rank0.ndbg").history) == list(range(50))


def test_a_lock_to_the_end_and_no_room_beside(tmp_path, patience, monkeypatch):
    patience(middle=60, end=0.1)
    recorder = begun(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 0}))
    with locked(recorder.path):
        put(recorder, 50, 100)
        recorder.close()
    assert "it is locked by another program" in recorder.problem
    assert "could not be saved either" in recorder.problem
    assert covered(recorder.record().history) == list(range(100))


def test_a_lock_that_goes_at_the_end(tmp_path, patience):
    patience(middle=60, end=10)
    recorder = begun(tmp_path)
    with locked(recorder.path) as holder:
        put(recorder, 50, 100)
        recorder.flush()
        recorder.record()
        holder.stdin.close()
        recorder.close()
    assert covered(read_run(tmp_path).history) == list(range(100))
    assert [file.name for file in tmp_path.iterdir()] == ["rank0.ndbg"]
    assert (recorder.problem, recorder.remark) == (None, None)


def test_a_reader_that_stays_is_no_lock(tmp_path, patience):
    patience(middle=0)
    recorder = begun(tmp_path)
    reader = HOLDER.replace("BEGIN EXCLUSIVE", "BEGIN").replace(
        "print(", "db.execute('SELECT * FROM meta').fetchall(); print("
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", reader, recorder.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        holder.stdout.readline()
        put(recorder, 50, 100)
        recorder.flush()
        assert recorder.path is not None
        begin = time.monotonic()
        recorder.close()
        assert time.monotonic() - begin < 5
        holder.stdin.close()
    assert (recorder.problem, recorder.remark) == (None, None)
    assert covered(read_run(tmp_path).history) == list(range(100))


def test_another_program_that_takes_itself_for_the_last_one_and_deletes_the_log(tmp_path, monkeypatch):
    """It does so once the program has closed any descriptor of the file: a copy of the run is enough."""
    monkeypatch.setattr("neuraldbg.record.store.CALM_S", 0)
    recorder = begun(tmp_path)
    recorder.path.read_bytes()
    with locked(recorder.path):
        pass
    assert not recorder.path.with_name("rank0.ndbg-wal").exists()
    put(recorder, 50, 100)
    recorder.flush()
    assert covered(read_run(tmp_path).history) == list(range(100))
    recorder.close()
    assert covered(read_run(tmp_path).history) == list(range(100))
    assert recorder.problem is None


def test_a_reader_in_the_process_of_the_writer_leaves_its_locks_alone(tmp_path):
    recorder = begun(tmp_path)
    read_run(tmp_path)
    abandoned(recorder.path)
    with locked(recorder.path):
        pass
    assert recorder.path.with_name("rank0.ndbg-wal").exists()
    recorder.close()
