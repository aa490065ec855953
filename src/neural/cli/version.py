"""`neural version`: the version of the distribution."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click


@click.command("version", short_help="Print the version.")
def COMMAND() -> int:  # noqa: N802 (the name is the contract)
    """Print the version of the distribution, which is that of NeuralDBG."""
    try:
        found = version("neuraldbg")
    except PackageNotFoundError:
        found = "unknown"
    click.echo(f"neural {found}")
    return 0
