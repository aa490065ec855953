"""A run file while it is written, and after its writer was killed."""

from __future__ import annotations

import signal
import time

import pytest
from tests.record.known_steps import assert_same, covered, histograms
from tests.record.writer_process import start

from neuraldbg.errors import RunFileError
from neuraldbg.record import read_run


def readable_soon(folder):
    deadline = time.monotonic() + 30
    while True:
        try:
            return read_run(folder)
        except RunFileError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_what_a_killed_process_leaves_is_whole_but_for_the_last_second(tmp_path):
    rate = 400
    child = start(tmp_path, rate, 100_000)
    with child:
        for line in child.stdout:
            if int(line) >= 2 * rate:
                break
        child.send_signal(signal.SIGKILL)
        last = max([int(line), *map(int, child.stdout.read().split())])
    assert (tmp_path / "rank0.ndbg-wal").exists()
    record = read_run(tmp_path)
    assert covered(record.history) == list(range(record.steps))
    assert record.steps > last - rate
    assert record.events[0].last_step == record.steps - 1
    assert record.history.width.max() == 16
    assert_same(record.histograms, tuple(histograms(i) for i in range(0, record.steps, 50)))
    assert_same(read_run(tmp_path), record)


def test_a_place_where_nothing_can_be_written_is_read_all_the_same(tmp_path):
    child = start(tmp_path, 200, 100_000)
    with child:
        for line in child.stdout:
            if int(line) >= 300:
                break
        child.kill()
    whole = read_run(tmp_path)
    assert whole.steps > 100
    # SQLite can neither open nor make its companion here, as on a read-only disk (which root can always write to).
    shared = tmp_path / "rank0.ndbg-shm"
    shared.unlink(missing_ok=True)
    shared.mkdir()
    before = sorted(tmp_path.iterdir())
    assert_same(read_run(tmp_path), whole)
    assert sorted(tmp_path.iterdir()) == before


def test_a_closed_run_needs_no_companions(tmp_path):
    child = start(tmp_path, 10_000, 100)
    with child:
        child.stdout.read()
    whole = read_run(tmp_path)
    (tmp_path / "rank0.ndbg-shm").mkdir()
    (tmp_path / "rank0.ndbg-wal").touch()
    assert_same(read_run(tmp_path), whole)


@pytest.mark.parametrize("rate", [1000])
def test_another_process_reads_while_it_is_written(tmp_path, rate):
    child = start(tmp_path, rate, 100_000)
    with child:
        readable_soon(tmp_path)
        seen = []
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            record = read_run(tmp_path)
            assert covered(record.history) == list(range(record.steps))
            assert [each.step for each in record.histograms] == list(range(0, record.steps, 50))
            seen.append(record.steps)
            time.sleep(0.05)
        child.kill()
        child.stdout.read()
    assert seen == sorted(seen)
    assert seen[-1] > seen[0] + 300
