"""The flow of gradients through the depth of the model at one step, beside the first step that was read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Bars
from neuraldbg.show.views.bars import fewer, place_of, some
from neuraldbg.show.views.columns import each_row
from neuraldbg.show.views.last_reading import first_readings, last_readings, reading_notes
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.reading import KINDS, NORM, check, group, scale_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Floats
    from neuraldbg.show.views.last_reading import Readings


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return ``stat`` of each layer (default: the norm of its gradient) at the chosen step and at the first."""
    kind, stat = choice.kind or "param_grad", choice.stat or NORM
    check(kind, stat)
    columns = each_row(run.history, choice)
    sites = group(run, kind, choice.layer)
    at, notes = place_of(run, diagnosis, choice, columns)
    bars: list[tuple[str, Floats]] = []
    if at >= 0 and sites.layers:
        first, last = first_readings(sites, columns, at), last_readings(sites, columns, at)
        notes += (*reading_notes(last, at, KINDS[kind]), *_broken(last))
        bars = [(f"step {int(columns.steps[at]):,}", last.values(stat))]
        if (first.at != last.at).any():
            named = "its first step" if (first.at > 0).any() else f"step {int(columns.steps[0]):,}"
            bars.insert(0, (named, first.values(stat)))
    guilty, _ = guilty_of(diagnosis, set(sites.layers))
    layers, kept, left_out = fewer(sites.layers, bars, diagnosis, choice, guilty)
    scale = scale_of(stat)
    found = [bar.values[np.isfinite(bar.values)] for bar in kept]
    positive = any(len(values) and (values > 0).any() for values in found)
    when = f", step {int(columns.steps[at]):,}" if at >= 0 else ""
    return Bars(
        name="flow",
        title=f"{scale.label[:1].upper()}{scale.label[1:]} of each layer: {KINDS[kind]}{when}",
        layers=layers,
        bars=kept,
        scale=replace(scale, log=scale.log and positive),
        step=int(columns.steps[at]) if at >= 0 else None,
        missing="not read",
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty,
        notes=(*notes, *left_out),
        empty="" if any(map(len, found)) else f"nothing was read of the {KINDS[kind]} in these steps",
    )


def _broken(last: Readings) -> tuple[str, ...]:
    """Write which layers have no bar because their reading is not finite."""
    broken = [layer for layer, hit in zip(last.sites.layers, last.bad, strict=True) if hit]
    return (f"NaN or infinite, and so without a bar: {some(broken)}",) if broken else ()


VIEW = Member("flow", "the gradient of each layer at a step", compute, takes=("layer", "stat", "kind", "step"))
