"""Programs that close descriptors which are not theirs, and open files that take the numbers: those stay theirs."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.record.known_steps import INFO, assert_same, covered, event, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder, read_run

SETTINGS = RecordSettings(flush_s=60)
ALL = slice(None)
ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


class Files:
    """Files of the program, opened where ours were."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder, self.opened = folder, []

    def take(self, numbers):
        """Open a file at each number, as a program does that closed it: filled, and read up to the middle."""
        for number in numbers:
            path = self.folder / f"{len(self.opened)}.bin"
            path.write_bytes(bytes(range(200)) * 400)
            own = os.open(path, os.O_RDWR)
            if own != number:
                os.dup2(own, number)
                os.close(own)
            os.lseek(number, 40_000, os.SEEK_SET)
            self.opened.append((number, path))

    def unharmed(self):
        """Return True if nobody wrote, read, locked or closed them; closes them."""
        good = []
        for number, path in self.opened:
            same = os.path.samestat(os.fstat(number), path.stat())
            good.append(same and os.lseek(number, 0, os.SEEK_CUR) == 40_000
                        and path.read_bytes() == bytes(range(200)) * 400)  # fmt: skip
            os.close(number)
        return all(good)


def held(recorder):
    return sorted(number for number, _ in recorder._store._file._held)


def lose(recorder, files, which=ALL, *, reuse=True):
    """Close descriptors that SQLite holds, by order of their numbers."""
    numbers = held(recorder)[which]
    for number in numbers:
        os.close(number)
    if reuse:
        files.take(numbers)


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    monkeypatch.setattr("neuraldbg.record.store.CALM_S", 0)


def test_a_program_that_closes_many_is_let_finish(tmp_path, files, monkeypatch):
    monkeypatch.setattr("neuraldbg.record.store.CALM_S", 0.4)
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    put(recorder, 0, 50)
    recorder.flush()
    lose(recorder, files)
    put(recorder, 50, 100)
    begin = time.monotonic()
    while opened_under(tmp_path / "run") == 0:
        assert time.monotonic() < begin + 10
        time.sleep(0.05)
        recorder.flush()
    assert time.monotonic() > begin + 0.4
    assert covered(read_run(tmp_path / "run").history) == list(range(100))
    recorder.close()
    assert files.unharmed()


def test_descriptors_have_high_numbers_and_standard_streams_stay_closed(tmp_path):
    code = """
import os, sys
from pathlib import Path
from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder
from tests.record.known_steps import INFO, layout, step
os.close(0)
recorder = Recorder(Path(sys.argv[1]), RecordSettings(), INFO)
recorder.put(step(0), layout(), ())
recorder.flush()
assert min(number for number, _ in recorder._store._file._held) > 500
assert os.open(os.devnull, os.O_RDONLY) == 0
assert os.open(os.devnull, os.O_RDONLY) == 3
recorder.close()
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env=ENV, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "program")


def put(recorder, first, last):
    for i in range(first, last):
        recorder.put(step(i), layout(), (event(0, i),))


def opened_under(folder):

    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            names.append(str(entry.readlink()))
    return sum(str(folder) in name for name in names)


MAPPED = sys.version_info < (3, 13)
"""Whether Python keeps a descriptor beside a mapping."""


def test_all_descriptors_are_known_from_the_start(tmp_path):
    recorder = Recorder(tmp_path, SETTINGS, INFO)
    before = held(recorder)
    assert len(before) == 3 + MAPPED
    for round_ in range(30):
        put(recorder, 100 * round_, 100 * (round_ + 1))
        recorder.flush()
    recorder.record()
    own = {file.name for number in before for file in [Path(f"/proc/self/fd/{number}").readlink()]}
    assert own == {"rank0.ndbg", "rank0.ndbg-wal", "rank0.ndbg-shm"}
    assert opened_under(tmp_path) == 3 + MAPPED
    recorder.close()
    assert opened_under(tmp_path) == 0


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("which", [ALL, slice(0, 1), slice(1, 2), slice(2, 3), slice(0, 2), slice(1, 3)])
def test_the_run_goes_on_in_a_file_of_its_own(tmp_path, files, which, reuse):
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    put(recorder, 0, 50)
    recorder.flush()
    lose(recorder, files, which, reuse=reuse)
    put(recorder, 50, 100)
    recorder.flush()
    assert covered(read_run(tmp_path / "run").history) == list(range(100))
    put(recorder, 100, 150)
    recorder.update_info(INFO)
    record = recorder.record()
    recorder.close()
    assert files.unharmed()
    assert (recorder.problem, recorder.remark) == (None, None)
    assert "closed the descriptors" in record.info.coverage["notes"][-1]
    assert covered(record.history) == list(range(150))
    assert_same(read_run(tmp_path / "run"), record)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["rank0.ndbg"]


@pytest.mark.parametrize("moment", ["question", "close"])
def test_they_are_lost_between_a_write_and(tmp_path, files, moment):
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    put(recorder, 0, 50)
    recorder.flush()
    lose(recorder, files)
    if moment == "question":
        assert recorder.record().steps == 50
    recorder.close()
    assert files.unharmed()
    assert covered(read_run(tmp_path / "run").history) == list(range(50))
    assert recorder.record().steps == 50
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["rank0.ndbg"]


def test_they_are_lost_in_the_middle_of_a_transaction(tmp_path, files, monkeypatch):
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    put(recorder, 0, 50)
    recorder.flush()
    put(recorder, 50, 100)
    from neuraldbg.record import codec

    encode = codec.encode

    def closing(block):
        monkeypatch.setattr(codec, "encode", encode)
        lose(recorder, files)
        return encode(block)

    monkeypatch.setattr(codec, "encode", closing)
    recorder.flush()
    record = recorder.record()
    recorder.close()
    assert files.unharmed()
    assert covered(record.history) == list(range(100))
    assert_same(read_run(tmp_path / "run"), record)


def test_an_interrupt_in_the_middle_of_a_transaction_that_lost_them(tmp_path, files, monkeypatch):
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    put(recorder, 0, 50)

    def closing(block):
        lose(recorder, files)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("neuraldbg.record.codec.encode", closing)
        with pytest.raises(KeyboardInterrupt):
            recorder.flush()
    recorder.close()
    assert files.unharmed()
    assert covered(read_run(tmp_path / "run").history) == list(range(50))


def test_a_program_that_closes_them_again_and_again(tmp_path, files):
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    for round_ in range(6):
        put(recorder, 20 * round_, 20 * (round_ + 1))
        recorder.flush()
        lose(recorder, files)
    recorder.close()
    assert files.unharmed()
    assert covered(read_run(tmp_path / "run").history) == list(range(120))
    assert recorder.problem is None


def test_other_descriptors_are_put_in_their_place(tmp_path, files):
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    put(recorder, 0, 50)
    recorder.flush()
    files.take(held(recorder))  # dup2, nothing was closed before
    put(recorder, 50, 100)
    recorder.close()
    assert files.unharmed()
    assert covered(read_run(tmp_path / "run").history) == list(range(100))


def test_the_file_is_gone_as_well(tmp_path, files):
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    put(recorder, 0, 50)
    recorder.flush()
    lose(recorder, files)
    for file in (tmp_path / "run").iterdir():
        file.unlink()
    put(recorder, 50, 100)
    record = recorder.record()
    recorder.close()
    assert files.unharmed()
    assert covered(record.history) == list(range(50, 100))
    assert "could not be read back" in recorder.problem
    assert_same(read_run(tmp_path / "run").history.steps, record.history.steps)


def test_a_database_of_the_program_is_not_taken_for_ours(tmp_path, files):
    """SQLite shares what it knows of a file among all connections to its inode, which the system gives again."""
    recorder = Recorder(tmp_path / "run", SETTINGS, INFO)
    put(recorder, 0, 50)
    recorder.flush()
    old = (tmp_path / "run" / "rank0.ndbg").stat().st_ino
    lose(recorder, files)
    put(recorder, 50, 100)
    recorder.close()
    seen = []
    for number in range(20):
        db = sqlite3.connect(tmp_path / f"own{number}.db")
        db.execute("PRAGMA journal_mode = WAL")
        with db:
            db.execute("CREATE TABLE t (x)")
            db.execute("INSERT INTO t VALUES (1)")
        seen.append((tmp_path / f"own{number}.db").stat().st_ino)
        db.close()
    assert old not in seen
    assert files.unharmed()


LEAVING = """
import os, sys
from pathlib import Path
from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder
from tests.record.known_steps import INFO, layout, step

recorder = Recorder(Path(sys.argv[1]) / "run", RecordSettings(flush_s=60), INFO)
for i in range(100):
    recorder.put(step(i), layout(), ())
recorder.flush()
os.closerange(3, 1000)
for i in range(600):
    os.open(f"{sys.argv[1]}/{i}.bin", os.O_RDWR | os.O_CREAT)
if sys.argv[2] == "dropped":
    recorder._stop = True
    recorder._wake.set()
    recorder._thread.ended_within(10)
    del recorder
    import gc; gc.collect()
    os.fstat(20)
"""


@pytest.mark.parametrize("how", ["left", "dropped"])
def test_a_recorder_that_is_never_closed_writes_nothing_at_the_end_of_the_process(tmp_path, how):
    done = subprocess.run(
        [sys.executable, "-c", LEAVING, tmp_path, how], env=ENV, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {file.stat().st_size for file in tmp_path.glob("*.bin")} == {0}
    assert read_run(tmp_path / "run").steps == 100
