"""``neuraldbg report``: everything about a run in one file, for people who were not there."""

from __future__ import annotations

from pathlib import Path

import click

from neuraldbg.cli.command import OK, Command, Result, examples
from neuraldbg.errors import ConfigError


@examples(
    ("report runs/one", "report.html, to be sent to anybody"),
    ("report runs/one --format md -o -", "Markdown for an issue or a pull request"),
)
@click.command("report", cls=Command, short_help="Write a saved run up as one file: HTML or Markdown.")
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    help="Where to write, by default report.html (or report.md); '-': standard output.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["html", "md"]),
    help="By default the suffix of FILE, html for '-'.",
)
def COMMAND(run: str, out: str | None, kind: str | None) -> Result:  # noqa: N802 (the name is the contract)
    """Write RUN up: verdict, causes with their evidence, pictures, what ran, and what could not be judged.

    The HTML file holds all it needs: it opens from a disk without a network, on a phone and on paper, in light and
    dark. RUN is as for `neuraldbg explain`.
    """
    from neuraldbg.record import find_run, others  # noqa: PLC0415 (see command.py)
    from neuraldbg.saved import Run, backgrounds, readable  # noqa: PLC0415
    from neuraldbg.show.report.write import kind_of, report, write  # noqa: PLC0415

    out = out or f"report.{kind or 'html'}"
    if out != "-":
        kind = kind or kind_of(out)
        if not Path(out).absolute().parent.is_dir():
            raise ConfigError(f"cannot write {out!r}: there is no folder {Path(out).parent}; create it first")
    file = find_run(Path(run))
    record = Run.load(file)
    diagnosis = record.diagnose()
    with readable("reported"):
        text = report(record, diagnosis, kind or "html", backgrounds(diagnosis), record.profile())
    if out == "-":
        click.echo(text.encode(), nl=False)  # as a file has it: the stream's own encoding may lack its signs
    else:
        write(text, out)
        click.echo(f"wrote {out} ({len(text.encode()) / 1000:,.0f} kB)")
    if beside := others(Path(run), file):
        click.echo(f"neuraldbg: {beside}", err=True)
    return OK
