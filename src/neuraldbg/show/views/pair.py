"""The views of a comparison: both losses, and the differences of the layers, in the forms that all faces draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Heat, Line, Lines, Mark, Scale
from neuraldbg.show.views.series import wide_lines

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord, Series
    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.show.forms import View

INPUT = "(input)"
"""Name of the row of the inputs, which belong to no layer."""
GROSS = 10.0
"""Largest relative difference that is shown; larger ones are clipped. Unrelated tensors differ by about 1."""


def pair_views(one: RunRecord, other: RunRecord, comparison: Comparison) -> tuple[View, ...]:
    """Return the views of a comparison, in the order in which they belong on a page."""
    return losses(one, other, comparison), drift(comparison)


def losses(one: RunRecord, other: RunRecord, comparison: Comparison) -> Lines:
    """Return the losses of both runs; one line for each optimizer that stepped."""
    lines = []
    for name, run in zip(comparison.names, (one, other), strict=True):
        streams = run.streams if len(run.streams) > 1 else (None,)
        for stream in streams:
            series = run.scalar("loss", stream)
            if len(series):
                lines.append(_line(name if stream is None else f"{name}, optimizer {stream}", series))
    return Lines(
        name="pair_loss",
        title=f"Loss: {comparison.names[0]} against {comparison.names[1]}",
        lines=tuple(lines),
        y=Scale("loss", log=wide_lines(lines)),
        marks=_marks(comparison),
        notes=("Older steps are means of several",) if any((r.history.width > 1).any() for r in (one, other)) else (),
        empty="" if lines else "no loss was seen in either run: NeuralDBG finds it where backward() is called",
    )


def _line(name: str, series: Series) -> Line:
    bad = ~np.isfinite(series.values)
    return Line(name, series.steps, np.where(bad, np.nan, series.values), nonfinite=series.steps[bad])


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
