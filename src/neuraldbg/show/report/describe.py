"""A view in words: the content of a picture for those who do not see it, and how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.format.safe_text import counted, number
from neuraldbg.show.forms import Bars, Graph, Heat, Lines, Spread, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neuraldbg.show.forms import Bar, Ints, Line, View

MOST = 6
"""Lines, bars or nodes that are said one by one."""
LAYERS = "Layers are in the order of data flow, the input side first."
READING: dict[type[View], str] = {
    Heat: f"Rows are layers, columns are steps of the training, colours are values. {LAYERS}",
    Lines: "Time runs to the right, in optimizer steps: one step is one update of the weights.",
    Bars: f"A bar is the value of one layer. {LAYERS}",
    Spread: "The distribution of the values of one tensor over the steps of the training.",
    Timeline: "Time runs to the right within one step. The first row is the step, the others are layers in the order "
    "of their first call.",
    Graph: "Arrows point in the direction of time or of the data flow.",
}

WORD: dict[type[View], str] = {
    Heat: "over time",
    Lines: "over time, as lines",
    Bars: "as bars",
    Spread: "as distributions",
    Timeline: "as a timeline",
    Graph: "as a graph",
}
"""Tells pictures of one title apart."""


def reading(view: View) -> str:
    """Return how a picture of this form is read."""
    if isinstance(view, Bars) and not view.of_layers:
        return "A bar is one part of the whole."
    return READING[type(view)]


def described(view: View) -> str:
    """Return what the picture shows, in sentences with its numbers. A layer's name that begins one stays as it is."""
    marks = [f"Marked: {mark.label}" for mark in view.marks if mark.role == "failure"]
    return " ".join(f"{said}." for said in (*_body(view), *marks))


def _body(view: View) -> list[str]:
    if isinstance(view, Heat):
        return _heat(view)
    if isinstance(view, Lines):
        return _cut([_line(line, view.y.unit) for line in view.lines], "line")
    if isinstance(view, Bars):
        return [said for bar in view.bars if (said := _extremes(bar, view.layers, view.scale.unit))]
    if isinstance(view, Spread):
        return _spread(view)
    if isinstance(view, Timeline):
        return _timeline(view)
    if isinstance(view, Graph):
        names = {node.id: node.label for node in view.nodes}
        begun = {node.id: node.label if node.layer else _begun(node.label) for node in view.nodes}
        down = {node.id: (node.y, node.x) for node in view.nodes}
        ordered = sorted(view.links, key=lambda link: down.get(link.source, (0.0, 0.0)))
        links = [f"{begun.get(link.source, '?')} leads to {names.get(link.target, '?')}" for link in ordered]
        return _cut(links or list(begun.values()), "arrow")
    return []


def _heat(view: Heat) -> list[str]:
    shape = f"{counted(len(view.layers), 'layer')} over {_span(view.steps, view.width, view.end)}"
    finite = np.isfinite(view.values)
    said = [shape]
    if finite.any():
        row, column = np.unravel_index(np.where(finite, view.values, -np.inf).argmax(), view.values.shape)
        where = f"in {view.layers[row] or 'the model'} at step {int(view.steps[column]):,}"
        said.append(f"The largest value, {_amount(view.values[row, column], view.scale.unit)}, is {where}")
    bad = view.nonfinite.any(axis=1)
    if bad.any():
        first = int(view.steps[view.nonfinite.any(axis=0)][0])
        said.append(f"NaN or infinite values are in {counted(int(bad.sum()), 'layer')}, the first at step {first:,}")
    return said


def _spread(view: Spread) -> list[str]:
    low, high = view.low[np.isfinite(view.low)], view.high[np.isfinite(view.high)]
    if not len(low) or not len(high):
        return [f"{view.layer} over {_span(view.steps, view.width, view.end)}"]
    reach = f"from {number(float(low.min()))} to {number(float(high.max()))}"
    return [f"{view.layer} over {_span(view.steps, view.width, view.end)}: values reach {reach}"]


def _timeline(view: Timeline) -> list[str]:
    """Say how long it all takes, and the layer whose spans are the longest."""
    lengths = np.where([layer is None for layer in view.layers], -1.0, view.lengths)
    said = [f"{counted(len(view.rows), 'row')} over {_amount(view.end, view.scale.unit)}"]
    if (lengths >= 0).any():
        top = int(lengths.argmax())
        said.append(f"The longest time, {_amount(lengths[top], view.scale.unit)}, is that of {view.rows[top]}")
    return said


def _line(line: Line, unit: str) -> str:
    values = line.values
    finite = np.flatnonzero(np.isfinite(values))
    if not len(finite):
        return f"{line.name}: no finite value"
    first, last, top = finite[0], finite[-1], finite[values[finite].argmax()]
    name = line.name if line.layer else _begun(line.name)
    said = f"{name}: {_amount(values[first], unit)} at step {int(line.steps[first]):,}"
    if last > first:
        said += f", {_amount(values[last], unit)} at step {int(line.steps[last]):,}"
    if top not in {first, last}:
        said += f", at most {_amount(values[top], unit)} at step {int(line.steps[top]):,}"
    return said


def _extremes(bar: Bar, layers: Sequence[str], unit: str) -> str:
    values = bar.values
    finite = np.flatnonzero(np.isfinite(values))
    if not len(finite):
        return ""
    low, high = finite[values[finite].argmin()], finite[values[finite].argmax()]
    said = f"{_begun(bar.name)}: largest {_amount(values[high], unit)} in {layers[high] or 'the model'}"
    return said if low == high else f"{said}, smallest {_amount(values[low], unit)} in {layers[low] or 'the model'}"


def _begun(words: str) -> str:
    """Capitalise NeuralDBG's own words at the beginning of a sentence."""
    return words[:1].upper() + words[1:]


def _amount(value: float, unit: str) -> str:
    return f"{number(float(value))} {unit}".rstrip()


def _span(steps: Ints, width: Ints, end: int | None) -> str:
    """Write the first and the last step of a picture that ends before ``end``."""
    if not len(steps):
        return "no steps"
    return f"steps {int(steps[0]):,} to {max(int(steps[-1] + width[-1]), end or 0) - 1:,}"


def _cut(said: Iterable[str], what: str) -> list[str]:
    parts = list(said)
    return parts if len(parts) <= MOST else [*parts[:MOST], f"and {len(parts) - MOST:,} more {what}s"]
