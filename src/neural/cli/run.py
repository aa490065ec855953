"""`neural run FILE`: trains a network, without the debugger."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neural.cli.training_options import training_options

if TYPE_CHECKING:
    from neural.preparing import Wanted


@click.command("run", short_help="Train a network, without the debugger.")
@click.argument("file", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@training_options
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but what the training prints.")
def COMMAND(file: str, arguments: tuple[str, ...], wanted: Wanted, quiet: bool) -> int:  # noqa: N802 (the contract)
    """Train the network of FILE. What runs is a Python file in the folder .neural, whose command line is printed. A
    FILE that is a Python script itself is run with what follows --.

    The exit status is the training's; 1 if the file has problems; 2 if there is no such file, or no data that fit.
    """
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
