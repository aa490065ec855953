"""`neural run FILE`: trains a network, without the debugger."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neural.cli.training_options import training_options
from neural.plan import SEARCHES

if TYPE_CHECKING:
    from neural.preparing import Wanted


@click.command("run", short_help="Train a network, without the debugger.")
@click.argument("file", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@training_options
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but what the training prints.")
@click.option("--hpo", is_flag=True, help="Search for the values of HPO(...): every trial is a run of NeuralDBG.")
@click.option("--trials", type=click.IntRange(min=1), help="Trials of a search. Default: 10, or all points of a grid.")
@click.option("--search", "method", type=click.Choice(SEARCHES), help="Default: search_method of the file, or random.")
@click.option("--objective", metavar="NAME", help="The number to search for, such as val_accuracy. Default: val_loss.")
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="DIR", help="The folder of a search's runs.")
def COMMAND(  # noqa: N802 (the contract)
    file: str,
    arguments: tuple[str, ...],
    wanted: Wanted,
    quiet: bool,
    hpo: bool,
    trials: int | None,
    method: str | None,
    objective: str | None,
    out: Path | None,
) -> int:
    """Train the network of FILE. What runs is a Python file in the folder .neural, whose command line is printed. A
    FILE that is a Python script itself is run with what follows --.

    The exit status is the training's; 1 if the file has problems; 2 if there is no such file, or no data that fit.
    """
    if hpo:
        return _search(file, wanted, out, trials=trials, method=method, objective=objective)
    _without_a_search(trials=trials, search=method, objective=objective, out=out)
    from neural.preparing import prepare  # noqa: PLC0415 (--help needs none of it)
    from neuraldbg.runner.ending import die_interrupted  # noqa: PLC0415
    from neuraldbg.runner.script import execute, resolve  # noqa: PLC0415

    if is_script(file, arguments, wanted):
        program = resolve(file, arguments)
    else:
        prepared = prepare(file, wanted)
        if not quiet:
            announce(prepared.said, prepared.line)
        program = resolve(str(prepared.script), prepared.arguments)
    ending = execute(program)
    status = ending.announce()
    if ending.interrupted:
        die_interrupted()
    return status


def _search(file: str, wanted: Wanted, out: Path | None, **asked: Any) -> int:
    """Print the trials and the table of a search. The status is 1 if no trial came to an end."""
    from neural.search import printed, searched  # noqa: PLC0415 (--help needs none of it)

    if wanted.backend != "pytorch":
        raise click.UsageError(f"--hpo records every trial by NeuralDBG, which watches PyTorch, not {wanted.backend}")
    result = searched(file, wanted, folder=out, say=lambda line: click.echo(line, err=True), **asked)
    click.echo(printed(result))
    if result.interrupted:
        raise click.Abort
    return 0 if result.best is not None else 1


def _without_a_search(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise click.UsageError(f"--{name} is for a search: give --hpo, too")


def is_script(file: str, arguments: tuple[str, ...], wanted: Wanted) -> bool:
    """Return True for a Python script, which has its own data and its own loop. Raises UsageError for options that are
    about the other kind of file.
    """
    if Path(file).suffix != ".py":
        if arguments:
            raise click.UsageError(f"{shlex.join(arguments)}: a .neural file takes no arguments")
        return False
    for name, value in vars(wanted).items():
        if value not in (None, False, "pytorch"):
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is for .neural files: give it to the script itself, after --")
    return True


def announce(said: tuple[str, ...], line: str) -> None:
    """Print on standard error what was decided, and the line that runs: standard output is the training's."""
    for sentence in said:
        click.echo(f"neural: {sentence}", err=True)
    if line:
        click.echo(f"$ {line}", err=True)
    sys.stderr.flush()
