"""Trainings of several ranks with a fault on one rank or between them, and sound ones: what is said of each.

    python benchmarks/ranks.py [NAME...]

Runs the jobs of tests/ranks/programs.py under torchrun, as a user would, and prints a line for each and the sums.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.ranks.programs import FAULTS, SOUND, Job

from neuraldbg.errors import NeuralDbgError
from neuraldbg.job import Job as Recorded

CREDIBLE = 0.5


def run(one: Job, folder: Path) -> Recorded:
    """Run a job under torchrun, and return its run files."""
    script = folder / "train.py"
    script.write_text(one.text, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={one.world}"]
    command = [*launcher, "-m", "neuraldbg", "run", "-q", "-o", "run", "train.py"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=300, check=False)
    return Recorded.load(folder / "run")


def main(names: list[str]) -> None:
    """Print a line for each job, and the sums."""
    right = placed = alarms = 0
    faults = [one for one in FAULTS if not names or one.name in names]
    sound = [one for one in SOUND if not names or one.name in names]
    for one in (*faults, *sound):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = run(one, Path(folder)).diagnose()
            except (NeuralDbgError, subprocess.TimeoutExpired) as error:
                print(f"{one.name}: {type(error).__name__}: {error}")
                continue
        first = next((h for h in found.hypotheses if h.confidence >= CREDIBLE), None)
        told = f"{first.cause} {first.confidence:.2f} ranks {first.ranks} step {first.step}" if first else ""
        print(f"{one.name}: wanted {one.cause or 'nothing'}; {found.verdict} {told}", flush=True)
        if one.cause and first is not None and first.cause in (one.cause, *one.also):
            there = one.rank is None or one.rank in first.ranks or f"rank {one.rank}" in first.sentence
            right += 1
            placed += there and first.step is not None and one.steps[0] <= first.step <= one.steps[1]
        elif not one.cause:
            alarms += found.verdict in ("failing", "suspect")
    print(f"first cause right {right} of {len(faults)}, with rank and step {placed}; alarms {alarms} of {len(sound)}")


if __name__ == "__main__":
    main(sys.argv[1:])
