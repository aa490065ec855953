"""A statistic of every layer at every step, as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.forms import Heat, Scale
from neuraldbg.show.views.columns import columns_of, end_of, unread_note
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.picking import pick, touched
from neuraldbg.show.views.reading import EXTREMES, KINDS, NORM, check, group, scale_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Bools, Floats
    from neuraldbg.show.views.columns import Columns


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Heat:
    """Return the chosen statistic, by default the norm of each layer's gradient. All sites of a layer are one row.

    Only layers with a rectifier have dead units: the others have no row.
    """
    kind, stat = choice.kind or "param_grad", choice.stat or NORM
    check(kind, stat)
    among, of = (run.layout.rectified, "rectified layer") if stat == "dead" else (None, "layer")
    sites = group(run, kind, choice.layer, among)
    columns = columns_of(run.history, choice, end_of(run, choice))
    return heat_of(
        run,
        diagnosis,
        choice,
        name="heatmap",
        title=f"{scale_of(stat).label[:1].upper()}{scale_of(stat).label[1:]}: {KINDS[kind]} of each {of}",
        layers=sites.layers,
        columns=columns,
        values=sites.values(columns, stat),
        # Of the share of non-finite values itself every cell is a number.
        nonfinite=sites.nonfinite(columns) & (stat != "nonfinite"),
        scale=scale_of(stat),
        reduce=EXTREMES.get(stat, "max"),
        missing=f"{KINDS[kind]} of any {of}",
    )


def heat_of(
    run: RunRecord,
    diagnosis: Diagnosis,
    choice: Choice,
    *,
    name: str,
    title: str,
    layers: tuple[str, ...],
    columns: Columns,
    values: Floats,
    nonfinite: Bools,
    scale: Scale,
    reduce: str,
    missing: str,
) -> Heat:
    """Build a heat map from values of shape (layers, C); ``missing`` names what was not read if there are none."""
    guilty, _ = guilty_of(diagnosis, set(layers))
    rows, left_out = pick(layers, {*guilty, *touched(diagnosis)}, values, nonfinite, choice.rows)
    word = {"max": "maximum", "min": "minimum", "extreme": "value of the largest magnitude"}[reduce]
    binned = f"{columns.note}; a cell shows their {word}" if columns.note else ""
    return Heat(
        name=name,
        title=title,
        layers=tuple(layers[i] for i in rows),
        steps=columns.steps,
        width=columns.width,
        values=values[rows],
        nonfinite=nonfinite[rows],
        scale=scale,
        reduce=reduce,
        end=end_of(run, choice),  # a map that ended before the run would hide its end, and its failure
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty,
        notes=tuple(note for note in (binned, left_out, unread_note(run)) if note),
        empty="" if values.size else f"nothing was read of the {missing} in these steps",
    )


VIEW = Member("heatmap", "a statistic of every layer at every step", compute, takes=("layer", "stat", "kind", "step"))
