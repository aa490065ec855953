"""The flow of gradients through the depth of the model at one step, beside the first step that was read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Bars
from neuraldbg.show.views.bars import fewer, place_of, some
from neuraldbg.show.views.columns import columns_of
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.reading import KINDS, NORM, check, group, scale_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Bools, Floats, Ints
    from neuraldbg.show.views.columns import Columns
    from neuraldbg.show.views.reading import Group


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return ``stat`` of each layer (default: the norm of its gradient) at the chosen step and at the first."""
    kind, stat = choice.kind or "param_grad", choice.stat or NORM
    check(kind, stat)
    columns = columns_of(run.history, replace(choice, columns=len(run.history)))
    sites = group(run, kind, choice.layer)
    at, notes = place_of(run, diagnosis, choice, columns)
    bars: list[tuple[str, Floats]] = []
    if at >= 0 and sites.layers:
        first, last = _ends(sites, columns, stat, at)
        notes += _notes(sites.layers, columns.steps, at, last)
        bars = [(f"step {int(columns.steps[at]):,}", last.values)]
        if at:
            named = "its first step" if (first.at > 0).any() else f"step {int(columns.steps[0]):,}"
            bars.insert(0, (named, first.values))
    guilty, _ = guilty_of(diagnosis, set(sites.layers))
    layers, kept, left_out = fewer(sites.layers, bars, diagnosis, choice, guilty)
    scale = scale_of(stat)
    found = [bar.values[np.isfinite(bar.values)] for bar in kept]
    positive = any(len(values) and (values > 0).any() for values in found)
    when = f", step {int(columns.steps[at]):,}" if at >= 0 else ""
    return Bars(
        name="flow",
        title=f"{scale.label[:1].upper()}{scale.label[1:]} through the depth: {KINDS[kind]}{when}",
        layers=layers,
        bars=kept,
        scale=replace(scale, log=scale.log and positive),
        step=int(columns.steps[at]) if at >= 0 else None,
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty,
        notes=(*notes, *left_out),
        empty="" if any(map(len, found)) else f"nothing was read of the {KINDS[kind]} in these steps",
    )


@dataclass
class _Readings:
    """One reading of each layer, with its column of time."""

    values: Floats
    """Value of each layer, shape (L,); NaN if no finite value was read."""
    bad: Bools
    """True if NaN or infinite values were found, shape (L,)."""
    at: Ints
    """Column of each layer, shape (L,); -1 if it was never read."""


def _ends(sites: Group, columns: Columns, stat: str, upto: int) -> tuple[_Readings, _Readings]:
    """Return the first and the last reading of each layer in the columns 0..upto."""
    forward = np.arange(upto + 1)
    return _nearest(sites, columns, stat, forward), _nearest(sites, columns, stat, forward[::-1])


def _nearest(sites: Group, columns: Columns, stat: str, order: Ints) -> _Readings:
    """Return the first reading of each layer in a given order of columns; it is nearly always in one of the first."""
    count = len(sites.layers)
    found = _Readings(np.full(count, np.nan), np.zeros(count, bool), np.full(count, -1))
    start, size = 0, 1
    while start < len(order) and (found.at < 0).any():
        places = np.sort(order[start : start + size])
        part = columns.only(*places.tolist())
        values, bad = sites.values(part, stat), sites.nonfinite(part)
        seen = np.isfinite(values) | bad
        backwards = order[0] > order[-1]
        which = len(places) - 1 - seen[:, ::-1].argmax(axis=1) if backwards else seen.argmax(axis=1)
        new = np.flatnonzero(seen.any(axis=1) & (found.at < 0))
        at = which[new]
        found.bad[new], found.at[new] = bad[new, at], places[at]
        found.values[new] = np.where(bad[new, at], np.nan, values[new, at])
        start, size = start + size, 8 * size
    return found


def _notes(layers: Sequence[str], steps: Ints, at: int, last: _Readings) -> tuple[str, ...]:
    """Write which layers are shown with an earlier reading, and which are not finite."""
    found = []
    earlier = [layer for layer, here in zip(layers, last.at == at, strict=True) if not here]
    if 0 < len(earlier) < len(layers):
        found.append(f"Of {some(earlier)} the last reading before is shown: no such gradient was read in this step")
    broken = [layer for layer, hit in zip(layers, last.bad, strict=True) if hit]
    if broken:
        found.append(f"NaN or infinite, and so without a bar, in step {int(steps[at]):,}: {some(broken)}")
    return tuple(found)


VIEW = Member("flow", "gradients through the depth at a step", compute, takes=("layer", "stat", "kind", "step"))
