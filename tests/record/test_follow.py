"""A run file that is followed says the same as reading it anew does, whatever happens to it meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import struct
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.record.known_steps import INFO, assert_same, event, layout, step
from tests.record.writer_process import start

from neuraldbg.config import RecordSettings
from neuraldbg.errors import RunFileError
from neuraldbg.nouns import STATS, Fact
from neuraldbg.record import Recorder, codec, read_run
from neuraldbg.record.follow import Follower, abandoned, look, silence
from neuraldbg.record.reader import read_scalars
from neuraldbg.record.run_names import rank_files, run_folders

SMALL = RecordSettings(full_steps=64, budget_mb=4)


def recorder(folder, settings=SMALL, info=INFO):
    return Recorder(folder, settings, info)


def check(follower):
    """The independent oracle: a new reading of all."""
    whole = read_run(follower.file)
    assert_same(follower.record, whole)
    assert_same(follower.record.history.mean, whole.history.mean)
    assert_same(follower.record.history.high, whole.history.high)


def test_each_poll_is_what_reading_anew_gives(tmp_path):
    follower = Follower(tmp_path / "rank0.ndbg")
    assert not follower.poll()
    writer = recorder(tmp_path)
    for i in range(6000):
        # Sites appear, events go on, facts of one kind are too many to keep all, blocks are folded, and folded again.
        sites = 2 if i < 700 else 4
        writer.put(step(i, sites=sites, stream=i % 2), layout(sites), (event(i // 1000 * 1000, i),))
        writer.note([Fact(i, "modes", {"model": f"m{i}", "worst": float("nan")})])
        if i % 270 == 269:
            writer.flush()
            assert follower.poll()
            check(follower)
    writer.update_info(INFO)
    writer.close()
    assert follower.poll()
    check(follower)
    assert follower.record.steps == 6000
    assert follower.record.history.width.max() > 256
    assert len(follower.record.facts) < 6000


def test_a_dtype_that_is_known_after_its_site_was_written_is_stored(tmp_path):
    """As of a gradient whose first backward pass comes steps after the forward pass."""
    follower = Follower(tmp_path / "rank0.ndbg")
    writer = recorder(tmp_path)
    whole = layout()
    blank = [replace(site, dtype="") if row in (1, 2) else site for row, site in enumerate(whole.sites)]
    writer.put(step(0), replace(whole, sites=tuple(blank)), ())
    writer.flush()
    assert follower.poll()
    assert [site.dtype for site in follower.record.layout.sites] == ["float32", "", "", "float32"]
    writer.put(step(1), whole, ())
    writer.flush()
    assert follower.poll()
    check(follower)
    assert follower.record.layout.sites == whole.sites == read_run(follower.file).layout.sites
    writer.close()


def test_only_what_is_new_is_unpacked(tmp_path, monkeypatch):
    writer = recorder(tmp_path, RecordSettings())
    for i in range(2000):
        writer.put(step(i), layout())
        if i % 100 == 99:
            writer.flush()
    follower = Follower(tmp_path / "rank0.ndbg")
    assert follower.poll()
    opened = []
    original = codec.opened
    monkeypatch.setattr(codec, "opened", lambda body: (opened.append(len(body)), original(body))[1])
    old = follower.record
    for i in range(2000, 2010):
        writer.put(step(i), layout())
    writer.flush()
    assert follower.poll()
    assert len(opened) <= 4
    assert follower.record.layout is old.layout
    assert follower.record.info is old.info
    writer.close()
    check(follower)


def test_nothing_new_is_found_out_without_opening_the_file(tmp_path, monkeypatch):
    writer = recorder(tmp_path)
    for i in range(100):
        writer.put(step(i), layout())
    writer.close()
    follower = Follower(tmp_path / "rank0.ndbg")
    assert follower.poll()
    record = follower.record
    assert not follower.poll()
    assert follower.record is record, "read again, as the change is so young that another one may look the same"
    os.utime(follower.file, (time.time() - 60,) * 2)
    assert not follower.poll()
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: pytest.fail("opened"))
    assert not follower.poll()
    assert follower.record is record


@pytest.mark.parametrize("rate", [400])
def test_a_process_that_writes_is_followed_until_it_is_killed(tmp_path, rate):
    follower = Follower(tmp_path / "rank0.ndbg")
    child = start(tmp_path, rate, 100_000)
    with child:
        deadline, same = time.monotonic() + 60, 0
        while follower.record.steps < 3 * rate:
            assert time.monotonic() < deadline
            if follower.poll():
                assert follower.problem == ""
                whole = read_run(tmp_path)
                if 0 < whole.steps == follower.record.steps:  # nothing was written in between
                    assert_same(follower.record, whole)
                    same += 1
            time.sleep(0.02)
        assert same >= 3
        assert not abandoned(follower.file)
        child.send_signal(signal.SIGKILL)
        child.stdout.read()
    follower.poll()
    check(follower)
    assert follower.record.info.outcome == INFO.outcome
    assert abandoned(follower.file)
    assert silence(look(follower.file)) < 60
    assert follower.record.history.width.max() == 16


def test_the_writer_is_not_kept_from_closing_its_file(tmp_path):
    writer = recorder(tmp_path)
    follower = Follower(tmp_path / "rank0.ndbg")
    for i in range(200):
        writer.put(step(i), layout())
        if i % 10 == 0:
            writer.flush()
            follower.poll()
    begin = time.monotonic()
    writer.close()
    assert time.monotonic() - begin < 2
    # A file without companions: nobody else had it open.
    assert [file.name for file in tmp_path.iterdir()] == ["rank0.ndbg"]
    follower.poll()
    check(follower)
    assert [file.name for file in tmp_path.iterdir()] == ["rank0.ndbg"], "nor has the reader left any"


# ---------------------------------------------------------------- what may happen to the file


def test_a_run_in_the_place_of_another(tmp_path):
    follower = Follower(tmp_path / "rank0.ndbg")
    for number in range(3):
        info = type(INFO)(script=f"train{number}.py", started=number)
        follower.file.unlink(missing_ok=True)  # no run is ever put in the place of another by itself
        writer = recorder(tmp_path, info=info)
        for i in range(100 + 50 * number):
            writer.put(step(i, sites=number + 1, loss=float(number)), layout(number + 1))
        writer.close()
        assert follower.poll()
        assert follower.record.info.script == f"train{number}.py"
        check(follower)


def test_a_file_that_is_overwritten_in_place_is_another_run(tmp_path):
    for name, loss in (("a", 1.0), ("b", 2.0)):
        writer = recorder(tmp_path / name, info=type(INFO)(script=name, started=loss))
        for i in range(100):
            writer.put(step(i, loss=loss), layout())
        writer.close()
    file = tmp_path / "rank0.ndbg"
    shutil.copy(tmp_path / "a" / "rank0.ndbg", file)
    follower = Follower(file)
    assert follower.poll()
    number = file.stat().st_ino
    with file.open("r+b") as opened:
        opened.truncate()
        opened.write((tmp_path / "b" / "rank0.ndbg").read_bytes())
    assert file.stat().st_ino == number
    assert follower.poll()
    check(follower)
    assert follower.record.scalar("loss").values.tolist() == [2.0] * 100


def test_a_file_that_breaks_or_goes_leaves_what_was_read(tmp_path):
    writer = recorder(tmp_path)
    for i in range(100):
        writer.put(step(i), layout())
    writer.close()
    follower = Follower(tmp_path / "rank0.ndbg")
    follower.poll()
    good = follower.record
    whole = follower.file.read_bytes()

    follower.file.write_bytes(whole[: len(whole) // 2])
    assert follower.poll()
    assert "is damaged" in follower.problem
    assert follower.record is good

    follower.file.write_bytes(b"")
    assert follower.poll()
    assert "is empty" in follower.problem

    follower.file.unlink()
    assert follower.poll()
    assert "is not there any more" in follower.problem
    assert not follower.poll()
    assert follower.record is good

    follower.file.write_bytes(whole)
    assert follower.poll()
    assert follower.problem == ""
    check(follower)


def test_a_failure_in_the_middle_of_a_reading_loses_nothing(tmp_path):
    """What was taken up to the failure must not count as known afterwards."""
    writer = recorder(tmp_path)
    for i in range(100):
        writer.put(step(i), layout(), (event(i),) if i % 10 == 0 else ())
    writer.close()
    follower = Follower(tmp_path / "rank0.ndbg")
    follower.poll()
    db = sqlite3.connect(follower.file)
    db.execute("INSERT INTO fact (step, key, value) VALUES (5, 'late', ?)", ('{"seen": 1}',))
    db.execute("DELETE FROM block WHERE id = (SELECT max(id) FROM block)")
    db.execute("INSERT INTO event (kind, layer, site, first_step, value) VALUES ('x', '', '', 7, '{')")
    db.commit()
    assert follower.poll()
    assert "is damaged" in follower.problem
    db.execute("DELETE FROM event WHERE kind = 'x'")
    db.commit()
    db.close()
    assert follower.poll()
    assert follower.problem == ""
    assert follower.record.facts[-1].key == "late"
    check(follower)


def test_an_old_file_is_followed_too(tmp_path):
    shutil.copy(Path(__file__).parent / "data" / "version1.ndbg", tmp_path / "rank0.ndbg")
    follower = Follower(tmp_path / "rank0.ndbg")
    assert follower.poll()
    check(follower)
    assert follower.record.history.mean.shape == (160, 2, len(STATS))
    scalars = read_scalars(follower.file)
    assert (scalars.info, scalars.steps) == (follower.record.info, 400)


def test_a_folder_that_is_no_file_is_no_run(tmp_path):
    (tmp_path / "rank0.ndbg").mkdir()
    follower = Follower(tmp_path / "rank0.ndbg")
    assert follower.poll()
    assert "cannot be read" in follower.problem
    assert follower.record.steps == 0


# ---------------------------------------------------------------- what there is


def test_scalars_read_alone_are_those_of_the_whole_run(tmp_path):
    writer = recorder(tmp_path)
    for i in range(1000):
        writer.put(step(i, stream=i % 2), layout())
        if i % 50 == 0:
            writer.flush()
    writer.close()
    whole = read_run(tmp_path)
    assert whole.history.width.max() > 1
    alone = read_scalars(tmp_path / "rank0.ndbg")
    assert (alone.info, alone.steps) == (whole.info, whole.steps) == (INFO, 1000)
    assert alone.streams == whole.streams == (0, 1)
    for stream in whole.streams:
        for name in whole.history.scalars:
            one, other = alone.scalar(name, stream), whole.scalar(name, stream)
            np.testing.assert_array_equal(one.steps, other.steps)
            np.testing.assert_array_equal(one.values, other.values)
            np.testing.assert_array_equal(one.width, other.width)
    assert len(alone.scalar("loss", 1)) > 10
    assert alone.history.sites == 0
    (tmp_path / "rank0.ndbg").write_bytes(b"loss,step")
    with pytest.raises(RunFileError, match="is no NeuralDBG run file"):
        read_scalars(tmp_path / "rank0.ndbg")


def test_folders_of_runs_and_ranks_of_a_run(tmp_path):
    for name in ("a", "b/c", "b/d", "x/y/z", "notes"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("a/rank0.ndbg", "a/rank10.ndbg", "a/rank2.ndbg", "a/rank0.1.ndbg", "b/c/rank0.ndbg", "b/d/rank3.ndbg",
                 "x/y/z/rank0.ndbg", "notes/rank.ndbg"):  # fmt: skip
        (tmp_path / name).touch()
    assert list(rank_files(tmp_path / "a")) == [0, 2, 10]
    assert run_folders(tmp_path) == [tmp_path / "a", tmp_path / "b" / "c", tmp_path / "b" / "d"]
    assert run_folders(tmp_path / "a") == [tmp_path / "a"]
    assert run_folders(tmp_path / "notes") == []


@pytest.mark.parametrize(
    "body",
    [
        b"\x01",
        b"\xff\xff\xff\xff",
        b"\x02\x00\x00\x00[]",
        b"\x02\x00\x00\x00{}",
        struct.pack("<I", 40_000) + b"[" * 40_000,
        struct.pack("<I", 87)
        + b'{"layout":2,"names":[],"binned":false,"sites":[0,1],"arrays":[["rows","<u8",[1],99999]]}',
    ],
)
def test_a_block_made_to_look_whole_is_a_state_too(tmp_path, body):
    writer = recorder(tmp_path)
    for i in range(100):
        writer.put(step(i), layout())
    writer.close()
    follower = Follower(tmp_path / "rank0.ndbg")
    follower.poll()
    good = follower.record
    db = sqlite3.connect(follower.file)
    forged = b"NDBK" + struct.pack("<I", zlib.crc32(body)) + body
    with db:
        db.execute("UPDATE block SET body = ?", (forged,))
    db.close()
    assert follower.poll()
    assert "is damaged" in follower.problem
    assert follower.record is good
    with pytest.raises(RunFileError, match="is damaged"):
        read_scalars(follower.file)
