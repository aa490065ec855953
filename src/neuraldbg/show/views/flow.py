"""The flow of gradients through the depth of the model at one step, beside the first step that was read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.views.bars import fewer, place_of, some
from neuraldbg.show.views.columns import columns_of
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.reading import KINDS, NORM, check, group, scale_of
from neuraldbg.show.views.view import Bars, Choice, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.views.view import Bools, Floats, Ints


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return ``stat`` of each layer (default: the norm of its gradient) at the chosen step and at the first."""
    kind, stat = choice.kind or "param_grad", choice.stat or NORM
    check(kind, stat)
    columns = columns_of(run.history, replace(choice, columns=len(run.history)))
    sites = group(run, kind, choice.layer)
    at, notes = place_of(run, diagnosis, choice, columns)
    bars: list[tuple[str, Floats]] = []
    if at >= 0 and sites.layers:
        upto = columns.only(*range(at + 1))
        values, bad = sites.values(upto, stat), sites.nonfinite(upto)
        seen = np.isfinite(values) | bad
        last = at - seen[:, ::-1].argmax(axis=1)
        notes += _notes(sites.layers, columns.steps, seen, bad, last)
        values[bad] = np.nan
        every = np.arange(len(values))
        first = seen.argmax(axis=1)
        bars = [(f"step {int(columns.steps[at]):,}", values[every, last])]
        if at:
            named = "its first step" if (first > 0).any() else f"step {int(columns.steps[0]):,}"
            bars.insert(0, (named, values[every, first]))
    guilty, _ = guilty_of(diagnosis, set(sites.layers))
    layers, kept, left_out = fewer(sites.layers, bars, diagnosis, choice, guilty)
    scale = scale_of(stat)
    found = [bar.values[np.isfinite(bar.values)] for bar in kept]
    positive = any(len(values) and (values > 0).any() for values in found)
    when = f", step {int(columns.steps[at]):,}" if at >= 0 else ""
    return Bars(
        name="flow",
        title=f"{scale.label[:1].upper()}{scale.label[1:]} through the depth: {KINDS[kind]}{when}",
        layers=layers,
        bars=kept,
        scale=replace(scale, log=scale.log and positive),
        step=int(columns.steps[at]) if at >= 0 else None,
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty,
        notes=(*notes, *left_out),
        empty="" if any(map(len, found)) else f"nothing was read of the {KINDS[kind]} in these steps",
    )


def _notes(layers: Sequence[str], steps: Ints, seen: Bools, bad: Bools, last: Ints) -> tuple[str, ...]:
    """Say which layers are shown as they were read before, and which are not finite."""
    found = []
    earlier = [layer for layer, here in zip(layers, seen[:, -1], strict=True) if not here]
    if earlier and seen[:, -1].any():
        found.append(f"Of {some(earlier)} the last reading before is shown: no such gradient was read in this step")
    broken = [layer for layer, hit in zip(layers, bad[np.arange(len(layers)), last], strict=True) if hit]
    if broken:
        found.append(
            f"NaN or infinite, and so without a bar, in step {int(steps[seen.shape[1] - 1]):,}: {some(broken)}"
        )
    return tuple(found)


VIEW = Member("flow", "gradients through the depth at a step", compute, takes=("layer", "stat", "kind", "step"))
