"""How TrainCheck is brought to a training: a workload enters, the command of a worker under it leaves.

As its guide says: a reference run of the MLP under full instrumentation, invariants inferred from it (once; they are
kept in .cache/bench), then the target with ``--invariants``, which instruments what these need, at every tenth step.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workers import HERE, WorkerFailed

CACHE = HERE.parent / ".cache" / "bench"
SCRIPT = HERE / "traincheck_script.py"
REFERENCE = "MLP"
STEPS = 20
"""Of the reference: its guide asks for a short run."""
LIMIT_S = 300.0


def command(workload: str, folder: Path) -> list[str]:
    """Make a worker under TrainCheck in a folder; WorkerFailed if it is not installed or does not work."""
    try:
        version = importlib.metadata.version("traincheck")
    except importlib.metadata.PackageNotFoundError as error:
        raise WorkerFailed(f"not installed: {error}") from None
    invariants = CACHE / f"traincheck-{version}.json"
    if not invariants.is_file():
        _infer(invariants)
    arguments = ("--invariants", invariants, "--output-dir", folder / "trace", "--only-instr")
    _run("traincheck-collect", *_script(workload, folder), *arguments)
    return ["env", f"PYTHONPATH={HERE}", sys.executable, str(folder / f"_traincheck_{SCRIPT.name}")]


def _infer(invariants: Path) -> None:
    """Train the reference and learn its invariants."""
    invariants.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-reference-") as folder:
        _run("traincheck-collect", *_script(REFERENCE, Path(folder)), "--output-dir", Path(folder, "trace"))
        _run("traincheck-infer", "-f", Path(folder, "trace"), "-o", Path(folder, "invariants.json"))
        shutil.move(Path(folder, "invariants.json"), invariants)


def _script(workload: str, folder: Path) -> list[str]:
    """Return the arguments that name the script: a copy, since the instrumented one is written beside it."""
    os.environ.update(BENCH_WORKLOAD=workload, BENCH_HERE=str(HERE))
    return ["--pyscript", shutil.copy(str(SCRIPT), str(folder)), "--models-to-track", "model"]


def _run(program: str, *arguments: object) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE), "BENCH_REFERENCE": str(STEPS)}
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", "")))
    whole = [str(Path(sys.executable).parent / program), *map(str, arguments)]
    try:
        done = subprocess.run(
            whole,
            env=environment,
            cwd=tempfile.gettempdir(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkerFailed(f"{program}: {error}") from None
    if done.returncode:
        raise WorkerFailed(f"{program}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
