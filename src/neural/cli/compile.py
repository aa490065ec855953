"""`neural compile FILE`: the network as a PyTorch file, a Keras file or an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from neural.errors import UnknownBackend
from neural.workspace import Workspace

if TYPE_CHECKING:
    from neural.plan import Plan


@click.command("compile", short_help="Write a network as a file for PyTorch, Keras or ONNX.")
@click.argument("file", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="The file to write, - for the terminal. Default: FILE.py, FILE_keras.py (by the backend) or FILE.onnx.",
)
@click.option("--network", metavar="NAME", help="The network to write, if the file has several. Default: the first.")
@click.option(
    "-b",
    "--backend",
    default="pytorch",
    show_default=True,
    metavar="NAME",
    help="pytorch; tensorflow, jax or keras for a file of Keras 3; onnx.",
)
@click.option("--weights", type=click.Path(), help="For onnx: the trained weights, a state dict of the PyTorch file.")
@click.option("--seed", type=int, help="For onnx without --weights: the seed of random weights. Default: 0.")
def COMMAND(  # noqa: N802 (the name is the contract)
    file: str, output: str | None, network: str | None, backend: str, weights: str | None, seed: int | None
) -> int:
    """Write the network of FILE as a Python file that builds and trains it, or as an ONNX file.

    A file for PyTorch needs torch alone. It is the source that every other command runs, so the file trains the same
    model, bit for bit. Exit status 0: it is written; 1: the file has problems, or a layer that the backend cannot
    express; 2: there is no such file, or a package is missing.
    """
    from neural.backends import backend as named  # noqa: PLC0415 (--help needs no lark)
    from neural.building import compile_plan  # noqa: PLC0415
    from neural.check.checker import checked  # noqa: PLC0415
    from neural.language.reader import read  # noqa: PLC0415

    try:
        chosen = named(backend)
    except UnknownBackend as error:
        raise click.BadParameter(str(error), param_hint="--backend") from None
    if chosen.name != "onnx" and (weights is not None or seed is not None):
        raise click.BadParameter(
            "a Python file begins with new weights: these are for --backend onnx", param_hint="--weights, --seed"
        )
    source = read(file)
    plan = checked(source, network)
    path = Path(output) if output else Path(file).with_name(Path(file).stem + chosen.suffix)
    if chosen.name == "onnx":
        if not output:
            Workspace().check_free(path)
        _export(plan, source.text, path, weights, seed or 0)
        if not output:
            Workspace().made(path)
        return 0
    text = compile_plan(plan, source.text, chosen.name)
    if output == "-":
        click.echo(text, nl=False)
        return 0
    Workspace().write(text, path, named=bool(output))
    click.echo(f"{path}: the network {plan.name}, {plan.parameter_count:,} parameters")
    return 0


def _export(plan: Plan, text: str, path: Path, weights: str | None, seed: int) -> None:
    """Write an ONNX file, and say which weights it has."""
    from neural.onnx_export import export  # noqa: PLC0415

    if str(path) == "-":
        raise click.BadParameter("an ONNX file is not text: name a file", param_hint="--output")
    export(plan, path, text, weights=weights, seed=seed)
    words = (
        f"with the weights of {weights}"
        if weights
        else f"random weights of seed {seed}: --weights FILE.pt for trained ones"
    )
    click.echo(f"{path}: the network {plan.name}, {plan.parameter_count:,} parameters, {words}")
