"""Run the programs of tests/faults under the tool, in two processes of one thread each, and keep what was recorded.

Programs and seeds enter, paths of pickled records leave. Records live in ``.cache/faults``, one for a program's text,
a seed and the source of everything that records; explaining or fitting anew does not train anew.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import multiprocessing
import os
import pickle
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.faults.corpus import Program, load, record  # noqa: E402 (found through the path above)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from neuraldbg.nouns import RunRecord

CACHE = ROOT / ".cache" / "faults"
RECORDING = ("capture", "detect", "nouns", "record", "config.py", "session.py")
"""What of the package decides what a record holds."""
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """One program with one seed."""

    name: str
    seed: int
    stale_ok: bool = False
    """Whether a record by an older source of the tool will do."""
    capture: tuple[tuple[str, float | None], ...] = ()
    """Settings of capture that differ from the defaults: a budget."""


@functools.cache
def programs() -> dict[str, Program]:
    """Return the whole corpus."""
    return load()


@functools.cache
def digest(*paths: str) -> str:
    """Hash the Python files below some paths."""
    found = hashlib.sha256()
    for path in paths:
        base = ROOT / path
        for file in sorted(base.rglob("*.py")) if base.is_dir() else [base]:
            found.update(file.read_bytes())
    return found.hexdigest()[:12]


def recording() -> str:
    """Hash the source that records."""
    return digest(*(f"src/neuraldbg/{part}" for part in RECORDING))


def key(job: Job) -> str:
    """Name a program's text and seed."""
    one = programs()[job.name]
    text = one.text or _text_of_function(one)
    budget = "".join(f"-{name}={value}" for name, value in job.capture)
    return f"{job.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{budget}-{job.seed}"


def _text_of_function(one: Program) -> str:
    """Return what decides a function's training: itself, what its module holds above all programs, and the kit."""
    module = inspect.getmodule(one.run)
    above = inspect.getsource(module).partition("\n@program")[0] if module is not None else ""
    return above + inspect.getsource(one.run) + digest("tests/faults/kit.py")


def recorded(job: Job) -> RunRecord:
    """Return the record of a program, from the cache if there is one."""
    return kept(programs()[job.name], key(job), job)


def kept(one: Program, named: str, job: Job) -> RunRecord:
    """Return the record that the cache has under a name, or run the program and keep it there."""
    wanted = CACHE / f"{named}-{recording()}.pkl"
    if not wanted.exists() and job.stale_ok:
        older = sorted(CACHE.glob(f"{named}-*.pkl"), key=os.path.getmtime)
        wanted = older[-1] if older else wanted
    if wanted.exists():
        found: RunRecord = _unpacked(pickle.loads(zlib.decompress(wanted.read_bytes())))  # noqa: S301 (our own file)
        return found
    run, _ = record(one, job.seed, dict(job.capture))
    CACHE.mkdir(parents=True, exist_ok=True)
    for old in CACHE.glob(f"{named}-*.pkl"):
        old.unlink(missing_ok=True)
    half = wanted.with_suffix(f".{os.getpid()}")
    half.write_bytes(zlib.compress(pickle.dumps(_packed(run), protocol=5), 1))
    half.rename(wanted)
    return run


def _packed(run: RunRecord) -> Any:
    """Drop the extremes of steps that were never thinned: they are the means."""
    history = run.history
    if (history.width == 1).all():
        nothing = history.mean[:0]
        history = replace(history, low=nothing, high=nothing)
    return replace(run, history=history)


def _unpacked(run: RunRecord) -> RunRecord:
    history = run.history
    if len(history.low) != len(history.mean):
        run = replace(run, history=replace(history, low=history.mean, high=history.mean))
    return run


def _begin() -> None:
    """Settle a fresh worker: one thread."""
    import torch  # noqa: PLC0415 (the parent of a spawned worker need not have it)

    torch.set_num_threads(1)


def each(work: Callable[[Job], T], jobs: Sequence[Job], workers: int = 2, tell: bool = True) -> list[T]:
    """Do the work for each job in a pool, and say how far it is."""
    began = time.time()
    done: list[T] = []
    programs()  # before the fork, so that no worker loads them anew
    # Workers may have children of their own (a DataLoader's), which those of multiprocessing.Pool may not.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _begin) as pool:
        for value in pool.map(work, jobs, chunksize=4):
            done.append(value)
            if tell and len(done) % 100 == 0:
                print(f"  {len(done)} of {len(jobs)} after {time.time() - began:.0f} s", file=sys.stderr, flush=True)
    return done


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of how records are made, which this benchmark shares with late.py."""
    parser.add_argument("--cached", action="store_true", help="take records by an older source of the tool as they are")
    parser.add_argument("--overhead", help="share of the training's time that watching may take, or none")
    parser.add_argument("--allowance", type=float, help="seconds that it may take at the beginning")


def budget(overhead: str | None, allowance: float | None) -> tuple[tuple[str, float | None], ...]:
    """Return the settings of capture that were asked for."""
    found: dict[str, float | None] = {}
    if overhead is not None:
        found["overhead"] = None if overhead == "none" else float(overhead)
    if allowance is not None:
        found["allowance_s"] = allowance
    return tuple(found.items())
