"""Bad files say what is wrong and what to do; bad places never stop a run."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.record.known_steps import INFO, assert_same, covered, event, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.errors import RunDamaged, RunFileError, RunNotFound, RunTooNew
from neuraldbg.nouns import STATS, column
from neuraldbg.record import Recorder, read_run

SETTINGS = RecordSettings()


@pytest.fixture
def saved(tmp_path):
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    for i in range(200):
        recorder.put(step(i), layout(), (event(i),) if i % 50 == 0 else ())
    recorder.close()
    return tmp_path / "run" / "rank0.ndbg"


def change(file, *statements):
    db = sqlite3.connect(file)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def test_a_run_is_named_by_its_file_its_folder_or_one_above(saved):
    whole = read_run(saved)
    assert_same(whole, read_run(saved.parent))
    assert_same(whole, read_run(str(saved.parent.parent)))


def test_of_several_runs_the_newest_is_named_first(saved):
    other = saved.parent.parent / "older"
    other.mkdir()
    (other / "rank0.ndbg").write_bytes(saved.read_bytes())
    os.utime(other / "rank0.ndbg", (1, 1))
    with pytest.raises(RunNotFound, match="holds 2 runs") as caught:
        read_run(saved.parent.parent)
    assert [line.split("/")[-1] for line in str(caught.value).splitlines()[1:]] == ["run", "older"]


def test_no_run_there(tmp_path, saved):
    with pytest.raises(RunNotFound, match="no such file or folder"):
        read_run(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunNotFound, match=r"rank0\.ndbg"):
        read_run(tmp_path / "empty")
    with pytest.raises(RunNotFound, match="no rank 3; it has rank 0"):
        read_run(saved.parent, rank=3)


def test_a_later_version_is_told(saved):
    info = json.dumps({"versions": {"neuraldbg": "9.1"}})
    change(saved, "PRAGMA user_version = 7", f"UPDATE meta SET value = '{info}' WHERE key = 'info'")
    with pytest.raises(RunTooNew, match=r"NeuralDBG 9\.1 in version 7.*Read it with that version, or a later one"):
        read_run(saved)
    change(saved, "DROP TABLE meta")
    with pytest.raises(RunTooNew, match="a later NeuralDBG"):
        read_run(saved)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda f: f.write_bytes(b""), "is empty"),
        (lambda f: f.write_bytes(b"loss,step\n1,2\n"), "is no NeuralDBG run file"),
        (lambda f: f.write_bytes(f.read_bytes()[:50]), "is damaged"),
        (lambda f: f.write_bytes(f.read_bytes()[:5000]), "is damaged"),
        (lambda f: f.write_bytes(f.read_bytes()[: f.stat().st_size // 2]), "is damaged"),
        (lambda f: f.write_bytes(f.read_bytes()[:200] + os.urandom(60_000)), "is damaged"),
        (lambda f: change(f, "DROP TABLE event"), "no such table: event"),
        (lambda f: change(f, "DELETE FROM meta"), "is damaged"),
        (lambda f: change(f, "PRAGMA application_id = 1"), "not a NeuralDBG run file"),
        (lambda f: change(f, "UPDATE block SET body = substr(body, 1, 100) WHERE id = 1"), "checksum"),
        (lambda f: change(f, "UPDATE block SET body = 'some text that is no blob'"), "is damaged"),
        (lambda f: change(f, "UPDATE fact SET value = '{'"), "is damaged"),
        (lambda f: change(f, "UPDATE event SET value = '[]'"), "is damaged"),
        (lambda f: change(f, "UPDATE site SET value = '{\"what\": 1}'"), "is damaged"),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(saved, harm, words):
    harm(saved)
    with pytest.raises(RunDamaged, match=words) as caught:
        read_run(saved)
    assert str(saved) in str(caught.value)


def test_a_file_with_fewer_statistics_is_read_by_their_names(saved):
    names = ["renamed", *STATS[1:]]
    change(saved, f"UPDATE meta SET value = '{json.dumps(names)}' WHERE key = 'stats'")
    history = read_run(saved).history
    assert (history.mean[:, :, column("total")] == 0).all()
    assert (history.mean[:, :, column("count")] == 64).all()


# ---------------------------------------------------------------- places that cannot be written


def test_a_file_of_version_1_still_opens():
    record = read_run(Path(__file__).parent / "data" / "version1.ndbg")  # 12 statistics; steps 64..335 are in bins
    assert (record.steps, len(record.history), record.history.width.max()) == (400, 160, 16)
    assert covered(record.history) == list(range(400))
    assert record.history.mean.shape == (160, 2, len(STATS))
    assert (record.history.stat([0, 1], "count") == 64).all()
    assert (record.history.stat([0, 1], "under", "max") == 0).all()
    assert record.history.stat(0, "nonfinite").sum() == 1
    np.testing.assert_allclose(record.series(1, "rms").at(399), step(399).table[1, column("rms")], rtol=1e-6)
    np.testing.assert_array_equal(record.history.stat([0, 1], "rms", "max"), record.history.high[:, :, column("rms")])
    assert record.events[0].last_step == 300


@pytest.mark.parametrize("place", ["file/run", "/proc/neuraldbg", "/dev/null/run"])
def test_an_unwritable_folder_is_told_and_the_run_goes_on(tmp_path, place):
    (tmp_path / "file").write_text("x")
    recorder = Recorder(tmp_path / place, SETTINGS, INFO)
    for i in range(100):
        recorder.put(step(i), layout(), (event(i),))
    record = recorder.record()
    recorder.close()
    assert recorder.path is None
    assert "cannot be saved" in recorder.problem
    assert place.rsplit("/", 1)[-1] in recorder.problem
    assert record.steps == 100
    assert_same(recorder.record(), record)


FULL = """
import resource, sys
from pathlib import Path
from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder, read_run
from tests.record.known_steps import INFO, covered, event, layout, step

resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # a disk on which a file cannot grow beyond 1 MiB
recorder = Recorder(Path(sys.argv[1]), RecordSettings(), INFO)
for i in range(400):
    recorder.put(step(i, sites=200), layout(200), (event(i),) if i % 10 == 0 else ())
    if i % 20 == 0:
        recorder.flush()
record = recorder.record()
recorder.close()
assert record.steps == 400, record.steps
assert covered(record.history) == list(range(400))
assert len(record.events) == 40
assert record.info == INFO
assert record.layout == layout(200)
assert recorder.path is None
left = read_run(sys.argv[1])
assert 0 < left.steps < 400
print(recorder.problem)
"""


def test_a_full_disk_loses_nothing_for_the_diagnosis(tmp_path):
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot be written any more" in done.stdout
    assert "kept in memory only" in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1 << 20


def test_a_folder_that_vanishes_loses_nothing_for_the_diagnosis(tmp_path):
    folder = tmp_path / "run"
    recorder = Recorder(folder, SETTINGS, INFO)
    recorder.put(step(0), layout(), ())
    recorder.flush()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    recorder.put(step(1), layout(), ())
    assert recorder.record().steps == 2
    recorder.close()


def test_a_file_that_somebody_ruins_meanwhile_is_told(tmp_path):
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    for i in range(100):
        recorder.put(step(i), layout(), ())
    recorder.flush()
    for file in tmp_path.iterdir():
        file.write_bytes(b"x" * file.stat().st_size)
    for i in range(100, 200):
        recorder.put(step(i), layout(), ())
        if i % 10 == 0:
            recorder.flush()
    record = recorder.record()
    recorder.close()
    assert record.history.steps[-1] == 199
    assert record.info == INFO
    assert record.steps >= 100
    assert recorder.record().steps == record.steps


def filled(tmp_path):
    """A recorder whose file cannot grow, so that its last steps find no room."""
    recorder = Recorder(tmp_path, RecordSettings(flush_s=60), INFO)
    recorder.flush()
    recorder._store._db.execute("PRAGMA max_page_count = 8")
    for i in range(100):
        recorder.put(step(i, sites=200), layout(200), ())
    return recorder


def test_a_disk_that_is_full_at_the_very_end(tmp_path, monkeypatch):
    recorder = filled(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(2**30, 2**30 - 2**20, 2**20))
    recorder.close()
    assert "full" in recorder.problem
    assert "Free some space" in recorder.problem
    record = recorder.record()
    assert covered(record.history) == list(range(100))


def test_a_disk_that_has_room_again_at_the_end_gets_the_whole_run(tmp_path):
    recorder = filled(tmp_path)
    recorder.close()
    assert (recorder.problem, recorder.path) == (None, tmp_path / "rank0.ndbg")
    assert covered(read_run(tmp_path).history) == list(range(100))
    assert [file.name for file in tmp_path.iterdir()] == ["rank0.ndbg"]


def test_closing_does_not_wait_for_ever_for_a_disk_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr("neuraldbg.record.recorder._JOIN_S", 0.2)
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    recorder.put(step(0), layout(), ())
    with recorder._db_lock:
        begin = time.monotonic()
        time.sleep(SETTINGS.flush_s)
        recorder.close()
        assert time.monotonic() - begin < 5
    assert "does not answer" in recorder.problem
    assert recorder._thread.ended_within(5)


def test_errors_are_of_the_tree_and_of_the_system():
    assert issubclass(RunDamaged, RunFileError)
    assert issubclass(RunFileError, OSError)
