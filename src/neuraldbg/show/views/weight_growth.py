"""The size of each layer's weights over steps, beside their size at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.format.safe_text import number
from neuraldbg.show.forms import Line, Lines, Scale
from neuraldbg.show.views.bars import some
from neuraldbg.show.views.columns import columns_of, end_of, unread_note
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.picking import pick, touched
from neuraldbg.show.views.reading import NORM, group
from neuraldbg.show.views.series import wide_lines
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Bools, Floats, Ints

NAMED = 3
"""Layers named in the note on those that changed most."""
NOTABLE = 0.01
"""Least change of the norm that is worth a sentence, as a share of it."""


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return the norm of each layer's parameters at each step over that at its first reading in the run."""
    sites = group(run, "param", choice.layer)
    columns = columns_of(run.history, choice, end_of(run, choice))
    first = _first(run, choice.layer)[:, None]
    values = sites.values(columns, NORM)
    ratios = np.divide(values, first, out=np.full(values.shape, np.nan), where=first > 0)
    zero = tuple(layer for layer, start in zip(sites.layers, first[:, 0], strict=True) if start == 0)
    nonfinite = sites.nonfinite(columns)
    guilty, _ = guilty_of(diagnosis, set(sites.layers))
    kept, left_out = pick(sites.layers, {*guilty, *touched(diagnosis)}, ratios, nonfinite, choice.rows)
    lines = tuple(
        _line(sites.layers[i], columns.steps, ratios[i], nonfinite[i]) for i in kept if np.isfinite(ratios[i]).any()
    )
    start = f"Not shown, since all of their weights start at 0: {some(zero)}" if zero else ""
    return Lines(
        name="weight_growth",
        title="Size of the weights beside the start",
        lines=lines,
        y=Scale("norm of the weights, times that at the start", log=wide_lines(lines)),
        end=end_of(run, choice),
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty,
        notes=tuple(note for note in (_largest(lines), start, left_out, unread_note(run)) if note),
        empty="" if lines else "no weights were read in these steps",
    )


def _first(run: RunRecord, layer: str | None) -> Floats:
    """Return the norm of each layer's parameters at its first reading, shape (layers,); NaN if there is none."""
    sites = group(run, "param", layer)
    columns = columns_of(run.history, Choice(columns=max(1, run.steps)))
    values = sites.values(columns, NORM)
    there = np.isfinite(values)
    if not values.size:
        return np.full(len(sites.layers), np.nan)
    first = values[np.arange(len(values)), there.argmax(axis=1)]
    return np.where(there.any(axis=1), first, np.nan)


def _line(layer: str, steps: Ints, values: Floats, bad: Bools) -> Line:
    there = np.isfinite(values) | bad  # with several optimizers a column has the parameters of one
    return Line(layer or "(model)", steps[there], values[there], layer=layer, nonfinite=steps[bad])


def _largest(lines: tuple[Line, ...]) -> str:
    """Write which layers changed most from the start to the last reading."""
    last = {line.name: float(line.values[np.isfinite(line.values)][-1]) for line in lines}
    moved = sorted(last.items(), key=lambda one: -abs(np.log(max(one[1], 1e-30))))
    told = [f"{name} {number(ratio)} times" for name, ratio in moved[:NAMED] if abs(ratio - 1) >= NOTABLE]
    return f"Changed most by the last reading: {', '.join(told)}" if told else ""


VIEW = Member("weight_growth", "the size of each layer's weights beside the start", compute, takes=("layer", "step"))
