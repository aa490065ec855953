"""`neural check FILE`: all that is wrong with a file, or the table of its layers."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from neural.errors import SourceError


@click.command("check", short_help="Check a file, and print its layers with shapes and parameters.")
@click.argument("file", type=click.Path())
@click.option(
    "--network", metavar="NAME", help="The network to check, by its name or its place, such as 2. Default: the first."
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan, or the problems, as JSON.")
def COMMAND(file: str, network: str | None, as_json: bool) -> int:  # noqa: N802 (the name is the contract)
    """Check FILE, and print its layers with output shapes and numbers of parameters.

    Everything that is wrong is printed with its line. Exit status 0: a model can be made of it; 1: it has problems;
    2: there is no such file. A .rnr file with results and papers only is read, and has no layers.
    """
    from neural.check.checker import checked  # noqa: PLC0415 (--help needs no lark)
    from neural.cli.layer_table import research_lines, table  # noqa: PLC0415
    from neural.language.reader import read  # noqa: PLC0415

    try:
        source = read(file)
        if not source.networks and source.research and network is None:
            names = [{"name": each.name} for each in source.research]
            click.echo(json.dumps({"file": file, "research": names}) if as_json else research_lines(source))
            return 0
        plan = checked(source, network)
    except SourceError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"file": file, "problems": [asdict(each) for each in error.problems]}, indent=1))
        return 1
    click.echo(json.dumps(plan.to_dict(), indent=1, allow_nan=False) if as_json else table(plan))
    return 0
