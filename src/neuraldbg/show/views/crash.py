"""The numbers of the crash picture: the window of steps, one curve per layer, the guilty layers.

Nothing here needs matplotlib, so the values can be tested and drawn by something else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.layer_alias import resolve
from neuraldbg.nouns import Series
from neuraldbg.show.views.averaged import RAW, averaged
from neuraldbg.show.views.columns import each_row
from neuraldbg.show.views.moments import crash_of, failure_of, guilty_of
from neuraldbg.show.views.reading import NORM, group
from neuraldbg.show.views.series import loss_lines
from neuraldbg.show.views.untrained import missing_note
from neuraldbg.show.views.view import Choice

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Bools, Line

MOST, BEFORE, AFTER = 500, 100, 50
"""Numbers of steps: a crash within the first MOST is shown from the start, a later one with BEFORE steps; at least
AFTER follow it, if the run has them and still has a loss."""
TRIM = 0.25
"""Least share of the picture that is cut after the crash; less is not cut."""


@dataclass(frozen=True)
class Curve:
    """One curve of a layer over the steps of the window."""

    layer: str
    series: Series
    """Non-negative values, means in thinned rows; NaN if no finite value was measured."""
    low: Series
    high: Series
    """Least and largest value of each row."""
    nonfinite: int | None
    """First step of the window with a NaN or an infinity; None if there is none."""
    zero: int | None
    """Step from which the value is exactly zero, which a log axis cannot show; None if it is not zero at the end."""


@dataclass(frozen=True)
class Picture:
    """Everything that the crash picture draws, as plain values."""

    losses: tuple[Line, ...]
    """Loss of each optimizer; empty if none was seen."""
    gradients: tuple[Curve, ...]
    """L2 norm of the gradient of all parameters of each layer, in data-flow order."""
    activations: tuple[Curve, ...]
    """Root mean square of each layer's output, in data-flow order; of a crash dump, which has no other, the L2 norm."""
    guilty: tuple[str, ...]
    """Layers that are highlighted."""
    charge: str
    """Reason: ``guilty`` if the first cause names them, ``hit first`` if they only show its first effect."""
    failure: int | None
    """Step of the failure; None if the run did not fail, or no step is known for sure."""
    failure_label: str
    first: int
    last: int
    steps: int
    """Number of steps of the whole run."""
    read: int | None = None
    """Number of shown steps in which layers were read; None if in all: between them, lines join unread steps."""
    crashed: bool = False
    """True if the run could not go on after the failure."""
    layer: str | None = None
    """Layer that was chosen; None if all are shown."""
    missing: str = ""
    """Sentence about layers without a curve because no gradient of theirs was read; "" if there are none."""

    activation: str = "rms"
    """Statistic of the activations, for their axis."""
    raw: int = RAW
    """Largest number of values of a line that are drawn one by one."""

    def lines(self, curves: tuple[Curve, ...]) -> tuple[Line, ...]:
        """Return curves as lines to draw, by the mean and the range of stretches where they are long or thinned."""
        found = []
        for one in curves:
            steps = one.series.steps
            bad = np.zeros(len(steps), bool) if one.nonfinite is None else steps >= one.nonfinite
            ends = (one.series, one.low, one.high)
            found.append(averaged(one.layer, ends, bad=bad, layer=one.layer, raw=self.raw))
        return tuple(found)

    @cached_property
    def span(self) -> int:
        """Number of steps shown, at least one."""
        return max(1, self.last - self.first)

    @property
    def zoomed(self) -> bool:
        """Return True if only a part of the run is shown."""
        return self.span + 1 < self.steps


def picture(run: RunRecord, diagnosis: Diagnosis, layer: str | None = None) -> Picture:
    """Return the crash picture of a run, or of one of its layers with those inside it: window, curves, guilty layers.

    An unknown layer raises UnknownLayer.
    """
    failure, label = failure_of(run, diagnosis)
    crash, _ = crash_of(run, diagnosis)
    first, last = _window(run, crash, over=label.startswith("loss not finite"))
    curves = {kind: _curves(run, kind, first, last, layer) for kind in ("param_grad", "activation")}
    guilty, charge = guilty_of(diagnosis, {c.layer for found in curves.values() for c in found})
    choice = Choice(first=first, last=last)
    raw = MOST + MOST // 2 + AFTER if crash is not None else RAW
    return Picture(
        losses=loss_lines(run, choice, raw),
        gradients=curves["param_grad"],
        activations=_leaves(run, curves["activation"]),
        guilty=guilty,
        charge=charge,
        failure=failure,
        failure_label=label,
        first=first,
        last=last,
        steps=run.steps if not run.info.coverage.get("dump") else last + 1 - first,
        read=_read(run, first, last),
        crashed=crash is not None,
        layer=None if layer is None else resolve(run.layout, layer),
        activation="L2 norm" if run.info.coverage.get("dump") else "rms",
        raw=raw,
        missing=missing_note(run),
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


def _curves(run: RunRecord, kind: str, first: int, last: int, layer: str | None) -> tuple[Curve, ...]:
    """Return one curve a layer: of all its parameters together, or of its first call and first output leaf."""
    if not len(run.history):
        return ()
    sites, stat = group(run, kind, layer), NORM
    if kind == "activation":
        first_rows = tuple(sites.rows[at] for at in sites.starts)
        sites, stat = replace(sites, rows=first_rows, starts=tuple(range(len(first_rows)))), "rms"
    columns = each_row(run.history, Choice(first=first, last=last))
    ends, bad = sites.ends(columns, stat), sites.nonfinite(columns)
    inside = columns.steps >= first
    found = []
    for layer_path, curve, least, most, broken in zip(sites.layers, *ends, bad, strict=True):
        there = inside & (np.isfinite(curve) | broken)
        mean, low, high = (
            Series(columns.steps[there], one[there], columns.width[there]) for one in (curve, least, most)
        )
        hit = columns.steps[inside & broken]
        found.append(Curve(layer_path, mean, low, high, int(hit[0]) if len(hit) else None, _zero_from(high)))
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


def _window(run: RunRecord, crash: int | None, *, over: bool) -> tuple[int, int]:
    """Return the window: the whole run, or the steps before a crash and some after it; few if the loss is not finite
    from then on.
    """
    steps = run.history.steps
    if not len(steps):
        return 0, 0
    first, last = int(steps[0]), int(steps[-1] + run.history.width[-1] - 1)
    if crash is None:
        return first, last
    if crash - first > MOST:
        first = crash - BEFORE
    end = crash + max(10 if over else AFTER, (crash - first) // 2)
    return first, last if last - end < TRIM * (last - first) else end
