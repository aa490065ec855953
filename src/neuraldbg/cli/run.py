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
from neuraldbg.cli.alert_options import ALERTS, alert_options, keywords_of, with_line
from neuraldbg.cli.command import (
    FAILED,
    Command,
    Result,
    examples,
    fail_on,
    json_target,
    json_to,
    titles,
    verbose,
    verdict_status,
    write_json,
)
from neuraldbg.cli.cost_options import overhead_option, probes_option, profile_option, trace_option
from neuraldbg.cli.output_options import Further, output_options
from neuraldbg.cli.page_options import PAGE, PageOptions, page_options
from neuraldbg.errors import ConfigError, NeuralDbgError
from neuraldbg.program_timers import time_stopped
from neuraldbg.raised import let_pass
from neuraldbg.ranks import Rank, launched_at, own_rank
from neuraldbg.runner.ending import Ending, die_interrupted
from neuraldbg.runner.hidden_packages import apart
from neuraldbg.runner.launchers import become, handed_on, launcher_of, own_options
from neuraldbg.runner.script import execute, folder_of, resolve, working_folder
from neuraldbg.runner.session_guard import MakeSession, Watch, torch_session
from neuraldbg.runner.shadowed_modules import Shadowed
from neuraldbg.runner.status_line import StatusLine, takes_line
from neuraldbg.runner.termination import Termination

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from neuraldbg.dashboard.child_process import Beside
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.nouns.profile import Profile
    from neuraldbg.runner.hidden_packages import Apart
    from neuraldbg.runner.script import Program

RUNS = "neuraldbg-runs"


@dataclass(frozen=True)
class Request:
    """The program to run and the options that the command line gave."""

    program: Program
    folder: Path | None
    """Folder that the run is saved in, None if there is no place for it."""
    json: Path | str | None = None
    fail_on: str | None = None
    quiet: bool = False
    verbose: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the session that differ from their defaults."""
    home: Path | None = field(default_factory=working_folder)
    """Folder that the user's shell is in: the program may go elsewhere. None if it was deleted."""
    page: PageOptions | None = None
    """The dashboard beside the run, None for none."""
    rank: Rank = field(default_factory=Rank)
    """Place of this process among those that train together."""
    profile: bool = False
    """True to print the profile below the diagnosis."""
    further: Further = field(default_factory=Further)
    """What else to print, and to write."""


@titles(
    ("Output", "out json_to fail_on views export note verbose quiet"),
    ("Cost and profile", "overhead no_probes profile trace"),
    ALERTS,
    PAGE,
)
@examples(
    ("run train.py --lr 0.1", "what follows the script is the script's own"),
    ("run -m project.train", "a module, as `python -m` runs it"),
    ("run -o runs/one --dashboard train.py", "name the run folder, and watch in the browser"),
    ("run --fail-on suspect --json - train.py", "as a check in CI"),
    ("run --overhead full train.py", "read every layer at every step"),
    ("run --profile train.py", "where the time went: the data loader, layers, the optimizer"),
    ("run --alert-on-nan --halt train.py", "alert at the first NaN, and stop before it is applied"),
    ("run --show flow --export run.json train.py", "print the gradients of all layers, too, and write the run as JSON"),
)
@click.command(
    "run",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
    short_help="Run a training script and explain why it failed.",
)
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of a module, as for `python -m`.")
@click.option("-o", "--out", metavar="DIR", help=f"The run folder [default: {RUNS}/<script>-<time>].")
@json_to
@fail_on
@output_options
@overhead_option
@probes_option
@profile_option
@trace_option
@alert_options
@page_options
@verbose
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def COMMAND(  # noqa: N802 (the name is the contract)
    module: bool,
    out: str | None,
    json_to: str | None,
    fail_on: str | None,
    no_probes: bool,
    overhead: dict[str, float | None],
    profile: bool | None,
    trace: tuple[int, int] | None,
    page: PageOptions | None,
    verbose: bool,
    quiet: bool,
    command: tuple[str, ...],
    asked: dict[str, Any],
    further: Further,
) -> Result:
    """Run SCRIPT as `python SCRIPT ARGS` would, record its training, and explain at the end what went wrong and why.

    The verdict is failing, suspect, healthy or inconclusive; `neuraldbg explain RUN` prints the diagnosis again. It
    goes to standard error and into the run folder RUN. Everything after SCRIPT belongs to the script. Its output, exit
    status and errors are its own.

    Alerts are printed on standard error and kept in the run file. With --halt the script raises TrainingHalted where
    its optimizer would have applied the bad step; unless it catches that, the exit status is 1.

    A launcher may stand for SCRIPT (`neuraldbg run torchrun --nproc-per-node 2 train.py`, `-m torch.distributed.run`,
    `accelerate launch`): its workers are watched. Each writes its own rank<R>.ndbg and diagnosis into RUN, and --json
    FILE becomes FILE-rank<R> for all but rank 0, which prints one diagnosis of all ranks, diagnosis-job.json.
    """
    if (launcher := launcher_of(command, module=module)) is not None:
        return lambda: become(handed_on(*launcher, own_options(command)))
    program = resolve(command[0], tuple(command[1:]), module=module)
    rank = own_rank()
    options: dict[str, Any] = {
        **overhead,
        **({"probes": False} if no_probes else {}),
        **further.keywords,
    }
    options |= keywords_of(asked, rank, quiet=quiet)
    folder = folder_for(out, program.stem)
    if trace is not None and (profile is False or folder is None):
        said = "--trace is a part of the profile, saved beside the run: leave out --no-profile, or give -o"
        raise click.UsageError(said)
    options |= {**({} if profile is None else {"profile": profile}), **({} if trace is None else {"trace": trace})}
    request = Request(
        program,
        folder,
        _of_rank(json_target(json_to), rank),
        fail_on,
        quiet,
        verbose,
        options,
        page=None if rank.secondary else page,
        rank=rank,
        profile=bool(profile) or trace is not None,
        further=further,
    )
    return lambda: launch(request)


def folder_for(out: str | None, stem: str) -> Path | None:
    """Return the run folder, which need not exist; None where the working folder was deleted and no other is named."""
    home = working_folder()
    if out is not None and (home is not None or Path(out).is_absolute()):
        folder = Path(out).absolute()
        there = next(part for part in (folder, *folder.parents) if os.path.exists(part))  # noqa: PTH110 (never raises)
        if not there.is_dir():  # said before the training, not after it
            raise ConfigError(f"--out {out}: {there} is a file; name a folder for the run")
        return folder
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
    status = StatusLine(stderr) if not request.quiet and stderr is not None and takes_line(stderr) else None
    speaks = not request.quiet and not request.rank.secondary
    screen = apart("rich", "rich.console", "rich.padding", "rich.table", "rich.text") if speaks else None
    shadowed = Shadowed(folder_of(request.program))
    options = request.options if status is None else with_line(request.options, status.say)
    if beside is not None:
        options = {**options, "dashboard": beside.training}
    watch = Watch(request.program, request.folder, status, make_session, options=options, shadowed=shadowed)

    def end_by(signal: int, frame: FrameType | None) -> None:
        if status is not None:
            status.close()
        if watch.session is not None:  # else nothing was seen, and there is nothing to wait for
            _show(request, watch, _finish(request, watch, Ending(signal=signal, frame=frame)), stderr, screen)

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
        diagnosis = _finish(request, watch, ending)
    code = ending.announce()
    with time_stopped():
        if watch.unwatched:
            _say_unwatched(request, watch, ending, stderr)
        else:
            _show(request, watch, diagnosis, stderr, screen)
    termination.disarm()
    if beside is not None:
        assert request.folder is not None
        _leave_open(beside, _typed(request.folder, request), stderr)
    if code == 0 and request.fail_on is not None and not watch.unwatched:
        # A gate that could not judge must not let pass.
        code = FAILED if diagnosis is None else verdict_status(diagnosis, request.fail_on)
    return _leave(ending, code)


def _beside(request: Request, stderr: TextIO | None) -> Beside | None:
    """Start the dashboard beside the run, and say where it is."""
    if request.page is None or request.folder is None:
        return None
    from neuraldbg.dashboard.child_process import Beside  # noqa: PLC0415 (only where it is asked for)

    try:
        beside = Beside(
            request.folder, request.page.port, request.page.tunnel, theme=request.page.theme, tab=request.page.tab
        )
    except OSError as error:
        if stderr is not None:
            stderr.write(f"neuraldbg: there is no dashboard: its process cannot be started ({error})\n")
        return None
    if stderr is not None:
        said = [*beside.said, f"the dashboard is at {beside.url}"]
        if request.page.tunnel is not None and request.page.tunnel.kind == "ssh":
            from neuraldbg.dashboard.tunnel import ssh_sentence  # noqa: PLC0415

            said.append(ssh_sentence(beside.port))
        for sentence in said:
            stderr.write(f"neuraldbg: {sentence}\n")
        stderr.flush()
    return beside


def _leave_open(beside: Beside, folder: str, stderr: TextIO | None) -> None:
    """Leave the page to somebody who sits at the terminal; otherwise it ends with the run."""
    try:
        if beside.problem is None and _somebody_there(stderr):
            assert stderr is not None
            stderr.write(f"The dashboard is still at {beside.url}\nCtrl-C ends it.\n")
            stderr.flush()
            beside.wait()
        elif beside.problem is None and stderr is not None and not _closed(stderr):
            stderr.write(f"neuraldbg: the page has ended with the run; neuraldbg dashboard {folder} opens it again\n")
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


def _finish(request: Request, watch: Watch, ending: Ending) -> Diagnosis | None:
    try:
        alone = watch.finish(ending)
        if alone is None:
            return None
        spawned = watch.spawns is not None and watch.spawns.count > 0 and not alone.run["steps"]
        if not spawned and (request.rank.world == 1 or request.rank.rank):
            return alone
        from neuraldbg.runner.job_end import of_job  # noqa: PLC0415 (imports numpy, which is the program's to import first)

        return of_job(watch, request.rank) or alone
    except KeyboardInterrupt:  # a second Ctrl-C: the user does not want to wait
        watch.problems.append(
            f"the diagnosis was interrupted; `neuraldbg explain {watch.file or watch.folder}` gives it"
        )
        return None


def _say_unwatched(request: Request, watch: Watch, ending: Ending, stderr: TextIO | None) -> None:
    """Say of a program without torch that nothing was watched, in one line: the packages that show a diagnosis take
    longer to load than such a program runs.
    """
    reason = f"{request.program.target} ended without importing torch: nothing was watched, and nothing is saved"
    problems = list(watch.problems)
    if request.json is not None:
        with watch.present():
            from neuraldbg.nouns import Diagnosis, Unjudged  # noqa: PLC0415 (imports numpy)

            told = Diagnosis("inconclusive", f"{reason}.", unjudged=(Unjudged("every cause", "torch was not used"),))
            if problem := write_json(told, request.json):
                problems.append(problem)
    if not request.quiet and not request.rank.secondary:
        elsewhere = ". If it trains in another process, put `neuraldbg run` before that one's script."
        problems.append(reason + (elsewhere if ending.error is None else "."))  # an error tells the reason by itself
    out = _open_stream(stderr)
    if out is not None:
        with contextlib.suppress(OSError, ValueError):
            out.writelines(f"neuraldbg: {problem}\n" for problem in problems)
            out.flush()


def _open_stream(stderr: TextIO | None) -> TextIO | None:
    """Return the error stream, or one that stands for it if the program closed it; None if it closed all."""
    return next((s for s in (stderr, sys.stderr, sys.__stderr__) if s is not None and not _closed(s)), None)


def _show(
    request: Request, watch: Watch, diagnosis: Diagnosis | None, stderr: TextIO | None, screen: Apart | None
) -> None:
    problems = list(watch.problems)
    if request.folder is None and diagnosis is not None:
        problems.append("the run was not saved: the folder that you are in was deleted. Give -o with a path from /")
    out = _open_stream(stderr)
    text = ""
    if diagnosis is not None:
        try:
            with watch.present():
                problems += filter(None, (write_json(diagnosis, request.json), _export(watch.file, request.further)))
                if out is not None and not request.quiet:  # None: the program closed all; the run folder has it all
                    profile = watch.session.profile() if request.profile and watch.session is not None else None
                    record = watch.session.record() if request.further.views and watch.session is not None else None
                    text = _text(diagnosis, out, watch.file, request, screen, profile, record)
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


def _export(file: Path | None, further: Further) -> str | None:
    """Write the run as JSON if that is asked for. Return a sentence that says why it could not be."""
    if further.export is None:
        return None
    again = f"`neuraldbg export {file} -o {further.export}` writes it"
    try:
        from neuraldbg.saved import Run  # noqa: PLC0415 (only where it is asked for)

        if file is None:
            return f"{further.export} was not written: the run was not saved"
        Run.load(file).export(further.export, "json", force=True)
    except NeuralDbgError as error:
        return f"{further.export} was not written: {error}; {again}"
    return None


def _text(
    diagnosis: Diagnosis,
    out: TextIO,
    file: Path | None,
    request: Request,
    screen: Apart | None,
    profile: Profile | None,
    record: RunRecord | None,
) -> str:
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
            place, beside = _place(file, request) if file is not None else ("", "")
            if file is not None and diagnosis.ranks:  # of all ranks, whose files lie in one folder
                place, beside = _typed(file.parent, request), ""
            saved = f"Saved in {place}{beside}" if place else ""
            print_diagnosis(diagnosis, console, verbose=request.verbose, saved=saved)
            if request.further.words is not None and (said := request.further.words(diagnosis)):
                console.print(f"\n{said}", markup=False, highlight=False, soft_wrap=True)
            if profile is not None:
                from neuraldbg.show.terminal.profile import print_profile  # noqa: PLC0415 (only where it is asked for)

                console.print()
                print_profile(profile, console)
            if record is not None:
                from neuraldbg.show.terminal.views import print_views  # noqa: PLC0415 (as above)
                from neuraldbg.show.views.view import Choice  # noqa: PLC0415

                console.print()
                print_views(record, diagnosis, request.further.views, Choice(), console)
    # Of a healthy run the last line says where it is.
    if place and (diagnosis.verdict != "healthy" or request.verbose):
        saved = f"\n{saved}\nSee it with: neuraldbg report {place}\n"
    else:
        saved = ""
    return f"\n{printed.get()}{saved}"


def _line(diagnosis: Diagnosis, file: Path | None, request: Request) -> str:
    """Say in one line what is wrong with a rank that rank 0 does not speak for; nothing if all is well."""
    if request.rank.silent or diagnosis.verdict not in ("failing", "suspect"):
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
    return _typed(file.parent if alone and first else file, request), beside


def _typed(path: Path, request: Request) -> str:
    """Return a path as it is typed in the folder where the command was given."""
    home = request.home
    return shlex.quote(str(path.relative_to(home) if home is not None and path.is_relative_to(home) else path))


def _leave(ending: Ending, code: int) -> int:
    if ending.interrupted:
        die_interrupted()
    return code
