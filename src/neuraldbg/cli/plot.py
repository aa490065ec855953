"""``neuraldbg plot``: the picture of a run, with the moment of failure and the guilty layer."""

from __future__ import annotations

from pathlib import Path

import click

from neuraldbg.cli.command import OK, Result


@click.command("plot", short_help="Draw a saved run: loss, gradients, activations.")
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--out",
    default="crash.png",
    show_default=True,
    metavar="FILE",
    help="Where to draw; the name's end chooses the format: .png, .svg or .pdf.",
)
def COMMAND(run: str, out: str) -> Result:  # noqa: N802 (the name is the contract)
    """Draw RUN: the loss, every layer's gradient and activation on a log axis, and the moment of failure."""
    from neuraldbg.saved import Run  # noqa: PLC0415 (see command.py)
    from neuraldbg.show.static.crash import save_crash  # noqa: PLC0415

    record = Run.load(run)
    save_crash(record, record.diagnose(), Path(out))
    click.echo(f"wrote {out}")
    return OK
