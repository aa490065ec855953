"""Dead and saturated units of each layer at one step, in per cent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Bars, Scale
from neuraldbg.show.views.bars import fewer, place_of, some
from neuraldbg.show.views.columns import each_row
from neuraldbg.show.views.last_reading import last_readings, reading_notes
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
    columns = each_row(run.history, choice)
    units = run.layout.rectified | run.layout.bounded
    sites = group(run, "activation", choice.layer, units)
    wanted = replace(choice, step=run.steps) if choice.step is None else choice
    at, notes = place_of(run, diagnosis, wanted, columns)
    if choice.step is None:
        at, notes = _finite(sites, columns, at)
    bars: list[tuple[str, Floats]] = []
    layers: tuple[str, ...] = ()
    if at >= 0 and sites.layers:
        last = last_readings(sites, columns, at)
        # Units are read in fewer steps than values are.
        counted = last_readings(sites, columns, at, "dead")
        last = replace(last, at=np.where(counted.read & ~last.bad, counted.at, last.at))
        dead, saturated, broken = last.values("dead"), last.values("saturated"), last.bad
        dead[[layer not in run.layout.rectified for layer in sites.layers]] = np.nan
        saturated[[layer not in run.layout.bounded for layer in sites.layers]] = np.nan
        if broken.any():
            hit = [layer for layer, is_hit in zip(sites.layers, broken, strict=True) if is_hit]
            notes += (f"NaN or infinite, and so neither dead nor saturated: {some(hit)}",)
        notes += reading_notes(last, at, "output")
        keep = np.isfinite(dead) | np.isfinite(saturated) | broken
        layers = tuple(layer for layer, there in zip(sites.layers, keep, strict=True) if there)
        bars = [
            ("dead: positive in no row read over many steps", dead[keep]),
            ("saturated: at a bound", saturated[keep]),
        ]
        # A model without any bounded layer has no saturated units, not unknown ones.
        kinds = (run.layout.rectified, run.layout.bounded)
        bars = [bar for bar, kind in zip(bars, kinds, strict=True) if kind & set(layers)] or bars[:1]
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
        empty="" if shown else _missing(run, sites),
    )


def _missing(run: RunRecord, sites: Group) -> str:
    """Return the reason that there is no layer to show."""
    if run.layout.rectified.intersection(sites.layers):
        return (
            "too few rows were read to know which units are dead: that takes 300 of them, over 20 steps or more "
            "(--overhead full reads every step)"
        )
    return "no output of a layer with a ReLU, sigmoid or tanh was read in these steps"


def _finite(sites: Group, columns: Columns, last: int) -> tuple[int, tuple[str, ...]]:
    """Return the last column in which some layer with such units was finite, and a note if that is not the last."""
    if last < 0 or not sites.layers or not last_readings(sites, columns, last).bad.any():
        return last, ()
    found = np.flatnonzero(_some_finite(sites, columns).any(axis=0))
    if not len(found) or found[-1] == last:
        return last, ()
    return int(found[-1]), ("All later readings are NaN or infinite",)


def _some_finite(sites: Group, columns: Columns) -> Bools:
    return np.asarray((sites.values(columns, "count") > 0) & ~sites.nonfinite(columns))


VIEW = Member("units", "dead and saturated units of each layer", compute, takes=("layer", "step"))
