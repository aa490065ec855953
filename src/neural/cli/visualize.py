"""`neural visualize FILE`: the data flow of a network as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from neural.workspace import Workspace


@click.command("visualize", short_help="Draw the layers of a network with their shapes.")
@click.argument("file", type=click.Path())
@click.option(
    "-f",
    "--format",
    "kind",
    type=click.Choice(("html", "svg", "png")),
    help="A page with the picture and a table, or the picture alone. Default: by the end of PATH, or html.",
)
@click.option("-o", "--output", metavar="PATH", type=click.Path(), help="The file to write. Default: FILE.html.")
@click.option("--network", metavar="NAME", help="The network to draw, if the file has several. Default: the first.")
def COMMAND(file: str, kind: str | None, output: str | None, network: str | None) -> int:  # noqa: N802 (the contract)
    """Draw the network of FILE: its inputs, layers with shapes and parameters, branches, blocks and loss.

    The page is one file that needs no network and follows the theme of the browser. Exit status 0: it is written;
    1: the file has problems; 2: there is no such file, or PATH cannot be written. PNG needs the extra `plot`.
    """
    from neural.check.checker import checked  # noqa: PLC0415 (--help needs no lark)
    from neural.language.reader import read  # noqa: PLC0415
    from neural.visual import FORMATS, drawn  # noqa: PLC0415

    if kind is None:
        end = Path(output or "").suffix.removeprefix(".").lower()
        if end and end not in FORMATS:
            raise click.BadParameter(f"{output}: name a file .html, .svg or .png, or give --format", param_hint="-o")
        kind = end or "html"
    plan = checked(read(file), network)
    path = Path(output) if output else Path(file).with_suffix(f".{kind}")
    Workspace().write(drawn(plan, kind), path, named=bool(output))
    click.echo(f"{path}: the network {plan.name}, {plan.parameter_count:,} parameters")
    return 0
