"""``neuraldbg debug``: runs a training script unmodified, and stops it in the debugger where asked."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from neuraldbg import clocks  # noqa: F401 (before the program may replace them)
from neuraldbg.cli.alert_options import ALERTS, alert_options, keywords_of
from neuraldbg.cli.command import Command, Result, examples, titles, verbose
from neuraldbg.cli.cost_options import overhead_option
from neuraldbg.cli.output_options import output_options
from neuraldbg.cli.page_options import PAGE, page_options
from neuraldbg.cli.run import RUNS, Request, folder_for, launch
from neuraldbg.errors import UnknownName
from neuraldbg.ranks import own_rank
from neuraldbg.runner.script import resolve
from neuraldbg.runner.session_guard import torch_session

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.cli.output_options import Further
    from neuraldbg.cli.page_options import PageOptions
    from neuraldbg.control.asked_stops import Asked
    from neuraldbg.runner.session_guard import OnStep, Session


@titles(
    ("Stops", "layers each backward before_step events step when"),
    PAGE,
    ALERTS,
    ("Output and cost", "out views export note verbose overhead"),
)
@examples(
    ("debug train.py", "stop before the first layer"),
    ("debug --breakpoint fc1 --at 100 train.py", "stop after fc1 in step 100"),
    ("debug --break-on nan train.py", "stop where the first NaN comes from"),
    ("debug --when 'loss > 5 and layer.rms > 100' train.py", "stop when a condition holds"),
    ("debug --dashboard --breakpoint fc1 train.py", "stop in the browser"),
    ("debug --backward --breakpoint 'encoder.*' train.py", "stop at the gradients of these layers"),
    ("debug --each-layer --at 100 train.py", "stop before each layer of step 100"),
)
@click.command(
    "debug",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
    short_help="Run a training script and stop it at layers, steps or events.",
)
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of a module, as for `python -m`.")
@click.option("-o", "--out", metavar="DIR", help=f"The run folder [default: {RUNS}/<script>-<time>].")
@click.option(
    "--each-layer",
    "--step",
    "each",
    is_flag=True,
    help="Stop before each layer, as `next` does at the prompt. For one training step: --at.",
)
@click.option(
    "--breakpoint",
    "layers",
    multiple=True,
    metavar="LAYER",
    help="Stop after a layer has run; with --each-layer or --backward it names the layers at which these stop instead. "
    "LAYER is a path, a pattern such as `encoder.*`, or a type and its place in the order of execution, from 1 "
    "(`linear1`, `conv2`). May be given several times.",
)
@click.option(
    "--break-on",
    "events",
    multiple=True,
    metavar="EVENT",
    help="Stop when an event begins (`nan`, `loss_spike`, ...) or a cause becomes credible (`neuraldbg causes` lists "
    "them). `nan` stops exactly where the first value that is not finite is seen: before or after a layer, at a "
    "gradient, or in the loss. Others stop at the end of a step, at no layer, maybe some steps after the event began.",
)
@click.option(
    "--at", "step", type=click.IntRange(min=0), metavar="STEP", help="Stop in this step only, counted from 0."
)
@click.option(
    "--when",
    metavar="CONDITION",
    help="Stop only if this holds, such as 'loss > 5 and layer.rms > 100'. With --before-step it cannot be about "
    "`layer.`: no layer is there.",
)
@click.option(
    "--backward",
    is_flag=True,
    help="Stop when the gradient of a layer's output is there: of each layer, or of those of --breakpoint.",
)
@click.option(
    "--before-step",
    is_flag=True,
    help="Stop before the optimizer changes the weights; --breakpoint does not restrict this.",
)
@page_options
@alert_options
@output_options
@overhead_option
@verbose
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def COMMAND(  # noqa: N802 (the name is the contract)
    module: bool,
    out: str | None,
    each: bool,
    layers: tuple[str, ...],
    events: tuple[str, ...],
    step: int | None,
    when: str | None,
    backward: bool,
    before_step: bool,
    overhead: dict[str, float | None],
    page: PageOptions | None,
    verbose: bool,
    command: tuple[str, ...],
    asked: dict[str, Any],
    further: Further,
) -> Result:
    """Run SCRIPT as `python SCRIPT ARGS` would, and stop it in Python's debugger where the options say: without one,
    before the first layer.

    At a stop, `layer`, `inputs`, `output`, `grad`, `model`, `optimizer`, `step`, `loss` and `dbg` can be looked at, and
    any line that is no command is Python. `help` lists the commands: `next` goes to the next layer, `step` to the next
    step. The training goes on as if it had not stopped. In an IDE its own debugger stops; PYTHONBREAKPOINT names
    another one. Where nobody can answer, as without a terminal, the numbers are recorded and the training goes on. With
    --dashboard the stops are on its page while that is open.

    The training is recorded and diagnosed as by `neuraldbg run`, and the exit status is the script's; 1 after `quit`.
    """
    # Not with the module: they import numpy, which `--help` and a program without torch do without.
    from neuraldbg.control.asked_stops import Asked, is_nan  # noqa: PLC0415
    from neuraldbg.control.hook_triggers import patterns_of  # noqa: PLC0415

    stops = Asked(patterns_of(layers), step, when, each, backward, before_step)
    check_stops(events, stops)
    program, rank = resolve(command[0], tuple(command[1:]), module=module), own_rank()
    request = Request(
        program,
        folder_for(out, program.stem),
        verbose=verbose,
        page=None if rank.secondary else page,
        rank=rank,
        options={**overhead, **keywords_of(asked, rank), **further.keywords},
        further=further,
    )

    def debugged(
        *, out: Path | None, script: str, argv: tuple[str, ...], on_step: OnStep | None, **options: Any
    ) -> Session:
        session: Any = torch_session(out=out, script=script, argv=argv, on_step=on_step, **options)
        options_of = {field.name: getattr(stops, field.name) for field in fields(stops)}
        if not events:
            session.add_breakpoint(**options_of)
        for name in events:
            session.add_breakpoint(name, **(options_of if is_nan(name) else {}))
        return session  # type: ignore[no-any-return]

    return lambda: launch(request, debugged)


def check_stops(events: tuple[str, ...], asked: Asked) -> None:
    """Refuse what cannot be asked for, before the program runs. Raises ConfigError and UsageError."""
    from neuraldbg.control.asked_stops import is_nan  # noqa: PLC0415 (see COMMAND)
    from neuraldbg.control.hook_triggers import HookAction  # noqa: PLC0415
    from neuraldbg.explain import meaning  # noqa: PLC0415 (only this command looks names up before the program runs)
    from neuraldbg.nouns import Layout  # noqa: PLC0415

    asked.hooks(HookAction.PAUSE)
    for name in events:
        if is_nan(name):
            asked.nan_hooks()
            continue
        try:
            meaning(name, Layout(()))
        except UnknownName as error:
            message = f"--break-on: {error} A layer is given by --breakpoint."
            raise click.UsageError(message) from None
        if asked.any:
            message = (
                f"--break-on {name} stops at the event, wherever it is: leave out --at, --when, --breakpoint, "
                "--each-layer, --backward and --before-step, or use --break-on nan, which takes the first three"
            )
            raise click.UsageError(message)
