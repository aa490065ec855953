"""The end of a job of several ranks: rank 0 waits a little for the others, and judges all run files together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from neuraldbg.errors import NeuralDbgError
from neuraldbg.job import Job
from neuraldbg.record import RunName, rank_files
from neuraldbg.record.follow import killed

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.nouns import Diagnosis
    from neuraldbg.ranks import Rank
    from neuraldbg.runner.session_guard import Watch

WAIT_S, ABSENT_S = 15.0, 0.5
"""Seconds that rank 0 waits for the ranks of its machine that still write, and for those that have no file yet."""
_POLL_S = 0.05


def of_job(watch: Watch, place: Rank) -> Diagnosis | None:
    """Return the diagnosis of all ranks whose run files lie beside that of this process, and save it there; None if
    there are no others. Waits for those of this machine. A problem is added to those of the watch.
    """
    if watch.file is None:
        return None
    try:
        with watch.present():
            return _whole(watch.file, place)
    except (NeuralDbgError, OSError) as error:
        watch.problems.append(f"the ranks could not be judged together: {error}")
        return None


def _whole(file: Path, place: Rank) -> Diagnosis | None:
    _wait(file, place)
    job = Job.load(file.parent)
    if len(job.runs) < 2:
        return None
    diagnosis = job.diagnose()
    name = (RunName.of(file) or RunName()).beside("diagnosis-job")
    file.with_name(name).write_text(diagnosis.to_json() + "\n", encoding="utf-8")
    return diagnosis


def _wait(file: Path, place: Rank) -> None:
    """Wait until the other ranks of this machine have saved their diagnoses, or have died."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < WAIT_S:
        files = rank_files(file.parent)
        local = range(1, place.local_world)
        absent = [rank for rank in local if rank not in files]
        writing = [rank for rank in local if rank in files and not _ended(files[rank])]
        if not writing and (not absent or passed > ABSENT_S):
            return
        time.sleep(_POLL_S)


def _ended(file: Path) -> bool:
    """Return True if a rank's diagnosis is saved beside its run file, or no process writes to that file any more."""
    name = RunName.of(file) or RunName()
    return file.with_name(name.beside("diagnosis")).exists() or killed(file)
