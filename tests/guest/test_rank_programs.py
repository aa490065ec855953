"""Two ranks on this machine do the same bare and watched: exit status, losses, weights and gradients (this rank's part
of them), states of the optimizer and of all generators.

The ranks are forked from one process that has torch loaded, with the environment that torchrun gives; one program is
started by torchrun itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.guest.rank_environment import LOADED, free_port
from tests.guest.suite import Server

from neuraldbg import Run

RANKS = Path(__file__).with_name("ranks")
CHEAPEST = "data_parallel"
PROGRAMS = sorted(path.stem for path in RANKS.glob("*.py") if path.stem != "said")
WAYS = {"bare": "", "default": "-m neuraldbg run -o {run}", "full": "-m neuraldbg run --overhead full -o {run}"}
SHARDED = {"fully_sharded": 16, "two_dimensions": 6, "tensor_parallel": 5, "tensor_parallel_plain": 3}
"""Parameters of which each rank holds a part."""
TIMEOUT_S = 120.0
ALLOWANCE_S = 0.3
"""What a watched run may take at its beginning: then light steps come, too."""


@pytest.fixture(scope="module")
def server():
    server = Server("watched", *LOADED)
    yield server
    server.close()


def fork(server: Server, program: str, way: str, folder: Path) -> tuple[list[object], list[dict[str, object]], str]:
    """Run a program on two ranks. Returns their exit statuses, what each says, and what both have printed."""
    port = free_port()

    def run(rank: int) -> object:
        mine = folder / str(rank)
        (mine / "cwd").mkdir(parents=True)
        prepare = ["tests.guest.rank_environment", "enter", rank, 2, port, str(folder)]
        request = {"program": str(RANKS / f"{program}.py"), "mode": way, "folder": str(mine), "timeout": TIMEOUT_S}
        return server.run({**request, "prepare": prepare, "allowance": ALLOWANCE_S})["status"]

    with ThreadPoolExecutor(2) as pool:
        statuses = list(pool.map(run, range(2)))
    printed = "".join(path.read_text() for path in sorted(folder.glob("*/std*")))
    return statuses, said(folder), printed


def launch(program: str, way: str, folder: Path) -> tuple[int, list[dict[str, object]], str]:
    """The same by torchrun, with one exit status."""
    folder.mkdir()
    # Each rank has a run folder of its own: two in one are a matter of the run file, and tested there.
    run = WAYS[way].format(run=f"{folder}/$RANK/run")
    command = f'exec "{sys.executable}" {run} "{RANKS / program}.py"'
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RANKS_SAY": str(folder)}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"),
            *("--master-port", str(free_port()), "--no-python", "sh", "-c", command),
        ],
        env=env,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
        check=False,
    )
    return done.returncode, said(folder), done.stdout + done.stderr


def said(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]


def check_coverage(program: str, folder: Path) -> None:
    for rank in range(2):
        run = Run.load(folder / str(rank) / "run")
        seen = run.info.coverage
        assert seen["errors"] == 0, seen
        assert not seen["unread"]
        parts = [note for note in seen["notes"] if note.startswith("read by shard: this rank's part")]
        wanted = SHARDED.get(program)
        assert bool(parts) == (wanted is not None)
        assert wanted is None or f"this rank's part of {wanted} of " in parts[0]
        addends = "read by shard: this rank's addend of the gradients of norm.bias, norm.weight"
        assert (addends in seen["notes"]) == (program == "tensor_parallel")


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[] if name == CHEAPEST else [pytest.mark.slow]) for name in PROGRAMS]
)
def test_ranks_do_the_same_when_watched(program, server, tmp_path, record_property):
    statuses, bare, printed = fork(server, program, "bare", tmp_path / "bare")
    assert (statuses, len(bare)) == ([0, 0], 2), printed[-3000:]

    for way in ("default", "full"):
        statuses, watched, printed = fork(server, program, way, tmp_path / way)
        assert statuses == [0, 0], printed[-3000:]
        assert watched == bare
        check_coverage(program, tmp_path / way)
    record_property("guest ranks", {"programs": 1, "ranks": 6, "differ": 0})


@pytest.mark.slow
def test_ranks_of_torchrun_do_the_same_when_watched(tmp_path, record_property):
    status, bare, printed = launch(CHEAPEST, "bare", tmp_path / "bare")
    assert (status, len(bare)) == (0, 2), printed[-3000:]

    status, watched, printed = launch(CHEAPEST, "default", tmp_path / "default")
    assert status == 0, printed[-3000:]
    assert watched == bare
    check_coverage(CHEAPEST, tmp_path / "default")
    record_property("guest ranks", {"programs": 1, "ranks": 4, "differ": 0})
