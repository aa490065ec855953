"""The time of each layer in a step, forward and backward, without the layers inside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.format.unit_amounts import amount, unit_of
from neuraldbg.show.forms import Bar, Bars, Scale
from neuraldbg.show.views.moments import guilty_of
from neuraldbg.show.views.timed import (
    UNTIMED,
    chosen,
    costliest,
    left_out,
    own_times,
    sampled_note,
    share,
    split_note,
    step_note,
    timing_of,
    work_note,
)
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord

TITLE = "Time of each layer in a step"
LABEL = "time in a step, without the layers inside"


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return the own time of each layer, in the order of their first call; of many, the costliest."""
    timing = timing_of(run)
    layers = chosen(run, timing.layers if timing is not None else (), choice)
    if timing is None or not layers:
        missing = UNTIMED if timing is None else "no layer was timed"
        told = (step_note(timing), sampled_note(timing)) if timing is not None else ()
        return Bars(
            name="profile", title=TITLE, layers=(), bars=(), scale=Scale(LABEL, "ms"), empty=missing, notes=told
        )
    forward, backward = own_times(layers)
    costs = np.nan_to_num(forward) + np.nan_to_num(backward)
    kept = costliest(costs, choice.rows)
    size, unit = unit_of(float(costs.max(initial=0.0)), "s")
    bars = [Bar("forward", forward[kept] / size)]
    if np.isfinite(backward).any():
        bars.append(Bar("backward", backward[kept] / size))
    names = tuple(layers[i].layer for i in kept)
    notes = (
        step_note(timing),
        work_note(timing),
        left_out(len(kept), costs, kept, timing),
        split_note(timing),
        sampled_note(timing),
    )
    return Bars(
        name="profile",
        title=TITLE,
        layers=names,
        bars=tuple(bars),
        scale=Scale(LABEL, unit),
        stacked=True,
        words=tuple(", ".join(filter(None, (amount(costs[i], "s"), share(timing, costs[i])))) for i in kept),
        guilty=guilty_of(diagnosis, set(names))[0],
        notes=tuple(note for note in notes if note),
    )


VIEW = Member("profile", "the time of each layer in a step", compute, takes=("layer",))
