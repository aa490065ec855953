"""``neuraldbg explain``: the diagnosis of a saved run, the same as the live run gave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuraldbg.cli.command import (
    Command,
    Result,
    examples,
    fail_on,
    json_target,
    json_to,
    verbose,
    verdict_status,
    write_json,
)
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from neuraldbg.job import Job

STUCK_S = 60.0
"""A run of which it cannot be known whether somebody writes it is not said to go on after so long without a word."""


@examples(
    ("explain neuraldbg-runs/train-20260102-101500", "a run of yesterday"),
    ("explain runs/one --json diagnosis.json", "for a program"),
    ("explain runs/one --fail-on failing", "for a shell script: status 3 if it is that bad"),
)
@click.command("explain", cls=Command, short_help="Explain a saved run.")
@click.argument("run", metavar="RUN")
@json_to
@fail_on
@verbose
def COMMAND(run: str, json_to: str | None, fail_on: str | None, verbose: bool) -> Result:  # noqa: N802 (the name is the contract)
    """Print the diagnosis of RUN.

    RUN is a run folder, a folder above it that holds a single run, or a .ndbg file. A folder stands for its newest run:
    the ranks of a job are judged together, and a file stands for its rank alone. Works on a run that is still going or
    that was killed, and needs no torch.
    """
    from rich.console import Console  # noqa: PLC0415 (see command.py)

    from neuraldbg.record import find_run, others  # noqa: PLC0415
    from neuraldbg.saved import Run, readable  # noqa: PLC0415
    from neuraldbg.show.terminal.diagnosis import print_diagnosis  # noqa: PLC0415

    target = json_target(json_to)
    file = find_run(Path(run))
    job = _job(Path(run), file)
    loaded = Run.load(file) if job is None else job.runs[min(job.runs)]
    diagnosis = loaded.diagnose() if job is None else job.diagnose()
    if target != "-":  # standard output is the JSON alone then
        ending = _ending(file) if loaded.info.outcome.kind == "running" else ""
        with readable("shown"):
            headline = f"{diagnosis.headline}{ending}" if diagnosis.headline else ""
            shown = replace(diagnosis, summary=f"{diagnosis.summary}{ending}", headline=headline)
            print_diagnosis(shown, Console(), verbose=verbose)
    for name, reason in job.unread.items() if job is not None else ():
        click.echo(f"neuraldbg: {name} was left out: {reason}", err=True)
    if job is None and (beside := others(Path(run), file)):
        click.echo(f"neuraldbg: {beside}", err=True)
    problem = write_json(diagnosis, target)
    if problem:
        raise ConfigError(problem)
    return verdict_status(diagnosis, fail_on)


def _job(path: Path, file: Path) -> Job | None:
    """Return the job of a folder with the runs of several ranks; None if a single run is meant."""
    if path.is_file():
        return None
    from neuraldbg.job import Job  # noqa: PLC0415 (see command.py)
    from neuraldbg.record import run_files  # noqa: PLC0415

    if not any(name.rank for name in run_files(file.parent)):  # of one rank: the others there are older runs
        return None
    job = Job.load(file.parent)
    return job if len(job.runs) > 1 else None


def _ending(file: Path) -> str:
    """Say of a run that has no end whether it goes on: that is no part of the record, and may change at any time."""
    from neuraldbg.record.follow import killed, look, silence  # noqa: PLC0415 (see command.py)
    from neuraldbg.record.reader import is_session  # noqa: PLC0415
    from neuraldbg.show.format.safe_text import duration  # noqa: PLC0415

    if is_session(file):
        return " The run had not ended when this was exported, or it was killed."
    if killed(file):
        return " The run was killed: its file has no end, and no process writes to it."
    if (quiet := silence(look(file))) > STUCK_S:
        return f" The run has not ended, but nothing was recorded for {duration(quiet)}: it may have been killed."
    return " The run is still going on: this is its state now."
