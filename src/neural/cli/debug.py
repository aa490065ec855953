"""`neural debug FILE`: trains a network under NeuralDBG, with the dashboard.

What runs is a command line of `neuraldbg`, which is printed: these options are that command's, by the names of the
language.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neural.cli.run import announce, is_script
from neural.cli.training_options import training_options

if TYPE_CHECKING:
    from neural.preparing import Wanted
    from neuraldbg.nouns import Diagnosis


@dataclass(frozen=True)
class Part:
    """A part of the diagnosis that has a flag: the tab that shows it, and the views that are printed at the end."""

    tab: str
    views: tuple[str, ...]


PARTS = {
    "gradients": Part("gradients", ("flow",)),
    "dead_neurons": Part("activations", ("units",)),
    "anomalies": Part("anomalies", ("stability", "weight_growth")),
}


def _with_kind(args: list[str]) -> list[str]:
    """Return the command line with the kind of tunnel that an option without one means: the next word may be FILE."""
    if "--tunnel" not in args:
        return args
    from neuraldbg.cli.tunnel_options import KINDS  # noqa: PLC0415 (--help needs none of it)

    at = args.index("--tunnel")
    if "--" in args[:at]:
        return args
    word = args[at + 1] if at + 1 < len(args) else ""
    if word.lower() in KINDS or (word.isalnum() and not Path(word).exists()):  # FILE has an extension: a kind misspelt
        return args
    return [*args[:at], f"--tunnel={KINDS[0]}", *args[at + 1 :]]


def _known_kind(ctx: click.Context, _: click.Parameter, kind: str | None) -> str | None:
    """Return a kind of tunnel. Raises UsageError for another one: `neuraldbg` would take it for a script."""
    from neuraldbg.cli.tunnel_options import KINDS  # noqa: PLC0415 (--help needs none of it)

    if kind is not None and kind.lower() not in KINDS:
        raise click.UsageError(f"unknown tunnel {kind!r}: {', '.join(KINDS[:-1])} or {KINDS[-1]}", ctx)
    return kind


class _Command(click.Command):
    """A command that says of an unknown option where those of a script go."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, _with_kind(args))
        except click.NoSuchOption as error:
            message = f"{error.format_message()} Options of a Python script come after --."
            raise click.UsageError(message, ctx) from None


@click.command(
    "debug",
    cls=_Command,
    short_help="Train a network under the debugger, with the dashboard.",
)
@click.argument("file", type=click.Path(), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option("--gradients", is_flag=True, help="Open the page at the gradients, and print their flow at the end.")
@click.option("--dead-neurons", is_flag=True, help="The same for activations: dead and saturated units of each layer.")
@click.option("--anomalies", is_flag=True, help="The same for anomalies: instability, growth of weights.")
@click.option("--vanishing-threshold", metavar="X", help="The RMS below which a gradient has vanished. Default: 1e-7.")
@click.option("--activation-threshold", metavar="X", help="The share of units that may be dead. Default: 0.5.")
@click.option("--overhead", metavar="SHARE", help="The share of time that watching may take, or full. Default: 1%.")
@click.option("--alert-on-nan", is_flag=True, help="Alert at the first value that is NaN or infinite.")
@click.option("--halt", is_flag=True, help="Stop the training before a bad step is applied.")
@click.option("--step", is_flag=True, help="Stop before each layer.")
@click.option(
    "--breakpoint", "breakpoints", multiple=True, metavar="LAYER", help="Stop after a layer, such as Dense_1."
)
@click.option("--break-on", "events", multiple=True, metavar="EVENT", help="Stop at an event, such as nan.")
@click.option("--at", type=click.IntRange(min=0), metavar="STEP", help="Stop in this step only, counted from 0.")
@click.option("--dashboard/--no-dashboard", default=True, help="Show the run in the browser. Default: it does.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The port of the dashboard. Default: 8050, or the next free."
)
@click.option(
    "--tunnel",
    metavar="[KIND]",
    callback=_known_kind,
    help="Reach the page from another machine: ssh, ngrok or cloudflared.",
)
@click.option("--tunnel-ttl", metavar="TIME", help="Close a tunnel of ngrok or cloudflared after 30m, 2h, ...")
@click.option("--theme", type=click.Choice(("auto", "dark", "light")), help="The colours of the page.")
@click.option("--export", metavar="FILE", help="Also write the whole run as JSON.")
@click.option("-o", "--out", metavar="DIR", help="The run folder. Default: neuraldbg-runs/NAME-TIME.")
@click.option("--compare", nargs=2, metavar="A B", help="Train nothing, and compare two runs or exports.")
@partial(training_options, debugged=True)
def COMMAND(  # noqa: N802 (the contract)
    file: str | None,
    arguments: tuple[str, ...],
    compare: tuple[str, str] | None,
    wanted: Wanted,
    **options: object,
) -> int:
    """Train the network of FILE, or a Python script, under NeuralDBG: the page shows the training while it goes on, and
    the diagnosis comes at the end. For a script, what follows -- is its own.

    The exit status is the training's; 1 if the file has problems; 2 if there is no such file, or no data that fit.
    """
    from neuraldbg.cli import main  # noqa: PLC0415 (--help needs none of it)

    if compare:
        if file is not None:
            announce((f"{file} is not trained: two runs are compared",), "")
        return main(["compare", *compare])
    if file is None:
        raise click.UsageError("name a .neural file or a Python script, or two runs with --compare")
    given, words = _options(options), None
    script = is_script(file, arguments, wanted)
    stops = bool(options["step"] or options["breakpoints"] or options["events"] or options["at"] is not None)
    if stops:
        from neural.cli.stop_names import check_names  # noqa: PLC0415

        check_names(options, None if script else file, wanted.network)
    if script:
        line = (file, *arguments)
    else:
        from neural.file_lines import file_lines  # noqa: PLC0415
        from neural.preparing import prepare  # noqa: PLC0415

        prepared = prepare(file, wanted)
        given += prepared.watched
        line = (str(prepared.script), *prepared.arguments)
        announce(prepared.said, "")

        def words(diagnosis: Diagnosis) -> str:
            return "\n".join(file_lines(diagnosis.to_dict(), prepared.plan, prepared.source))

    whole = ["debug" if stops else "run", *given, *line]
    announce((), shlex.join(["neuraldbg", *whole]))
    return main(whole, words)


def _options(options: dict[str, object]) -> list[str]:
    """Return the options of `neuraldbg` that these stand for."""
    given: list[str] = []
    for name, option in _PASSED.items():
        value = options[name]
        values = value if isinstance(value, tuple) else (value,)
        for one in values:
            if one is True:
                given.append(option)
            elif one is not None and one is not False:  # a port may be 0
                given += [option, str(one)]
    parts = [part for name, part in PARTS.items() if options[name]]
    if not options["dashboard"]:
        for name in ("port", "theme", "tunnel", "tunnel_ttl"):
            if options[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} is the dashboard's: leave out --no-dashboard")
    elif parts:
        given += ["--tab", parts[0].tab]
    return given + [word for part in parts for view in part.views for word in ("--show", view)]


_PASSED = {
    "step": "--each-layer",
    "breakpoints": "--breakpoint",
    "events": "--break-on",
    "at": "--at",
    "dashboard": "--dashboard",
    "port": "--port",
    "theme": "--theme",
    "tunnel": "--tunnel",
    "tunnel_ttl": "--tunnel-ttl",
    "alert_on_nan": "--alert-on-nan",
    "halt": "--halt",
    "overhead": "--overhead",
    "vanishing_threshold": "--vanishing-threshold",
    "activation_threshold": "--activation-threshold",
    "export": "--export",
    "out": "--out",
}
"""Parameters, with the options of `neuraldbg` that have their values."""
