"""`neural fmt FILE...`: files in the canonical layout."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from neural.errors import SourceError
from neural.workspace import write_whole


@click.command("fmt", short_help="Write files in the canonical layout.")
@click.argument("files", type=click.Path(), nargs=-1, required=True, metavar="FILE...")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit with status 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Change nothing; print what would change.")
def COMMAND(files: tuple[str, ...], only_check: bool, diff: bool) -> int:  # noqa: N802 (the name is the contract)
    """Write each FILE in the canonical layout. All comments are kept.

    A file with a syntax error stays as it is, and the others are formatted. Exit status 0: done; 1: a file would
    change, by --check or --diff, or has a syntax error.
    """
    status = 0
    for file in files:
        try:
            before, after = _texts(file)
        except SourceError as error:
            click.echo(f"{error}\n", err=True)
            status = 1
            continue
        if before == after:
            continue
        if diff:
            click.echo(_difference(file, before, after), nl=False)
        if diff or only_check:
            status = 1
        if only_check and not diff:
            click.echo(f"would change {file}")
        if not (diff or only_check):
            write_whole(Path(file), after)
            click.echo(f"formatted {file}")
    return status


def _texts(file: str) -> tuple[str, str]:
    from neural.language.formatter import formatted  # noqa: PLC0415 (--help needs no lark)
    from neural.language.reader import read  # noqa: PLC0415

    source = read(file)
    with Path(file).open(encoding="utf-8", newline="") as opened:
        return opened.read(), formatted(source)


def _difference(file: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{file} (now)", f"{file} (formatted)"
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
