"""Dead and saturated units of each layer at one step, in per cent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Bars, Scale
from neuraldbg.show.views.bars import fewer, place_of, some
from neuraldbg.show.views.columns import columns_of
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.reading import group
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Bools, Floats
    from neuraldbg.show.views.columns import Columns
    from neuraldbg.show.views.reading import Group


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return two bars a layer; without a chosen step those of the last step in which a layer was finite, since units
    die late.
    """
    columns = columns_of(run.history, replace(choice, columns=len(run.history)))
    sites = group(run, "activation", choice.layer)
    last = replace(choice, step=run.steps) if choice.step is None else choice
    at, notes = place_of(run, diagnosis, last, columns)
    if choice.step is None:
        at, notes = _finite(run, sites, columns, at)
    bars: list[tuple[str, Floats]] = []
    layers: tuple[str, ...] = ()
    if at >= 0 and sites.layers:
        one = columns.only(at)
        dead, saturated = sites.values(one, "dead")[:, 0], sites.values(one, "saturated")[:, 0]
        broken = sites.nonfinite(one)[:, 0]
        dead[broken] = saturated[broken] = np.nan
        saturated[[layer not in run.layout.bounded for layer in sites.layers]] = np.nan
        units = run.layout.rectified | run.layout.bounded
        keep = np.array([layer in units for layer in sites.layers]) & (
            np.isfinite(dead) | np.isfinite(saturated) | broken
        )
        if (broken & keep).any():
            hit = [layer for layer, is_hit in zip(sites.layers, broken & keep, strict=True) if is_hit]
            notes += (f"NaN or infinite, and so neither dead nor saturated: {some(hit)}",)
        layers = tuple(layer for layer, there in zip(sites.layers, keep, strict=True) if there)
        bars = [("dead: positive for no sample lately", dead[keep]), ("saturated: at a bound", saturated[keep])]
    when = f", step {int(columns.steps[at]):,}" if bars else ""
    guilty, _ = guilty_of(diagnosis, set(layers))
    shown, kept, left_out = fewer(layers, bars, diagnosis, choice, guilty)
    return Bars(
        name="units",
        title=f"Dead and saturated units of each layer{when}",
        layers=shown,
        bars=kept,
        scale=Scale("share of the units (dead) or of the values (saturated)", "%"),
        step=int(columns.steps[at]) if bars else None,
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty,
        notes=(*notes, *left_out),
        empty="" if shown else "no layer that is rectified (ReLU) or bounded (sigmoid, tanh) was read in these steps",
    )


def _finite(run: RunRecord, sites: Group, columns: Columns, last: int) -> tuple[int, tuple[str, ...]]:
    """Return the last column in which some layer with such units was finite, and a note if that is not the last."""
    rows = [i for i, layer in enumerate(sites.layers) if layer in run.layout.rectified | run.layout.bounded]
    if last < 0 or not rows or not sites.nonfinite(columns.only(last))[rows].any():
        return last, ()
    found = np.flatnonzero(_some_finite(sites, columns)[rows].any(axis=0))
    if not len(found) or found[-1] == last:
        return last, ()
    return int(found[-1]), ("The last step of which finite values were read: after it all are NaN or infinite",)


def _some_finite(sites: Group, columns: Columns) -> Bools:
    return np.asarray((sites.values(columns, "count") > 0) & ~sites.nonfinite(columns))


VIEW = Member("units", "dead and saturated units of each layer", compute, takes=("layer", "step"))
