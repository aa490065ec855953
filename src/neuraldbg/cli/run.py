"""``neuraldbg run``: runs a training script unmodified and says at the end what went wrong, and why."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from neuraldbg import clocks  # noqa: F401 (before the program may replace them)
from neuraldbg.cli.command import FAILED, Result, fail_on, json_target, json_to, verdict_status, write_json
from neuraldbg.cli.dashboard import need, port_option
from neuraldbg.raised import let_pass
from neuraldbg.ranks import Rank, launched_at, own_rank
from neuraldbg.runner.ending import Ending, die_interrupted, time_stopped
from neuraldbg.runner.hidden_packages import apart
from neuraldbg.runner.script import execute, folder_of, resolve
from neuraldbg.runner.session_guard import MakeSession, Watch, torch_session, working_folder
from neuraldbg.runner.shadowed_modules import Shadowed
from neuraldbg.runner.status_line import StatusLine
from neuraldbg.runner.termination import Termination

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from neuraldbg.dashboard.child_process import Beside
    from neuraldbg.nouns import Diagnosis
    from neuraldbg.runner.hidden_packages import Apart
    from neuraldbg.runner.script import Program

RUNS = "neuraldbg-runs"


DEFAULT = "default"


class Share(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """A share of time: ``1%``, ``0.01``, or ``full`` for no limit."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, float | None]:
        """Return the session's keyword: None for ``full``, nothing where it was not given."""
        text = str(value).strip()
        if text in {"full", DEFAULT}:
            return {"overhead": None} if text == "full" else {}
        try:
            share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            self.fail(f"{text!r} is no share of time: give one like 1% or 0.01 (at most 1), or `full`", param, ctx)
        return {"overhead": share}


@dataclass(frozen=True)
class Request:
    """The program to run and the options that the command line gave."""

    program: Program
    folder: Path | None
    """Folder that the run is saved in, None if there is no place for it."""
    json: Path | str | None = None
    fail_on: str | None = None
    quiet: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the session that differ from their defaults."""
    home: Path | None = field(default_factory=working_folder)
    """Folder that the user's shell is in: the program may go elsewhere. None if it was deleted."""
    dashboard: bool = False
    port: int | None = None
    """Of the dashboard; None for the usual one."""
    rank: Rank = field(default_factory=Rank)
    """Place of this process among those that train together."""


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
    short_help="Run a training script and say why it failed.",
)
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of a module, as for `python -m`.")
@click.option("-o", "--out", metavar="DIR", help=f"The run folder [default: {RUNS}/<script>-<time>].")
@json_to
@fail_on
@click.option("--no-probes", is_flag=True, help="Make no experiments on a copy of the model.")
@click.option(
    "--overhead",
    type=Share(),
    default=DEFAULT,
    help="The share of the training's time that watching may take; `full` reads every layer at every step "
    "[default: 1%].",
)
@click.option("--dashboard", is_flag=True, help="Show the run in the browser while it goes on.")
@port_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def COMMAND(  # noqa: N802 (the name is the contract)
    module: bool,
    out: str | None,
    json_to: str | None,
    fail_on: str | None,
    no_probes: bool,
    overhead: dict[str, float | None],
    dashboard: bool,
    port: int | None,
    quiet: bool,
    command: tuple[str, ...],
) -> Result:
    """Run SCRIPT as `python SCRIPT ARGS` would, watch its training, and say at the end what went wrong and why.

    Everything after SCRIPT belongs to the script. Its output, exit status and errors are its own; the diagnosis goes
    to standard error and into the run folder.

    Under torchrun (`torchrun --no-python neuraldbg run -o DIR train.py`) each process writes its own rank<R>.ndbg and
    diagnosis into DIR, and --json FILE becomes FILE-rank<R> for all but rank 0. Rank 0 prints its diagnosis; another
    rank prints one line if its own is not healthy.
    """
    if dashboard:
        need()
    elif port is not None:
        raise click.UsageError("--port is the dashboard's: give --dashboard, too")
    program = resolve(command[0], tuple(command[1:]), module=module)
    rank = own_rank()
    options = {**overhead, **({"probes": False} if no_probes else {})}
    request = Request(
        program,
        _folder(out, program.stem),
        _of_rank(json_target(json_to), rank),
        fail_on,
        quiet,
        options,
        dashboard=dashboard and not rank.secondary,
        port=port,
        rank=rank,
    )
    return lambda: launch(request)


def _folder(out: str | None, stem: str) -> Path | None:
    """Return the run folder, which need not exist; None where the working folder was deleted and no other is named."""
    home = working_folder()
    if out is not None and (home is not None or Path(out).is_absolute()):
        return Path(out).absolute()
    if home is None:
        return None
    launched = launched_at()
    if launched is not None:  # the ranks of one machine share a folder, whichever is the first
        return home / RUNS / _stamped(stem, time.localtime(launched))
    return free_folder(home / RUNS, stem, time.localtime())


def _of_rank(target: Path | str | None, rank: Rank) -> Path | str | None:
    """Return where this rank's JSON goes: a file of its own; standard output is that of rank 0 alone."""
    if not rank.rank or target is None:
        return target
    if isinstance(target, Path):
        return target.with_name(f"{target.stem}-rank{rank.rank}{target.suffix}")
    return None if rank.secondary else target


def _stamped(stem: str, now: time.struct_time) -> str:
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S', now)}"


def free_folder(above: Path, stem: str, now: time.struct_time) -> Path:
    """Return a name for the run folder that nobody has taken yet."""
    name = _stamped(stem, now)
    folder, number = above / name, 1
    while folder.exists():
        number += 1
        folder = above / f"{name}-{number}"
    return folder


def launch(request: Request, make_session: MakeSession = torch_session) -> int:
    """Run the program under a session, show the diagnosis, and return the exit status of the whole.

    What the program did is saved first, then told as python would tell it, and the diagnosis comes last, right above
    the prompt.
    """
    stderr = sys.stderr
    beside = _beside(request, stderr)
    status = StatusLine(stderr) if not request.quiet and stderr is not None and stderr.isatty() else None
    speaks = not request.quiet and not request.rank.secondary
    screen = apart("rich", "rich.console", "rich.padding", "rich.table", "rich.text") if speaks else None
    shadowed = Shadowed(folder_of(request.program))
    watch = Watch(request.program, request.folder, status, make_session, options=request.options, shadowed=shadowed)

    def end_by(signal: int, frame: FrameType | None) -> None:
        if status is not None:
            status.close()
        if watch.session is not None:  # else nothing was seen, and there is nothing to wait for
            _show(request, watch, _finish(watch, Ending(signal=signal, frame=frame)), stderr, screen)

    termination = Termination(end_by, watch.busy)
    termination.arm()
    watch.arm()
    if status is not None:
        status.listen()
    try:
        ending = execute(request.program)
    finally:
        if status is not None and watch.ours:
            status.close()
    if not watch.ours:
        return _leave(ending, ending.announce())
    termination.over()
    with time_stopped():
        diagnosis = _finish(watch, ending)
    code = ending.announce()
    with time_stopped():
        _show(request, watch, diagnosis, stderr, screen)
    termination.disarm()
    if beside is not None:
        _leave_open(beside, stderr)
    if code == 0 and request.fail_on is not None:
        # A gate that could not judge must not let pass.
        code = FAILED if diagnosis is None else verdict_status(diagnosis, request.fail_on)
    return _leave(ending, code)


def _beside(request: Request, stderr: TextIO | None) -> Beside | None:
    """Start the dashboard beside the run, and say where it is."""
    if not request.dashboard or request.folder is None:
        return None
    from neuraldbg.dashboard.child_process import Beside  # noqa: PLC0415 (only where it is asked for)

    try:
        beside = Beside(request.folder, request.port)
    except OSError as error:
        if stderr is not None:
            stderr.write(f"neuraldbg: there is no dashboard: its process cannot be started ({error})\n")
        return None
    if stderr is not None:
        for sentence in (*beside.said, f"the dashboard is at {beside.url}"):
            stderr.write(f"neuraldbg: {sentence}\n")
        stderr.flush()
    return beside


def _leave_open(beside: Beside, stderr: TextIO | None) -> None:
    """Leave the page to somebody who sits at the terminal; otherwise it ends with the run."""
    try:
        if beside.problem is None and _somebody_there(stderr):
            assert stderr is not None
            stderr.write(f"The dashboard is still at {beside.url}\nCtrl-C ends it.\n")
            stderr.flush()
            beside.wait()
        if beside.problem is not None and stderr is not None and not _closed(stderr):
            stderr.write(f"neuraldbg: {beside.problem}\n")
    except (KeyboardInterrupt, OSError, ValueError):
        pass
    finally:
        beside.end()


def _somebody_there(stderr: TextIO | None) -> bool:
    """Return True if a Ctrl-C could reach us: on a terminal, and not in the background of it."""
    if stderr is None or _closed(stderr) or not stderr.isatty() or not os.isatty(0):
        return False
    return not hasattr(os, "tcgetpgrp") or os.tcgetpgrp(0) == os.getpgrp()


def _closed(stream: TextIO) -> bool:
    """Return True if nothing can be written any more, as far as a stream tells: one of the program's may not."""
    return bool(getattr(stream, "closed", False))


def _finish(watch: Watch, ending: Ending) -> Diagnosis | None:
    try:
        return watch.finish(ending)
    except KeyboardInterrupt:  # a second Ctrl-C: the user does not want to wait
        watch.problems.append(
            f"the diagnosis was interrupted; `neuraldbg explain {watch.file or watch.folder}` gives it"
        )
        return None


def _show(
    request: Request, watch: Watch, diagnosis: Diagnosis | None, stderr: TextIO | None, screen: Apart | None
) -> None:
    problems = list(watch.problems)
    if request.folder is None and diagnosis is not None:
        problems.append("the run was not saved: the folder that you are in was deleted. Give -o with a path from /")
    out = next((s for s in (stderr, sys.stderr, sys.__stderr__) if s is not None and not _closed(s)), None)
    text = ""
    if diagnosis is not None:
        try:
            with watch.present():
                if problem := write_json(diagnosis, request.json):
                    problems.append(problem)
                if out is not None and not request.quiet:  # None: the program closed all; the run folder has it all
                    text = _text(diagnosis, out, watch.file, request, screen)
        except Exception as error:  # noqa: BLE001 (the program may have replaced anything; its own ending comes through)
            let_pass(error)
            instead = f"; `neuraldbg explain {watch.folder}` gives it" if watch.folder is not None else ""
            problems.append(f"the diagnosis could not be shown: {type(error).__name__}: {error}{instead}")
    if out is not None:
        with contextlib.suppress(OSError, ValueError):
            for problem in problems:
                out.write(f"neuraldbg: {problem}\n")
            out.write(text)
            out.flush()


def _text(diagnosis: Diagnosis, out: TextIO, file: Path | None, request: Request, screen: Apart | None) -> str:
    """Return what is said of a run on a stream."""
    if screen is None:
        return _line(diagnosis, file, request)
    page = sys.modules.get("neuraldbg.show.terminal.page")
    theirs = page is not None and not screen.made(page.Text)  # the program has loaded it, with the rich that it sees
    with contextlib.nullcontext() if theirs else screen.present():
        from rich.console import Console  # noqa: PLC0415 (never with --quiet)

        from neuraldbg.show.terminal.diagnosis import print_diagnosis  # noqa: PLC0415

        console = Console(file=out)
        with console.capture() as printed:
            print_diagnosis(diagnosis, console)
    saved = ""
    if file is not None:
        place, beside = _place(file, request)
        saved = f"\nSaved in {place}{beside}\nSee it with: neuraldbg report {place}\n"
    return f"\n{printed.get()}{saved}"


def _line(diagnosis: Diagnosis, file: Path | None, request: Request) -> str:
    """Say in one line what is wrong with a rank that rank 0 does not speak for; nothing if all is well."""
    if diagnosis.verdict not in ("failing", "suspect"):
        return ""
    see = f" See it with: neuraldbg explain {_place(file, request)[0]}" if file is not None else ""
    return f"neuraldbg: rank {request.rank.rank} is {diagnosis.verdict}: {diagnosis.summary}{see}\n"


def _place(file: Path, request: Request) -> tuple[str, str]:
    """Return what to name the run by: its folder, or its file where the folder stands for another; and a remark."""
    from neuraldbg.record import find_run  # noqa: PLC0415 (imports numpy, which is the program's to import first)

    try:
        alone = find_run(file.parent) == file
    except OSError:
        alone = False
    first = file.name == f"rank{request.rank.rank}.ndbg"
    beside = "" if first else ": the folder already held a run, which was left as it is"
    path, home = file.parent if alone and first else file, request.home
    return shlex.quote(str(path.relative_to(home) if home is not None and path.is_relative_to(home) else path)), beside


def _leave(ending: Ending, code: int) -> int:
    if ending.interrupted:
        die_interrupted()
    return code
