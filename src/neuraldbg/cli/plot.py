"""``neuraldbg plot``: a view of a run as a picture, or as text in the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from neuraldbg.cli.command import OK, Command, Result, examples
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.nouns import Diagnosis
    from neuraldbg.saved import Run
    from neuraldbg.show.forms import View
    from neuraldbg.show.views.view import Choice

CRASH = "crash"
"""The picture of several panels that is drawn where no view is chosen."""
IN_TERMINAL = ("loss", "heatmap", "chain")
METRIC = "metric/"
"""Begin of the statistics that are metrics, as ``neuraldbg.nouns`` has it."""
OF_LAYER = ("loss", "series", "distribution")
"""The views that stand for the crash picture, and for that of one layer, in a terminal, one below the other."""
_RANGE = re.compile(r"(\d*):(\d*)")


class _Plot(Command):
    """Lists the views below the options: they are known to who draws, and only looked up for this help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the views and what each shows."""
        with formatter.section("Views"):
            formatter.write_dl(known_views())
        super().format_epilog(ctx, formatter)


def known_views() -> list[tuple[str, str]]:
    """Return the names of the views and what each shows, sorted."""
    from neuraldbg.show.views import VIEWS  # noqa: PLC0415 (see command.py)

    crash = (CRASH, "loss, gradients and activations of all layers up to the failure")
    return sorted([crash, *((member.name, member.title) for member in VIEWS)])


@examples(
    ("plot runs/one", "the crash picture, as crash.png"),
    ("plot runs/one --view loss --terminal", "in the terminal"),
    ("plot runs/one --view series --layer fc1 --stat rms", "one statistic of one layer"),
    ("plot runs/one --metric val/accuracy", "what the program logged"),
)
@click.command("plot", cls=_Plot, short_help="Draw a saved run: loss, gradients, activations.")
@click.argument("run", metavar="RUN")
@click.option("--view", "name", default=CRASH, show_default=True, metavar="VIEW", help="What to draw: see Views below.")
@click.option(
    "--layer",
    metavar="LAYER",
    help="Only this layer: a path, or a type and its place in the order of execution, from 1 (`conv2`).",
)
@click.option(
    "--stat", metavar="STAT", help="Which statistic: norm, rms, mean, std, zeros, dead, ...  [default: the view's own]"
)
@click.option("--metric", metavar="NAME", help="A metric that the program logged; the same as --stat metric/NAME.")
@click.option(
    "--kind",
    metavar="KIND",
    help="Of what: activation, output_grad, param, param_grad, update, ...  [default: the view's own]",
)
@click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    help="The step to show, counted from 0.  [default: the view's own]",
)
@click.option(
    "--steps", "span", metavar="A:B", help="Only the steps from A to B, both included; either may be left out."
)
@click.option("--terminal", is_flag=True, help="Print it as text; draws a file as well only with -o.")
@click.option(
    "--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True, help="Colours of the picture."
)
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    help="Where to draw; the name's end chooses the format: .png, .svg or .pdf.  [default: VIEW.png]",
)
def COMMAND(  # noqa: N802 (the name is the contract)
    run: str,
    name: str,
    layer: str | None,
    stat: str | None,
    metric: str | None,
    kind: str | None,
    step: int | None,
    span: str | None,
    terminal: bool,
    theme: str,
    out: str | None,
) -> Result:
    """Draw a VIEW of RUN, with the moment of failure and the guilty layer.

    Without --view it is the crash picture: the loss, every layer's gradient and activation on a log axis; with --layer,
    those of that layer and the layers in it; with --metric, that metric. RUN may also be a crash dump, as crash.json.
    """
    from neuraldbg.saved import Run, load_dump, readable  # noqa: PLC0415 (see command.py)
    from neuraldbg.show.views.view import Choice  # noqa: PLC0415

    first, last = _steps(span)
    if metric is not None:
        if stat is not None:
            raise ConfigError(f"--metric {metric}, --stat {stat}: give one of both")
        stat = f"{METRIC}{metric.removeprefix(METRIC)}"
    if stat is not None and stat.startswith(METRIC) and name == CRASH:
        name = "series"
    choice = Choice(layer, stat, kind, step, first, last)
    given = {"layer": layer, "stat": stat, "kind": kind, "step": step, "steps": span}
    _check(name, {option for option, value in given.items() if value is not None})
    where = None if terminal and out is None else _target(out or f"{name}.png")
    dump = load_dump(run)
    record = Run.load(run) if dump is None else dump[0]
    if step is not None and step >= record.steps:
        raise ConfigError(f"--step {step}: the run has {record.steps:,} steps, counted from 0")
    diagnosis = record.diagnose() if dump is None else dump[1]
    if terminal:
        from rich.console import Console  # noqa: PLC0415 (see command.py)

        from neuraldbg.show.terminal.views import print_views  # noqa: PLC0415

        with readable("shown"):
            whole = IN_TERMINAL if layer is None else OF_LAYER
            print_views(record, diagnosis, whole if name == CRASH else (name,), choice, Console())
    if where is not None:
        with readable("drawn"):
            _draw(record, diagnosis, name, choice, where, theme)
        click.echo(f"wrote {where}")
    return OK


def _steps(span: str | None) -> tuple[int | None, int | None]:
    """Read ``A:B``; ConfigError for anything else."""
    if span is None:
        return None, None
    found = _RANGE.fullmatch(span)
    first, last = (int(end) if end else None for end in found.groups()) if found else (None, None)
    if found is None:
        raise ConfigError(f"--steps {span}: give the first and the last step as A:B, such as 100:200, 100: or :200")
    if first is not None and last is not None and first > last:
        raise ConfigError(f"--steps {span}: {first} comes after {last}; give the first step first, as {last}:{first}")
    return first, last


def _check(name: str, given: set[str]) -> None:
    """Say of a view that is not there which are, and of an option that does not change a view which do."""
    from neuraldbg.show.views import VIEWS  # noqa: PLC0415 (see command.py)

    takes = {member.name: {"step", "steps", *member.takes} for member in VIEWS} | {CRASH: {"layer"}}
    if name not in takes:
        raise ConfigError(f"there is no view {name!r}: choose one of {', '.join(sorted(takes))}")
    wrong = sorted(given - takes[name])
    if wrong:
        options = ", ".join(f"--{option}" for option in wrong)
        known = ", ".join(f"--{option}" for option in sorted(takes[name]))
        able = ", ".join(sorted(view for view in takes if given <= takes[view]))
        raise ConfigError(
            f"the view {name} does not take {options}: {f'it takes {known}' if known else f'choose --view, of {able}'}"
        )


def _target(out: str) -> Path:
    """Return where to draw; ConfigError if that cannot be: what takes seconds is not computed in vain."""
    from neuraldbg.show.static.canvas import target  # noqa: PLC0415 (see command.py)

    where = target(out)
    if not where.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {out!r}: there is no folder {where.parent}; create it first")
    return where


def _view(run: Run, diagnosis: Diagnosis, name: str, choice: Choice) -> View:
    from neuraldbg.show.views import view  # noqa: PLC0415 (see command.py)

    return view(name, run, diagnosis, choice)


def _draw(run: Run, diagnosis: Diagnosis, name: str, choice: Choice, where: Path, theme: str) -> None:
    if name == CRASH:
        from neuraldbg.show.static.crash import save_crash  # noqa: PLC0415 (see command.py)

        save_crash(run, diagnosis, where, theme=theme, layer=choice.layer)
    else:
        from neuraldbg.show.static.draw import save  # noqa: PLC0415 (see command.py)

        save(_view(run, diagnosis, name, choice), where, theme=theme)
