"""``neuraldbg explain``: the diagnosis of a saved run, the same as the live run gave."""

from __future__ import annotations

import click

from neuraldbg.cli.command import FAILED, Result, fail_on, json_target, json_to, verdict_status, write_json


@click.command("explain", short_help="Explain a saved run.")
@click.argument("run", metavar="RUN")
@json_to
@fail_on
def COMMAND(run: str, json_to: str | None, fail_on: str | None) -> Result:  # noqa: N802 (the name is the contract)
    """Print the diagnosis of RUN.

    RUN is a run folder, a folder above it that holds a single run, or a .ndbg file. Works on a run that is still going
    or that was killed, and needs no torch.
    """
    from rich.console import Console  # noqa: PLC0415 (see command.py)

    from neuraldbg.saved import Run  # noqa: PLC0415
    from neuraldbg.show.terminal.diagnosis import print_diagnosis  # noqa: PLC0415

    target = json_target(json_to)
    diagnosis = Run.load(run).diagnose()
    if target != "-":  # standard output is the JSON alone then
        print_diagnosis(diagnosis, Console())
    problem = write_json(diagnosis, target)
    if problem:
        click.echo(f"neuraldbg: {problem}", err=True)
        return FAILED
    return verdict_status(diagnosis, fail_on)
