"""The numbers of the crash picture: the window of steps, one curve per layer, the guilty layers.

Nothing here needs matplotlib, so the values can be tested and drawn by something else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns import Series
from neuraldbg.show.views.columns import columns_of
from neuraldbg.show.views.moments import failure_of, guilty_of
from neuraldbg.show.views.reading import NORM, group
from neuraldbg.show.views.view import Choice

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Bools

MOST, BEFORE, AFTER = 500, 100, 50
"""Numbers of steps: a failure within the first MOST is shown from the start, a later one with BEFORE steps; at least
AFTER follow it, if the run has them and still has a loss."""
TRIM = 0.25
"""Least share of the picture that is cut after the failure; less is not cut."""


@dataclass(frozen=True)
class Curve:
    """One curve of a layer over the steps of the window."""

    layer: str
    series: Series
    """Non-negative values; NaN if no finite value was measured."""
    nonfinite: int | None
    """First step of the window with a NaN or an infinity; None if there is none."""
    zero: int | None
    """Step from which the value is exactly zero, which a log axis cannot show; None if it is not zero at the end."""


@dataclass(frozen=True)
class Picture:
    """Everything that the crash picture draws, as plain values."""

    loss: Series
    gradients: tuple[Curve, ...]
    """L2 norm of the gradient of all parameters of each layer, in data-flow order."""
    activations: tuple[Curve, ...]
    """Root mean square of each layer's output, in data-flow order."""
    guilty: tuple[str, ...]
    """Layers that are highlighted."""
    charge: str
    """Reason: ``guilty`` if the first cause names them, ``hit first`` if they only show its first effect."""
    failure: int | None
    """Step of the failure; None if the run did not fail."""
    failure_label: str
    first: int
    last: int
    steps: int
    """Number of steps of the whole run."""
    read: int | None = None
    """Number of shown steps in which layers were read; None if in all: between them, lines join unread steps."""
    thinned: bool = False
    """True if values in the picture are of several steps each."""

    @cached_property
    def span(self) -> int:
        """Number of steps shown, at least one."""
        return max(1, self.last - self.first)

    @property
    def zoomed(self) -> bool:
        """Return True if only a part of the run is shown."""
        return self.span + 1 < self.steps


def picture(run: RunRecord, diagnosis: Diagnosis) -> Picture:
    """Return the crash picture of a run: its window, curves and guilty layers."""
    failure, label = failure_of(run, diagnosis)
    first, last = _window(run, failure, over=label.startswith("loss not finite"))
    curves = {kind: _curves(run, kind, first, last) for kind in ("param_grad", "activation")}
    guilty, charge = guilty_of(diagnosis, {c.layer for found in curves.values() for c in found})
    return Picture(
        loss=run.scalar("loss").between(first, last),
        gradients=curves["param_grad"],
        activations=_leaves(run, curves["activation"]),
        guilty=guilty,
        charge=charge,
        failure=failure,
        failure_label=label,
        first=first,
        last=last,
        steps=run.steps,
        read=_read(run, first, last),
        thinned=bool((run.history.width[_within(run, first, last)] > 1).any()),
    )


def _within(run: RunRecord, first: int, last: int) -> Bools:
    steps = run.history.steps
    return (steps >= first) & (steps <= last)


def _read(run: RunRecord, first: int, last: int) -> int | None:
    """Return the number of steps of the window in which layers were read; None for all or for none."""
    history = run.history
    shown = _within(run, first, last)
    ends = history.steps + history.width
    there = history.read & shown
    read = int((np.minimum(ends, last + 1) - history.steps)[there].sum())
    return read if 0 < read < last + 1 - first else None


def _curves(run: RunRecord, kind: str, first: int, last: int) -> tuple[Curve, ...]:
    """Return one curve a layer: of all its parameters together, or of its first call and first output leaf."""
    if not len(run.history):
        return ()
    sites, stat = group(run, kind), NORM
    if kind == "activation":
        first_rows = tuple(sites.rows[at] for at in sites.starts)
        sites, stat = replace(sites, rows=first_rows, starts=tuple(range(len(first_rows)))), "rms"
    columns = columns_of(run.history, Choice(first=first, last=last, columns=len(run.history)))
    values, bad = sites.values(columns, stat), sites.nonfinite(columns)
    inside = columns.steps >= first
    found = []
    for layer, curve, broken in zip(sites.layers, values, bad, strict=True):
        there = inside & (np.isfinite(curve) | broken)
        series = Series(columns.steps[there], curve[there], columns.width[there])
        hit = columns.steps[inside & broken]
        found.append(Curve(layer, series, int(hit[0]) if len(hit) else None, _zero_from(series)))
    return tuple(curve for curve in found if len(curve.series))


def _zero_from(series: Series) -> int | None:
    other = np.flatnonzero(series.values != 0)
    start = int(other[-1]) + 1 if len(other) else 0
    return int(series.steps[start]) if start < len(series) else None


def _leaves(run: RunRecord, curves: tuple[Curve, ...]) -> tuple[Curve, ...]:
    """Return the curves without containers, whose output is that of their last layer; all if there are only
    containers.
    """
    known = run.layout.by_path
    kept = tuple(c for c in curves if c.layer not in known or known[c.layer].leaf)
    return kept or curves


def _window(run: RunRecord, failure: int | None, *, over: bool) -> tuple[int, int]:
    """Return the window: the steps before the failure, and some after it; few if the loss stays non-finite."""
    steps = run.history.steps
    if not len(steps):
        return 0, 0
    first, last = int(steps[0]), int(steps[-1] + run.history.width[-1] - 1)
    if failure is None:
        return first, last
    if failure - first > MOST:
        first = failure - BEFORE
    end = failure + max(10 if over else AFTER, (failure - first) // 2)
    return first, last if last - end < TRIM * (last - first) else end
