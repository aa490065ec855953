"""The forms of what is shown: a heat map, lines over steps, bars over layers, a distribution over time, a
timeline of one step, a graph.

A form is a plain value, without torch and without a drawing library. All numbers come from the run. ``notes`` has what
was sampled, binned or left out; ``empty`` of a view without data has what is missing and how to record it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from neuraldbg.show.shown_run import NOTEBOOK

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats: TypeAlias = "npt.NDArray[np.float64]"
    Ints: TypeAlias = "npt.NDArray[np.int64]"
    Bools: TypeAlias = "npt.NDArray[np.bool_]"


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
        bundle: dict[str, Any] = importlib.import_module(NOTEBOOK).view_bundle(self)
        return bundle


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
    end: int | None = None
    """Step before which the picture ends; None if that is where the last column does."""


@dataclass(frozen=True)
class Line:
    """One series of values over steps, part of Lines."""

    name: str
    """Name in the legend: a layer's path, or a scalar."""
    steps: Ints
    """Step of each value, shape (T,): the middle one of several."""
    values: Floats
    """Values, shape (T,), means of several steps; NaN if no finite value was measured: the line breaks there."""
    low: Floats | None = None
    high: Floats | None = None
    """Extremes of values of several steps, shape (T,) each; None if every value is of one step."""
    layer: str | None = None
    nonfinite: Ints | None = None
    """Steps with a NaN or infinite value; None or empty if there are none."""


@dataclass(frozen=True, kw_only=True)
class Lines(View):
    """Several series over steps that share both axes."""

    lines: tuple[Line, ...]
    y: Scale
    x: Scale = STEPS
    end: int | None = None
    """Step before which the picture ends; None if that is where the last line does."""


@dataclass(frozen=True, kw_only=True)
class SmoothedLines(Lines):
    """Lines that are moving averages, with the measured values beside them."""

    measured: tuple[Line, ...]
    """The lines before they were smoothed, in the order of ``lines``."""


@dataclass(frozen=True)
class Bar:
    """One group of bars: a value for each layer."""

    name: str
    values: Floats
    """Value of each layer, shape (L,); NaN if it has none, infinite if NaN or infinite values were read."""


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
    missing: str = "no value"
    """Words for a layer without a value: it was not read, has no such tensor, or no such units."""
    stacked: bool = False
    """True if the bars of a layer are parts of one sum, and are drawn one behind the other; the axis is linear."""
    words: tuple[str, ...] = ()
    """Words at the end of each row, one for each layer, instead of the bare number; empty if there are none."""
    of_layers: bool = True
    """False if the rows are not layers, but other parts of a whole: a click on one selects nothing."""

    @property
    def sums(self) -> Floats:
        """Sum of the bars of each layer, shape (L,); NaN if it has no value."""
        values = np.array([bar.values for bar in self.bars], np.float64).reshape(len(self.bars), len(self.layers))
        return np.where(np.isnan(values).all(axis=0), np.nan, np.nansum(values, axis=0))


@dataclass(frozen=True)
class Span:
    """A stretch of time in one row of a timeline."""

    row: int
    start: float
    end: float
    part: int
    """Index of what it is in ``Timeline.parts``, which has a colour each."""


@dataclass(frozen=True, kw_only=True)
class Timeline(View):
    """The layers of one step over time: a row for the step and one for each layer, time to the right."""

    rows: tuple[str, ...]
    """Names of the R rows, top to bottom."""
    layers: tuple[str | None, ...]
    """Path of the layer of each row; None for a row that is not of a layer."""
    parts: tuple[str, ...]
    """Kinds of spans: "forward", "backward", "optimizer", ..."""
    spans: tuple[Span, ...]
    scale: Scale
    """Axis of the time."""
    words: tuple[str, ...] = ()
    """Description of each row, which a pointer shows; empty if there are none."""
    step: int | None = None
    """Step that a click selects; None if it selects none."""

    @property
    def end(self) -> float:
        """Time at which the last span ends."""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def lengths(self) -> Floats:
        """Time that the spans of each row take together, shape (R,)."""
        found = np.zeros(len(self.rows))
        for span in self.spans:
            found[span.row] += span.end - span.start
        return found


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
    end: int | None = None
    """Step before which the picture ends; None if that is where the last column does."""
    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    """Moments and extremes of the finite values that were read, shape (C,) each."""
    gaps: Ints | None = None
    """Columns after which nothing was read for long, so that curves break there; None if there are none."""
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
    """``cause``, ``event``, ``symptom``, or for a layer its health: ``healthy``, ``bad``, ``guilty``,
    ``untrained`` (no gradient, or none but zeros), ``unseen``."""
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
