"""The options about what watching costs and measures: a share of time and a window of steps, from text to values."""

from __future__ import annotations

from typing import Any

import click

DEFAULT = "default"


class Share(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """A share of time: ``1%``, ``0.01``, or ``full`` for no limit."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, float | None]:
        """Return the session's keyword: None for ``full``, nothing where it was not given."""
        text = str(value).strip()
        if text in {"full", DEFAULT}:
            return {"overhead": None} if text == "full" else {}
        try:
            share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            self.fail(f"{text!r} is not a share of time: give 1% or 0.01 (at most 1), or `full`", param, ctx)
        return {"overhead": share}


class Window(click.ParamType):  # type: ignore[type-arg]  # as above
    """Steps ``A:B``, both included."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Return the first step and the last."""
        first, _, last = str(value).partition(":")
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            self.fail(f"{value!r} are no steps: give the first and the last, counted from 0: 20:24", param, ctx)
        return int(first), int(last)


overhead_option = click.option(
    "--overhead",
    type=Share(),
    default=DEFAULT,
    help="The largest share of the training time that NeuralDBG may take, after up to 2 s at the start; `full` reads "
    "every layer at every step [default: 1%].",
)
probes_option = click.option(
    "--no-probes",
    is_flag=True,
    help="Make no experiments. Early in a run NeuralDBG runs a copy of the model a few times to test for causes, such "
    "as samples of a batch that influence each other.",
)
profile_option = click.option(
    "--profile/--no-profile",
    default=None,
    help="Measure time and memory of each layer in sampled steps throughout the run, and print them; --no-profile "
    "measures none [default: three steps are timed].",
)
trace_option = click.option(
    "--trace",
    type=Window(),
    metavar="A:B",
    help="Record the steps from A to B, both included, with torch.profiler, as rank0-trace-A-B.json in the run folder, "
    "for Perfetto. Switches --profile on.",
)
