"""The views of a comparison: both losses, and the differences of the layers, in the forms that all faces draw."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Heat, Lines, Mark, Scale
from neuraldbg.show.views.averaged import mean_note
from neuraldbg.show.views.series import loss_lines, wide_lines
from neuraldbg.show.views.view import Choice

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.show.forms import Line, View

INPUT = "(input)"
"""Name of the row of the inputs, which belong to no layer."""
GROSS = 10.0
"""Largest relative difference that is shown; larger ones are clipped. Unrelated tensors differ by about 1."""


def pair_views(one: RunRecord, other: RunRecord, comparison: Comparison) -> tuple[View, ...]:
    """Return the views of a comparison, in the order in which they belong on a page."""
    return losses(one, other, comparison), drift(comparison)


def losses(one: RunRecord, other: RunRecord, comparison: Comparison) -> Lines:
    """Return the losses of both runs; one line for each optimizer that stepped."""
    lines: list[Line] = []
    for name, run in zip(comparison.names, (one, other), strict=True):
        own = loss_lines(run, Choice())
        lines += [replace(line, name=name if len(own) == 1 else f"{name}, {line.name}") for line in own]
    return Lines(
        name="pair_loss",
        title=f"Loss: {comparison.names[0]} against {comparison.names[1]}",
        lines=tuple(lines),
        y=Scale("loss", log=wide_lines(lines)),
        marks=_marks(comparison),
        notes=tuple(note for note in (mean_note(tuple(lines)),) if note),
        empty="" if lines else "no loss was recorded in either run: it is read where backward() is called",
    )


def drift(comparison: Comparison) -> Heat:
    """Return the difference of every layer over the steps that both runs have."""
    found = comparison.drift
    nothing = np.zeros(0, np.int64)
    steps, width = (found.steps, found.width) if found is not None else (nothing, nothing)
    values = found.values.astype(np.float64) if found is not None else np.zeros((0, 0))
    empty = ""
    if not values.size:
        where = "layer of the one is found in the other" if comparison.compared.read else "step was read in both runs"
        empty = f"no {where}: there is nothing to compare layer by layer"
    elif not np.nan_to_num(values).any():
        empty = "no layer differs in anything that was read"
    notes = ["Exactly 0 is no difference in what was read, 1 is as large as the values themselves"]
    if len(width) and (width > 1).any():
        notes.append("Columns of several steps show the largest difference in them")
    notes += [f"{note[:1].upper()}{note[1:]}" for note in comparison.notes if "not compared" in note]
    return Heat(
        name="pair_drift",
        title="Largest relative difference in each layer: outputs, gradients and weights",
        layers=found.layers if found is not None else (),
        steps=steps,
        width=width,
        values=np.minimum(np.where(np.isinf(values), np.nan, values), GROSS),
        nonfinite=np.isinf(values),
        scale=Scale("relative difference", log=True),
        reduce="max",
        marks=_marks(comparison),
        guilty=_guilty(comparison),
        notes=() if empty else tuple(notes),
        empty=empty,
    )


def _marks(comparison: Comparison) -> tuple[Mark, ...]:
    """Return marks for the divergence, and for the first difference of any size if it is at another step."""
    marks = []
    first, early = comparison.first, comparison.earliest
    if first is not None:
        last = first.last if first.last > first.step else None
        marks.append(
            Mark(first.step, f"first divergence: {first.site}, step {first.step:,}", "failure", last, first.layer)
        )
    if early is not None and (first is None or early.step != first.step):
        marks.append(
            Mark(early.step, f"first difference: {early.site}, step {early.step:,}", "event", None, early.layer)
        )
    return tuple(marks)


def _guilty(comparison: Comparison) -> tuple[str, ...]:
    first = comparison.first
    if first is None or comparison.drift is None:
        return ()
    layer = INPUT if first.kind == "input" else first.layer
    return tuple(name for name in comparison.drift.layers if name == layer)
