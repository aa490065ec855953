"""Trainings of several ranks under the tool: a fault is found with its rank and step, and a sound job has no alarm.

The ranks are forked from one process that has torch loaded, with the environment that torchrun gives. Each writes into
a folder of its own; the run files are copied together afterwards, as those of several machines are.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.guest.rank_environment import LOADED, free_port
from tests.guest.suite import Server
from tests.ranks.programs import FAULTS, SOUND

from neuraldbg import Job

FAST = {"nan_in_the_input", "wrapper_bypassed", "same_batches", "crash_on_one_rank", "plain", "plain_sharded"}


@pytest.fixture(scope="module")
def server():
    server = Server("watched", *LOADED, "sklearn.datasets")
    yield server
    server.close()


def record(server, one, folder):
    """Run a job, and return what its run files say together."""
    port, script = free_port(), folder / "train.py"
    script.write_text(one.text)

    def run(rank):
        mine = folder / str(rank)
        (mine / "cwd").mkdir(parents=True)
        prepare = ["tests.guest.rank_environment", "enter", rank, one.world, port, str(folder)]
        return server.run(
            {"program": str(script), "mode": "default", "folder": str(mine), "timeout": 120.0, "prepare": prepare}
        )["status"]

    with ThreadPoolExecutor(one.world) as pool:
        statuses = list(pool.map(run, range(one.world)))
    together = folder / "job"
    together.mkdir()
    for file in folder.glob("*/run/rank*.ndbg*"):  # of a rank that was killed, its log, too
        shutil.copy(file, together)
    printed = "".join(path.read_text() for path in sorted(folder.glob("*/std*")))
    assert any(statuses) == one.fails, printed[-3000:]
    return Job.load(together)


def cases(jobs):
    return [pytest.param(one, id=one.name, marks=[] if one.name in FAST else [pytest.mark.slow]) for one in jobs]


@pytest.mark.parametrize("one", cases(FAULTS))
def test_a_fault_is_found_with_its_rank_and_step(one, server, tmp_path):
    job = record(server, one, tmp_path)
    found = job.diagnose()
    assert len(found.ranks) == one.world
    assert found.verdict in ("failing", "suspect"), found.summary
    first = found.hypotheses[0]
    assert first.cause in (one.cause, *one.also), found.summary
    assert first.confidence >= 0.5
    assert one.steps[0] <= first.step <= one.steps[1], found.summary
    if one.rank is not None:
        assert first.ranks == (one.rank,) or f"rank {one.rank}" in first.sentence, found.summary
    if one.layer is not None:
        assert first.layer == one.layer
    assert not [u for u in found.unjudged if "could not be judged" in u.reason]


@pytest.mark.parametrize("one", cases(SOUND))
def test_a_sound_job_has_no_alarm(one, server, tmp_path):
    found = record(server, one, tmp_path).diagnose()
    assert found.verdict in ("healthy", "inconclusive"), found.summary
    assert not [h for h in found.hypotheses if h.confidence >= 0.5]
