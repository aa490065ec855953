"""``neuraldbg profile``: where the time and the memory of a saved run went."""

from __future__ import annotations

from pathlib import Path

import click

from neuraldbg.cli.command import OK, Command, Result, examples, json_target, write_text
from neuraldbg.errors import ConfigError

SORTS = ("time", "forward", "backward", "flops", "calls", "order")
"""What layers may be sorted by: ``show/terminal/profile.py`` does it."""


@examples(
    ("profile runs/one", "the parts of a step, the slowest layers, and what to do about it"),
    ("profile runs/one --sort flops --top 40", "the layers with the most arithmetic (of a run with --profile)"),
    ("profile runs/one --json -", "for a program"),
)
@click.command("profile", cls=Command, short_help="Show where the time and memory of a saved run went.")
@click.argument("run", metavar="RUN")
@click.option("--sort", type=click.Choice(SORTS), default="time", show_default=True, help="Order of the layers.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Layers that are listed [default: 15].")
@click.option("--json", "json_to", metavar="FILE", help="Also write the profile as strict JSON ('-': only that).")
def COMMAND(run: str, sort: str, top: int | None, json_to: str | None) -> Result:  # noqa: N802 (the name is the contract)
    """Print where the time and the memory of RUN went, and its bottlenecks with a remedy for each.

    Three steps of every run are sampled; `neuraldbg run --profile` samples steps all along, and counts all
    operations. Times of a layer are its own, without the layers inside of it. RUN is a run folder, a folder above it
    that holds a single run, or a .ndbg file. Needs no torch.
    """
    from rich.console import Console  # noqa: PLC0415 (see command.py)

    from neuraldbg.record import find_run, others  # noqa: PLC0415
    from neuraldbg.saved import Run, readable  # noqa: PLC0415
    from neuraldbg.show.terminal.profile import TOP, print_profile  # noqa: PLC0415

    target = json_target(json_to)
    file = find_run(Path(run))
    profile = Run.load(file).profile()
    if target != "-":  # standard output is the JSON alone then
        with readable("shown"):
            print_profile(profile, Console(), sort=sort, top=top or TOP)
    if beside := others(Path(run), file):
        click.echo(f"neuraldbg: {beside}", err=True)
    if target is not None and (problem := write_text(profile.to_json() + "\n", target)):
        raise ConfigError(problem)
    return OK
