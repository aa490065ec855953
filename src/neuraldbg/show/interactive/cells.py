"""Columns of steps as cells of a figure: their true borders, the gaps between them, colours on a log scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.show.axes.gaps import drawn_until
from neuraldbg.show.axes.ticks import axis_of
from neuraldbg.show.format.safe_text import number
from neuraldbg.show.interactive.frame import graph_objects
from neuraldbg.show.interactive.words import axis_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import plotly.graph_objects as go

    from neuraldbg.show.forms import Bools, Floats, Ints, Scale
    from neuraldbg.show.static.theme import Theme

EXACT = 2**24
"""Whole numbers below this are exact in single precision."""
LEAST, LARGEST = 1e-37, 1e38
"""Values between which single precision has all of its digits."""


@dataclass(frozen=True)
class Columns:
    """The columns of a view, with a column for every gap between them."""

    edges: Floats
    """Borders of the columns, shape (C + 1,); a step has a width of 1, with its number in the middle."""
    which: Ints
    """Column of the view, shape (C,); -1 for a gap."""
    first: Ints
    last: Ints
    """First and last step that were read, or of the gap, shape (C,) each."""

    def spread(self, values: Floats, gap: float = np.nan) -> Floats:
        """Return values of shape (R, columns of the view) as (R, C)."""
        padded = np.concatenate([values, np.full((len(values), 1), gap)], axis=1)
        found: Floats = padded[:, self.which]
        return found


def columns_of(steps: Ints, width: Ints, end: int | None = None) -> Columns:
    """Lay the columns of a view out with their gaps, up to ``end``."""
    until = drawn_until(steps, width, end)
    after = np.append(steps[1:], max(until[-1], end or 0)) if len(steps) else until
    gaps = np.flatnonzero(until < after)
    at = gaps + 1
    which = np.insert(np.arange(len(steps)), at, -1)
    first = np.insert(steps, at, (steps + width)[gaps])
    last = np.insert(steps + width - 1, at, np.ceil(after[gaps]).astype(np.int64) - 1)
    edges: Floats = np.append(np.insert(steps.astype(np.float64), at, until[gaps]), after[-1:]) - 0.5
    return Columns(edges, which, first, last)


def coloured(values: Floats, scale: Scale) -> tuple[Floats, dict[str, Any]]:
    """Return the numbers of the colours, powers of ten on a log scale, with the colour bar.

    Values of 0 or less have the lowest colour of a log scale.
    """
    title = {"text": axis_title(scale), "side": "right"}
    bar: dict[str, Any] = {"title": title, "thickness": 14, "outlinewidth": 0}
    finite = values[np.isfinite(values)]
    if not scale.log or not (finite > 0).any():
        return values, bar
    axis = axis_of([finite], log=True)
    ticks = axis.ticks(8)
    ticks = ticks if len(ticks) > 1 else [axis.low, axis.high]
    bar |= {"tickvals": [float(np.log10(tick)) for tick in ticks], "ticktext": [number(tick) for tick in ticks]}
    least = float(finite[finite > 0].min())
    return np.log10(np.where(values <= 0, least, values)), bar


def in_words(values: Floats, unit: str = "") -> Any:
    """Return each value as text of four digits, "not read" for NaN: an array of strings."""
    told = np.char.add(np.char.mod("%.4g", values), f" {unit}" if unit else "")
    return np.where(np.isnan(values), "not read", told)


def in_numbers(values: Floats, columns: Columns) -> npt.NDArray[np.floating[Any]]:
    """Return first step, last step and value of each cell, shape (R, C, 3): thousands of texts would be slow.

    In single precision, of which four digits are told, unless a step or a value is too large or too small for it.
    """
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    fits = columns.last.max(initial=0) < EXACT and ((sizes > LEAST) & (sizes < LARGEST)).all()
    kind = np.float32 if fits else np.float64
    steps = np.stack([columns.first, columns.last], axis=1).astype(kind)
    return np.concatenate([np.broadcast_to(steps, (*values.shape, 2)), values[:, :, None].astype(kind)], axis=2)


def places(layers: Sequence[str], columns: Columns) -> Any:
    """Return the data of a click on each cell: layer and first step."""
    found = np.empty((len(layers), len(columns.first), 2), object)
    found[:, :, 0] = np.array([*layers, ""], object)[:-1, None]  # never read as an array of fixed length
    found[:, :, 1] = columns.first.tolist()
    return found


def with_steps(told: Any, columns: Columns) -> Any:
    """Return the text of the pointer for each cell: its value in words and its steps."""
    ends = zip(columns.first.tolist(), columns.last.tolist(), strict=True)
    steps = [f"<br>step {a:,}" if a == b else f"<br>steps {a:,} to {b:,}" for a, b in ends]
    return np.char.add(told, np.array(steps, str))


def cell_map(columns: Columns, rows: Any, z: Floats, bar: dict[str, Any], theme: Theme, **more: Any) -> go.Heatmap:
    """Return the trace of a map; NaN cells show the background and still answer the pointer."""
    finite = z[np.isfinite(z)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return graph_objects().Heatmap(
        x=columns.edges,
        y=rows,
        z=z.astype(np.float32),
        zmin=low,
        zmax=high if high > low else low + 1.0,
        colorscale=theme.cells,
        colorbar=bar,
        **more,
    )


def flat_map(
    columns: Columns, rows: Any, where: Bools, colour: str, name: str, told: str = "", **more: Any
) -> go.Heatmap:
    """Return the trace of cells of one colour, which the legend names. The pointer says what is ``told``, or passes."""
    return graph_objects().Heatmap(
        x=columns.edges,
        y=rows,
        z=np.where(where, 1.0, np.nan).astype(np.float32),
        colorscale=[[0, colour], [1, colour]],
        zmin=0,
        zmax=1,
        showscale=False,
        showlegend=True,
        name=name,
        hoverongaps=False,
        **({"hovertemplate": told} if told else {"hoverinfo": "skip"}),
        **more,
    )
