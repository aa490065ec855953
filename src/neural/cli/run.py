"""`neural run FILE`: trains a network, without the debugger."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from neural.cli.training_options import training_options

if TYPE_CHECKING:
    from neural.preparing import Wanted


@click.command("run", short_help="Train a network, without the debugger.")
@click.argument("file", type=click.Path())
@training_options
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but what the training prints.")
def COMMAND(file: str, wanted: Wanted, quiet: bool) -> int:  # noqa: N802 (the contract)
    """Train the network of FILE. What runs is a Python file in the folder .neural, whose command line is printed.

    The exit status is the training's; 1 if the file has problems; 2 if there is no such file, or no data that fit.
    """
    from neural.preparing import prepare  # noqa: PLC0415 (--help needs none of it)
    from neuraldbg.runner.ending import die_interrupted  # noqa: PLC0415
    from neuraldbg.runner.script import execute, resolve  # noqa: PLC0415

    prepared = prepare(file, wanted)
    if not quiet:
        announce(prepared.said, prepared.line)
    ending = execute(resolve(str(prepared.script), prepared.arguments))
    status = ending.announce()
    if ending.interrupted:
        die_interrupted()
    return status


def announce(said: tuple[str, ...], line: str) -> None:
    """Print on standard error what was decided, and the line that runs: standard output is the training's."""
    for sentence in said:
        click.echo(f"neural: {sentence}", err=True)
    if line:
        click.echo(f"$ {line}", err=True)
    sys.stderr.flush()
