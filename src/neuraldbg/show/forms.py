"""The forms of what is shown: a heat map, lines over steps, bars over layers, a distribution over time, a graph.

A form is a plain value, without torch and without a drawing library. All numbers come from the run. ``notes`` has what
was sampled, binned or left out; ``empty`` of a view without data has what is missing and how to record it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    Floats: TypeAlias = "npt.NDArray[np.float64]"
    Ints: TypeAlias = "npt.NDArray[np.int64]"
    Bools: TypeAlias = "npt.NDArray[np.bool_]"

IN_NOTEBOOKS: list[Callable[[View], dict[str, Any]]] = []
"""Functions that draw a view in a notebook, added by ``show/notebook.py``: a form imports no drawing code."""


@dataclass(frozen=True)
class Scale:
    """The label, unit and scaling of one axis."""

    label: str
    """Label in the field's own term: "gradient norm", "step"."""
    unit: str = ""
    """Unit: "s", "ms", "B", "%"; empty for a pure number."""
    log: bool = False


STEPS = Scale("optimizer step")


@dataclass(frozen=True)
class Mark:
    """A moment, or a stretch of time, that is worth a line through the picture."""

    step: int
    label: str
    role: str = "event"
    """``failure``, ``cause``, ``event`` or ``chosen``."""
    last: int | None = None
    """Last step of the stretch; None for a moment."""
    layer: str | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """The fields that all forms have: name, title, notes, marks."""

    name: str
    """Name of the view, as in VIEWS."""
    title: str
    """Title in one line of plain text; names of layers in it are data."""
    notes: tuple[str, ...] = ()
    """Sentences on everything that was sampled, binned or left out, without the full stop."""
    empty: str = ""
    """Reason for a view without data, and how to record it; "" if there is data."""
    marks: tuple[Mark, ...] = ()
    guilty: tuple[str, ...] = ()
    """Layers to highlight: those that the first hypothesis names, or that show its effect first."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return the view as a figure, or as text, for a notebook."""
        del include, exclude  # the notebook chooses among what it is given
        return IN_NOTEBOOKS[0](self) if IN_NOTEBOOKS else {"text/plain": repr(self)}


@dataclass(frozen=True, kw_only=True)
class Heat(View):
    """A heat map of layers (top to bottom in data-flow order) by steps."""

    layers: tuple[str, ...]
    """Paths of the R layers."""
    steps: Ints
    """First step of each column, ascending, shape (C,); there may be gaps between columns."""
    width: Ints
    """Number of steps of each column, shape (C,)."""
    values: Floats
    """Value of each cell, shape (R, C); NaN if no finite value was read."""
    nonfinite: Bools
    """True if NaN or infinite values were found, which no colour can show, shape (R, C)."""
    scale: Scale
    """Axis of the values."""
    reduce: str
    """Reduction of the steps of a column to a cell: ``max``, ``min`` or ``mean``. ``max`` keeps a one-step spike."""


@dataclass(frozen=True)
class Line:
    """One series of values over steps, part of Lines."""

    name: str
    """Name in the legend: a layer's path, or a scalar."""
    steps: Ints
    """First step of each value, shape (T,)."""
    values: Floats
    """Values, shape (T,); NaN if no finite value was measured: the line breaks there."""
    low: Floats | None = None
    high: Floats | None = None
    """Extremes of values of several steps, shape (T,) each; None at full resolution."""
    layer: str | None = None
    nonfinite: Ints | None = None
    """Steps with a NaN or infinite value; None or empty if there are none."""


@dataclass(frozen=True, kw_only=True)
class Lines(View):
    """Several series over steps that share both axes."""

    lines: tuple[Line, ...]
    y: Scale
    x: Scale = STEPS


@dataclass(frozen=True)
class Bar:
    """One group of bars: a value for each layer."""

    name: str
    values: Floats
    """Value of each layer, shape (L,); NaN if it was not read."""


@dataclass(frozen=True, kw_only=True)
class Bars(View):
    """Bars with the values of each layer, in data-flow order."""

    layers: tuple[str, ...]
    bars: tuple[Bar, ...]
    scale: Scale
    limits: tuple[tuple[str, float], ...] = ()
    """Names and values of the thresholds of a detector."""
    step: int | None = None
    """Step that is shown; None if the bars are not of one step."""


@dataclass(frozen=True, kw_only=True)
class Spread(View):
    """The distribution of the values of one site over time."""

    layer: str
    steps: Ints
    """First step of each column, shape (C,)."""
    width: Ints
    """Number of steps of each column, shape (C,)."""
    scale: Scale
    """Axis of the values of the tensor."""
    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    """Moments and extremes of the finite values that were read, shape (C,) each."""
    edges: Floats | None = None
    """Borders of the bins of the histograms, shape (B + 1,); None if the run has no histograms."""
    shares: Floats | None = None
    """Share of the values in each bin, shape (B, C); NaN in columns without a histogram."""


@dataclass(frozen=True)
class Node:
    """A node of a graph, with ``x`` and ``y`` from 0 to 1, left to right and top to bottom."""

    id: str
    label: str
    role: str
    """``cause``, ``event``, ``symptom``, or for a layer its health: ``healthy``, ``bad``, ``guilty``, ``unseen``."""
    x: float
    y: float
    layer: str | None = None
    step: int | None = None
    detail: str = ""
    """Sentence that a click or a pointer shows; empty if there is none."""


@dataclass(frozen=True)
class Link:
    """An arrow between two nodes of a graph."""

    source: str
    target: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph(View):
    """A graph of nodes and arrows: the causal chain, or the data flow of the model."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
