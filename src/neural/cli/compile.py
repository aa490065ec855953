"""`neural compile FILE`: the network as a PyTorch file."""

from __future__ import annotations

from pathlib import Path

import click

from neural.errors import FileUnreadable
from neural.workspace import Workspace

BACKENDS = ("pytorch",)
OTHERS = ("jax", "onnx", "tensorflow")


@click.command("compile", short_help="Write a network as a PyTorch file.")
@click.argument("file", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="The file to write, - for the terminal. Default: FILE.py.")
@click.option("--network", metavar="NAME", help="The network to write, if the file has several. Default: the first.")
@click.option("-b", "--backend", default="pytorch", show_default=True, metavar="NAME", help="pytorch is the only one.")
def COMMAND(file: str, output: str | None, network: str | None, backend: str) -> int:  # noqa: N802 (the contract)
    """Write the network of FILE as a Python file that builds and trains it, and needs torch alone.

    It is the source that every other command runs, so the file trains the same model, bit for bit. Exit status 0: it
    is written; 1: the file has problems, or a layer that PyTorch cannot express; 2: there is no such file.
    """
    from neural.building import compile_plan  # noqa: PLC0415 (--help needs no lark)
    from neural.check.checker import checked  # noqa: PLC0415
    from neural.language.reader import read  # noqa: PLC0415

    if backend.lower() not in BACKENDS:
        known = "is not built yet" if backend.lower() in OTHERS else "is unknown"
        raise click.BadParameter(f"{backend} {known}; there is: {', '.join(BACKENDS)}", param_hint="--backend")
    source = read(file)
    plan = checked(source, network)
    text = compile_plan(plan, source.text)
    if output == "-":
        click.echo(text, nl=False)
        return 0
    path = Path(output) if output else Path(file).with_suffix(".py")
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise FileUnreadable(f"{path} could not be written: {error.strerror or error}") from None
    if not output:  # a file whose name the user chose is the user's
        Workspace().made(path)
    click.echo(f"{path}: the network {plan.name}, {plan.parameter_count:,} parameters")
    return 0
