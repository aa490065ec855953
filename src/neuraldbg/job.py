"""A job of several ranks read from its folder: ``Job.load(folder).diagnose()`` judges all of them together.

A folder may hold several runs of each rank: of an earlier job that was saved there, and of an attempt before the
launcher started the workers again. A job is what one launcher started together; earlier attempts of it are told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg import arguments
from neuraldbg.errors import NeuralDbgError, RunNotFound
from neuraldbg.explain.job import diagnose_job
from neuraldbg.record import run_files
from neuraldbg.saved import Run, readable

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from neuraldbg.nouns import Diagnosis

TOGETHER_S = 600.0
"""Seconds within which the ranks of a job begin that its launcher gave no name: a queue may start nodes one by one."""


@dataclass(frozen=True)
class Attempt:
    """An earlier attempt of a job, after which the launcher started the workers again."""

    restart: int
    """Number of restarts before it."""
    rank: int
    """Rank that ended it; the lowest one where several ended with an error."""
    steps: int
    """Number of that rank's steps."""
    message: str
    """Error of that rank, "" if it has none: it was killed."""

    def __str__(self) -> str:
        ended = f"with {self.message}" if self.message else "without an error: it was killed or stopped"
        return f"attempt {self.restart + 1} ended on rank {self.rank} after {self.steps:,} steps {ended}"


class Job:
    """The runs of all ranks that train one model together.

    >>> job = neuraldbg.Job.load("runs/one")
    >>> job
    <Job: 1 of 1 rank, 40 steps>
    """

    def __init__(self, runs: Mapping[int, Run], attempts: tuple[Attempt, ...] = ()) -> None:
        self.runs = dict(sorted(runs.items()))
        """The run of each rank that has left one."""
        self.attempts = attempts
        """Earlier attempts, the oldest first."""
        self.unread: dict[str, str] = {}
        """Files that could not be read, with the reason."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Job:
        """Read the newest job of a folder. A run of a single process is a job of one rank.

        Raises RunNotFound if the folder holds no run. Files that cannot be read are left out, and named in ``unread``.

        >>> sorted(neuraldbg.Job.load("runs/one").runs)
        [0]
        """
        folder = Path(arguments.path(path, "the folder of the job"))
        files = run_files(folder) if folder.is_dir() else {}
        if not files:
            raise RunNotFound(f"there is no run in {folder}: it holds no rank0.ndbg.")
        runs: list[tuple[int, Run]] = []
        unread: dict[str, str] = {}
        for name, file in files.items():
            try:
                runs.append((name.rank, Run.load(file)))
            except (NeuralDbgError, OSError) as error:
                unread[file.name] = str(error)
        if not runs:
            raise RunNotFound(f"no run in {folder} can be read: {next(iter(unread.values()))}")
        newest = max((run for _, run in runs), key=lambda run: run.info.started)
        same = [(rank, run) for rank, run in runs if _together(run, newest)]
        last = max(_restart(run) for _, run in same)
        now = [(rank, run) for rank, run in same if _restart(run) == last]
        made = cls(dict(now), _attempts([(rank, run) for rank, run in same if _restart(run) < last]))
        made.unread = unread
        return made

    @property
    def world(self) -> int:
        """Number of ranks that the launcher started.

        >>> neuraldbg.Job.load("runs/one").world
        1
        """
        return max([len(self.runs), *(int(run.info.job.get("world", 1)) for run in self.runs.values())])

    def __repr__(self) -> str:
        steps = max(run.steps for run in self.runs.values())
        return f"<Job: {len(self.runs)} of {self.world} rank{'s' * (self.world > 1)}, {steps:,} steps>"

    def diagnose(self) -> Diagnosis:
        """Return the diagnosis of all ranks together: see ``Run.diagnose``. Raises RunDamaged as that does.

        >>> neuraldbg.Job.load("runs/one").diagnose().verdict
        'failing'
        """
        return self._diagnosis

    @cached_property
    def _diagnosis(self) -> Diagnosis:
        with readable("diagnosed"):
            found = diagnose_job(self.runs)
        if not self.attempts:
            return found
        many = len(self.attempts)
        said = f" The launcher has started the workers again {'once' if many == 1 else f'{many} times'}: "
        said += "; ".join(map(str, self.attempts[-3:])) + "."
        headline = f"{found.headline}{said}" if found.headline else ""
        return replace(found, summary=f"{found.summary}{said}", headline=headline)


def _restart(run: Run) -> int:
    return int(run.info.job.get("restart", 0))


def _together(run: Run, newest: Run) -> bool:
    """Return True if two runs are of one job: of one name, or begun at about the same time without any."""
    mine, its = run.info.job, newest.info.job
    if run is newest:
        return True
    if not mine or not its or mine.get("world") != its.get("world"):
        return False
    name = mine.get("id") or ""
    if name or its.get("id"):
        return bool(name == its.get("id"))
    return abs(run.info.started - newest.info.started) <= TOGETHER_S


def _attempts(runs: list[tuple[int, Run]]) -> tuple[Attempt, ...]:
    """Return the earlier attempts of a job, from the runs of their ranks."""
    found = []
    for restart in sorted({_restart(run) for _, run in runs}):
        every = [(rank, run) for rank, run in runs if _restart(run) == restart]
        raised = [(rank, run) for rank, run in every if run.info.outcome.kind == "raised"]
        # The first to end: the others may have raised because it was gone.
        rank, run = min(raised or every, key=lambda pair: (pair[1].steps, pair[0]))
        found.append(Attempt(restart, rank, run.steps, run.info.outcome.message.splitlines()[0][:200]
                             if run.info.outcome.message else ""))  # fmt: skip
    return tuple(found)
