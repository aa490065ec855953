"""The forms of what is shown: a heat map, lines over steps, bars over layers, a distribution over time, a graph.

A form is a plain value, without torch and without a drawing library. All numbers come from the run. What was sampled,
binned or left out stands in ``notes``; a view that has nothing to show says in ``empty`` what is missing and how to
record it.
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
"""The function that draws a view in a notebook, put here by ``show/notebook.py``: a view knows nobody who draws it."""


@dataclass(frozen=True)
class Scale:
    """An axis."""

    label: str
    """The field's word for it: "gradient norm", "step"."""
    unit: str = ""
    """"s", "ms", "B", "%"; empty where it is a pure number."""
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
    """The end of the stretch, None for a moment."""
    layer: str | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """What all forms have."""

    name: str
    """Of the view that made it, as in VIEWS."""
    title: str
    """One line, plain text: names of layers in it are data."""
    notes: tuple[str, ...] = ()
    """What was sampled, binned or left out, a sentence each, without the full stop."""
    empty: str = ""
    """Why there is nothing to show, and how to record it; "" where there is something."""
    marks: tuple[Mark, ...] = ()
    guilty: tuple[str, ...] = ()
    """Layers to be shown strongly: what the first hypothesis names, or where its effect was seen first."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return the view as a figure, or as text, for a notebook."""
        del include, exclude  # the notebook chooses among what it is given
        return IN_NOTEBOOKS[0](self) if IN_NOTEBOOKS else {"text/plain": repr(self)}


@dataclass(frozen=True, kw_only=True)
class Heat(View):
    """Layers (top to bottom in data-flow order) by steps."""

    layers: tuple[str, ...]
    """R paths."""
    steps: Ints
    """Shape (C,): the first step of each column, ascending; columns need not touch each other."""
    width: Ints
    """Shape (C,): steps that a column stands for."""
    values: Floats
    """Shape (R, C); NaN where nothing finite was read."""
    nonfinite: Bools
    """Shape (R, C): where NaN or infinite values were found, which no colour can show."""
    scale: Scale
    """Of the values."""
    reduce: str
    """How the steps of one column became one cell: ``max``, ``min`` or ``mean``. A one-step spike is kept by max."""


@dataclass(frozen=True)
class Line:
    """One series of Lines."""

    name: str
    """For the legend: a layer's path, or a scalar."""
    steps: Ints
    """Shape (T,): first step of each value."""
    values: Floats
    """Shape (T,); NaN where nothing finite was measured: the line breaks there."""
    low: Floats | None = None
    high: Floats | None = None
    """Shape (T,): the extremes where a value stands for several steps; None at full resolution."""
    layer: str | None = None
    nonfinite: Ints | None = None
    """Steps at which it was NaN or infinite, None or empty if never."""


@dataclass(frozen=True, kw_only=True)
class Lines(View):
    """Series over steps."""

    lines: tuple[Line, ...]
    y: Scale
    x: Scale = STEPS


@dataclass(frozen=True)
class Bar:
    """One group of Bars: a value for each layer."""

    name: str
    values: Floats
    """Shape (L,); NaN where it was not read."""


@dataclass(frozen=True, kw_only=True)
class Bars(View):
    """Values of each layer, in data-flow order."""

    layers: tuple[str, ...]
    bars: tuple[Bar, ...]
    scale: Scale
    limits: tuple[tuple[str, float], ...] = ()
    """Names and values of thresholds that a detector judges by."""
    step: int | None = None
    """The step that is shown, None where it is not of one step."""


@dataclass(frozen=True, kw_only=True)
class Spread(View):
    """How the values of one site are distributed, over time."""

    layer: str
    steps: Ints
    """Shape (C,): first step of each column."""
    width: Ints
    """Shape (C,)."""
    scale: Scale
    """Of the values of the tensor."""
    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    """Shape (C,) each: moments and extremes of the finite values that were read."""
    edges: Floats | None = None
    """Shape (B + 1,): borders of the bins of the histograms, None where the run has none."""
    shares: Floats | None = None
    """Shape (B, C): share of the values in each bin, NaN in columns without a histogram."""


@dataclass(frozen=True)
class Node:
    """A point of a Graph. ``x`` and ``y`` run from 0 to 1, left to right and top to bottom."""

    id: str
    label: str
    role: str
    """``cause``, ``event``, ``symptom``, or for a layer its health: ``healthy``, ``bad``, ``guilty``, ``unseen``."""
    x: float
    y: float
    layer: str | None = None
    step: int | None = None
    detail: str = ""
    """A sentence that a click or a pointer shows."""


@dataclass(frozen=True)
class Link:
    """An arrow of a Graph."""

    source: str
    target: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph(View):
    """Nodes and arrows: the causal chain, or the data flow of the model."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
