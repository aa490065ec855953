"""One step as a timeline: what ran when, for the step as a whole and for each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.step_spans import (
    BACKWARD,
    DATA,
    DATA_BY_HAND,
    EVALUATION,
    EVALUATION_BY_HAND,
    FORWARD,
    OPTIMIZER,
    OTHER,
    step_spans,
)
from neuraldbg.show.format.unit_amounts import amount, unit_of
from neuraldbg.show.forms import Scale, Span, Timeline
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
    timing_of,
)
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.nouns.facts.timing import LayerTiming, TimingFact

TITLE = "Timeline of a step"
LAID = "Laid out from the durations, in the order of the first calls: start times were not measured"
PARTS = (FORWARD, BACKWARD, DATA, DATA_BY_HAND, OPTIMIZER, EVALUATION, EVALUATION_BY_HAND, OTHER)
"""Parts in the order of their colours: forward and backward have those of the bars of time."""
SHAPES = 3
"""Shapes of inputs or outputs in the words of a row, at most."""


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Timeline:
    """Return the step, and each layer with the layers inside of it; of many layers, the costliest."""
    timing = timing_of(run)
    layers = chosen(run, timing.layers if timing is not None else (), choice)
    if timing is None:
        return Timeline(name="timeline", title=TITLE, rows=(), layers=(), parts=(), spans=(), scale=Scale("time", "ms"),
                        empty=UNTIMED)  # fmt: skip
    forward, backward = own_times(layers)
    costs = np.nan_to_num(forward) + np.nan_to_num(backward)
    kept = costliest(costs, max(1, choice.rows - 1))
    names = tuple(layers[i].layer for i in kept)
    row_of: dict[str | None, int] = {None: 0, **{name: row for row, name in enumerate(names, 1)}}
    laid = step_spans(timing, names)
    parts = tuple(part for part in PARTS if any(span.part == part for span in laid)) or (FORWARD,)
    size, unit = unit_of(max((span.end for span in laid), default=0.0), "s")
    spans = tuple(Span(row_of[one.layer], one.start / size, one.end / size, parts.index(one.part)) for one in laid)
    rest = left_out(len(kept), costs, kept, timing)
    notes = (timing.caution(), LAID, rest, split_note(timing), sampled_note(timing))
    return Timeline(
        name="timeline",
        title=TITLE,
        rows=("one step", *names),
        layers=(None, *names),
        parts=parts,
        spans=spans,
        scale=Scale("time since the step began", unit),
        words=(f"{amount(timing.step_s, 's')} a step", *(_told(layers[i], timing) for i in kept)),
        guilty=guilty_of(diagnosis, set(names))[0],
        notes=tuple(note for note in notes if note),
    )


def _told(layer: LayerTiming, timing: TimingFact) -> str:
    """Describe a layer in a line: shapes, calls, time, operations."""
    shapes = " → ".join(", ".join(given[:SHAPES]) for given in (layer.inputs, layer.outputs) if given)
    total = layer.own_forward_s + (layer.own_backward_s or 0.0)
    part = f", {told} of the step" if (told := share(timing, total)) else ""
    said = [f"{amount(total, 's')} of its own{part}", shapes]
    said.append(f"{layer.calls:,} calls" if layer.calls > 1 else "")
    said.append(amount(layer.flops, "FLOP") if layer.flops else "")
    return " · ".join(part for part in said if part)


VIEW = Member("timeline", "one step as a timeline of its layers", compute, takes=("layer",))
