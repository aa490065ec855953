"""kill -9 at random moments: what is left is whole but for the last second, and the folder can be used again."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.record.known_steps import INFO, assert_same, covered, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.explain import diagnose
from neuraldbg.record import Recorder, read_run

pytestmark = pytest.mark.xdist_group("guest kills")
"""All of it in one worker: what was chosen is begun at once."""


PROGRAM = Path(__file__).parent / "killed" / "endless.py"
SEED = 20261125
LOST_S = 2.0
"""Seconds before the kill of which steps may be lost: one second, and another for a machine that is busy."""
FAST, ALL = 5, 50


AT_ONCE = 4
"""They sleep most of the time."""
LATEST_S = 5.0


def moments():
    """Many in the first second, when a run begins, the others when there is something to lose."""
    draw = random.Random(SEED)
    return [draw.uniform(0.1, 1.0) if draw.random() < 0.4 else draw.uniform(1.0, LATEST_S) for _ in range(ALL)]


@pytest.fixture(scope="module")
def killed(request, guests, tmp_path_factory):
    """Folders in which each training whose test was chosen was killed, begun at once."""
    chosen = [item.callspec.params["number"] for item in request.session.items if "killed" in item.fixturenames]
    after_s = moments()
    root = tmp_path_factory.mktemp("killed")  # by one thread: two would make the folder of all tests twice

    def kill(number):
        folder = root / str(number)
        folder.mkdir()
        (folder / "cwd").mkdir()
        asked = {"program": str(PROGRAM), "mode": ("default", "full")[number % 2], "folder": str(folder)}
        reply = guests.servers["watched"].run({**asked, "timeout": after_s[number]})  # at which it gets SIGKILL
        assert reply["status"] is None
        return folder

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {number: pool.submit(kill, number) for number in chosen}


@pytest.mark.parametrize("number", [*range(FAST), *(pytest.param(i, marks=pytest.mark.long) for i in range(FAST, ALL))])
def test_what_is_left_is_whole(killed, record_property, number):
    tmp_path = killed[number].result()
    said = (tmp_path / "stdout").read_text().splitlines(keepends=True)
    told = [(int(one.split()[0]), float(one.split()[1])) for one in said if one.endswith("\n")]
    due = max((number for number, at in told if at < told[-1][1] - LOST_S), default=-1)
    run = tmp_path / "run"
    record_property("guest killed", {"kills": 1, "with steps": int(bool(told)), "due": int(due >= 0)})
    if not (run / "rank0.ndbg").exists():  # before there was anything to record
        assert due < 0
        return

    kept = list(run.glob("batch-*.npz"))  # of its jumps
    for file in kept:
        with np.load(file) as batch:
            assert all(batch[name].size for name in batch)
    names = {file.name for file in run.iterdir() if file not in kept}
    assert names <= {"rank0.ndbg", "rank0.ndbg-wal", "rank0.ndbg-shm"}
    left = read_run(run)
    assert due <= left.steps - 1 <= (told[-1][0] + 1 if told else 0)
    assert covered(left.history) == list(range(left.steps))
    diagnose(left)

    second = Recorder(run, RecordSettings(), INFO)
    for i in range(7):
        second.put(step(i), layout(), ())
    second.close()
    assert second.path == run / "rank0-2.ndbg"
    assert {file.name for file in run.iterdir() if file not in kept} - names <= {
        "rank0-2.ndbg",
        "rank0.ndbg-shm",
        "rank0.ndbg-wal",
    }
    assert read_run(run).steps == 7
    assert_same(read_run(run / "rank0.ndbg"), left)
