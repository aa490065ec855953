"""`neural profile FILE`: where the time and the memory of a training go, and how long a prediction takes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from neural.cli.run import announce
from neural.cli.training_options import training_options
from neural.errors import NeuralError

if TYPE_CHECKING:
    from neural.preparing import Prepared, Wanted

EPOCHS = 2
"""Epochs that are trained if the command line does not say."""
MEMORY = ("memory", "memory_peak")
"""Views of NeuralDBG: the memory of each layer by what it holds, and its peak."""


@click.command("profile", short_help="Train a little, and show where time and memory go.")
@click.argument("file", type=click.Path())
@partial(training_options, debugged=True)
@click.option("--memory", is_flag=True, help="Also print the memory of each layer, and its peak.")
@click.option("--latency", is_flag=True, help="Also time `predict`, for one sample and for a batch of the file's size.")
def COMMAND(file: str, wanted: Wanted, memory: bool, latency: bool) -> int:  # noqa: N802 (the contract)
    """Train the network of FILE for two epochs, or --epochs, and print the profile: the parts of a step, the slowest
    layers, memory, and what to do about it.

    The run stays in the folder .neural, for `neuraldbg profile` and `neuraldbg dashboard`. The exit status is the
    training's; 1 if the file has problems; 2 if there is no such file, or no data that fit.
    """
    from neural.preparing import prepare  # noqa: PLC0415 (--help needs none of it)
    from neural.workspace import Workspace  # noqa: PLC0415

    prepared = prepare(file, wanted if wanted.epochs else replace(wanted, epochs=EPOCHS))
    announce(prepared.said, "")
    folder = Workspace().path(f"{prepared.script.stem}-profile")
    script = [str(prepared.script), *prepared.arguments]
    line = ["run", "--profile", "-o", str(folder), *prepared.watched, *script]
    announce((), shlex.join(["neuraldbg", *line]))
    command = [sys.executable, "-m", "neuraldbg", *line[:2], "-q", *line[2:]]
    status = subprocess.run(command, stdout=2, check=False).returncode  # noqa: S603 (our own; to standard error)
    if status:
        return status if status > 0 else 128 - status
    _print_profile(str(folder), memory=memory)
    if latency:
        click.echo(f"\n{latency_lines(_measured(prepared, wanted))}")
    return 0


def _print_profile(folder: str, *, memory: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 (--help needs none of it)

    from neuraldbg.saved import Run  # noqa: PLC0415
    from neuraldbg.show.terminal.profile import print_profile  # noqa: PLC0415

    run, console = Run.load(folder), Console()
    print_profile(run.profile(), console)
    if memory:
        from neuraldbg.show.terminal.views import print_views  # noqa: PLC0415
        from neuraldbg.show.views.view import Choice  # noqa: PLC0415

        console.print()
        print_views(run, run.diagnose(), MEMORY, Choice(), console)


def _measured(prepared: Prepared, wanted: Wanted) -> dict[str, Any]:
    """Return what the program `neural.latency` finds."""
    sizes = (1, wanted.training(prepared.plan)["batch_size"])
    batches = [word for size in sizes for word in ("--batch", str(size))]
    data = prepared.arguments[prepared.arguments.index("--data") + 1]
    # The folder of the user is no place to look for modules: one of them may be called json.py.
    start = "import sys; del sys.path[0]; from neural.latency import main; main()"
    command = [sys.executable, "-c", start, str(prepared.script), data, *batches]
    command += ["--device", wanted.device] if wanted.device else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 (our own)
    if done.returncode:
        raise NeuralError("the predictions could not be timed: see the error above")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def latency_lines(found: dict[str, Any]) -> str:
    """Return the times of predictions as a table."""
    threads = found["threads"]
    lines = [f"Latency of predict on {found['device']}, {threads} thread{'' if threads == 1 else 's'}"]
    rows = [("batch", "median", "8 of 10 within", "samples/s")]
    for each in found["batches"]:
        spread = f"{_time(each['low_s'])} to {_time(each['high_s'])}"
        rows.append((str(each["batch"]), _time(each["median_s"]), spread, f"{each['batch'] / each['median_s']:,.0f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines += ["  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
