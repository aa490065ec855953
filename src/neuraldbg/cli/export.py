"""``neuraldbg export``: a saved run as files of other tools."""

from __future__ import annotations

import click

from neuraldbg.cli.command import OK, Command, Result, examples

FORMATS = ("crash", "csv", "json", "parquet", "perfetto", "session", "tensorboard")
"""As in ``export.EXPORTERS``, which is not imported for the help."""
SELECTING = "csv, parquet, perfetto, tensorboard"
"""Those that take --layer and --stat; the others always hold the whole run."""


@examples(
    ("export runs/one", "everything, as JSON"),
    ("export runs/one --format csv -o tables", "tables, for pandas or a spreadsheet"),
    ("export runs/one --format tensorboard -o logs", "for tensorboard --logdir logs"),
)
@click.command("export", cls=Command, short_help="Write a saved run for other tools.")
@click.argument("run", metavar="RUN")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="json",
    show_default=True,
    help="What to write: csv and parquet are folders of tables, tensorboard is a folder for --logdir, perfetto a trace "
    "for ui.perfetto.dev, crash the last steps; json and session hold everything and can be loaded again.",
)
@click.option(
    "-o",
    "--out",
    metavar="PATH",
    help="Where to write, in folders that are made if missing; a name after the format in this folder otherwise.",
)
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="LAYER",
    help=f"Only this layer and those inside it; may be repeated. Only for {SELECTING}: the others hold the whole run.",
)
@click.option(
    "--stat",
    "stats",
    multiple=True,
    metavar="STAT",
    help=f"Only this statistic, such as rms; may be repeated. Only for {SELECTING}: the others hold the whole run.",
)
@click.option("--force", is_flag=True, help="Replace what an earlier export has written there.")
def COMMAND(  # noqa: N802 (the name is the contract)
    run: str, form: str, out: str | None, layers: tuple[str, ...], stats: tuple[str, ...], force: bool
) -> Result:
    """Write RUN as files that other tools read.

    RUN is a run folder, a folder above it that holds a single run, a .ndbg file, or an exported JSON file. Works on a
    run that is still going, as far as it is recorded.
    """
    from neuraldbg.export import exporter  # noqa: PLC0415 (see command.py)
    from neuraldbg.saved import Run  # noqa: PLC0415

    target = exporter(form).target if out is None else out
    written = Run.load(run).export(target, form, layers=layers, stats=stats, force=force)
    click.echo(f"wrote {written}")
    return OK
