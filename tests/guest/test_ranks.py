"""Two ranks on this machine, started by torchrun, do the same bare and watched: exit status, losses, weights and
gradients (this rank's part of them), states of the optimizer and of all generators.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from neuraldbg import Run

RANKS = Path(__file__).with_name("ranks")
CHEAPEST = "data_parallel"
PROGRAMS = sorted(path.stem for path in RANKS.glob("*.py") if path.stem != "said")
WAYS = {"bare": "", "default": "-m neuraldbg run -o {run}", "full": "-m neuraldbg run --overhead full -o {run}"}
SHARDED = {"fully_sharded": 16, "two_dimensions": 6, "tensor_parallel": 5, "tensor_parallel_plain": 3}
"""Parameters of which each rank holds a part."""
TIMEOUT_S = 240.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def launch(program: str, way: str, folder: Path) -> tuple[int, list[dict[str, object]], str]:
    """Run a program on two ranks. Returns the exit status, what each rank says, and what all have printed."""
    folder.mkdir()
    # Each rank has a run folder of its own: two in one are a matter of the run file, and tested there.
    run = WAYS[way].format(run=f"{folder}/run$RANK")
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
        timeout=TIMEOUT_S,
        check=False,
    )
    said = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
    return done.returncode, said, done.stdout + done.stderr


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[] if name == CHEAPEST else [pytest.mark.slow]) for name in PROGRAMS]
)
def test_ranks_do_the_same_when_watched(program, tmp_path, record_property):
    status, bare, printed = launch(program, "bare", tmp_path / "bare")
    assert (status, len(bare)) == (0, 2), printed[-3000:]

    for way in ("default", "full"):
        status, watched, printed = launch(program, way, tmp_path / way)
        assert status == 0, printed[-3000:]
        assert watched == bare
        for rank in range(2):
            seen = Run.load(tmp_path / way / f"run{rank}").info.coverage
            assert seen["errors"] == 0, seen["failed"]
            parts = [note for note in seen["notes"] if note.startswith("read by shard")]
            wanted = SHARDED.get(program)
            assert bool(parts) == (wanted is not None)
            assert wanted is None or f"this rank's part of {wanted} of " in parts[0]
    record_property("guest ranks", {"programs": 1, "ranks": 6, "differ": 0})
