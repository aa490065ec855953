"""A statistic of every layer at every step, as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.errors import ConfigError
from neuraldbg.nouns import STATS, resolve
from neuraldbg.show.views.columns import columns_of
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.view import Choice, Heat, Member, Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.views.columns import Columns
    from neuraldbg.show.views.view import Floats

SHARES = {"nonfinite": "count", "zeros": "count", "saturated": "count", "under": "count", "over": "count"}
SHARES |= {"dead": "units"}
"""Counts, shown as a share of what they are counted among: layers differ in size."""
EXTREMES = {"min": "min", "mean": "extreme"}
"""How steps, and the sites of a layer, are put together where it is not by the largest value."""
WORDS = {
    "param_grad": "gradient of parameters",
    "output_grad": "gradient at the output",
    "activation": "output",
    "param": "parameters",
    "update": "update of parameters",
    "input": "input of the model",
    "op": "operand",
}


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Heat:
    """Return the norm of each layer's gradient where nothing else is chosen. All sites of a layer are one row."""
    kind, stat = choice.kind or "param_grad", choice.stat or "norm"
    if kind not in WORDS:
        raise ConfigError(f"there is no kind of sites {kind!r}: {', '.join(WORDS)} are")
    if stat != "norm" and stat not in STATS:
        raise ConfigError(f"there is no statistic {stat!r}: norm, {', '.join(STATS)} are")
    groups = _groups(run, kind, choice.layer)
    columns = columns_of(run.history, choice)
    how = EXTREMES.get(stat, "max")
    values = np.full((len(groups), len(columns.steps)), np.nan)
    bad = np.zeros(values.shape, bool)
    for i, rows in enumerate(groups.values()):
        values[i] = _layer(run, columns, rows, stat, how)
        bad[i] = columns.reduce(run.history.stat(rows, "nonfinite", "max").max(axis=1), "max") > 0
    share = " of the " + ("units" if SHARES.get(stat) == "units" else "elements read") if stat in SHARES else ""
    return Heat(
        name="heatmap",
        title=f"{stat}{share}: {WORDS[kind]} of each layer",
        layers=tuple(groups),
        steps=columns.steps,
        width=columns.width,
        values=values,
        nonfinite=bad,
        scale=Scale(f"{stat}{share}", log=stat in {"norm", "rms", "std"}),
        reduce=how,
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty_of(diagnosis, set(groups))[0],
        notes=tuple(note for note in (columns.note and f"{columns.note}, each shown by its {how}",) if note),
        empty="" if values.size else f"no layer has a {WORDS[kind]} that was read",
    )


def _groups(run: RunRecord, kind: str, layer: str | None) -> dict[str, list[int]]:
    """Rows of the table by layer, in data-flow order; only those in a layer where one is chosen."""
    only = None if layer is None else resolve(run.layout, layer)
    found: dict[str, list[int]] = {}
    for row in run.layout.rows(kind):
        path = run.layout.sites[row].module
        if only is None or path == only or path.startswith(f"{only}."):
            found.setdefault(path, []).append(row)
    rank = run.layout.depth
    return dict(sorted(found.items(), key=lambda item: rank.get(item[0], len(rank))))


def _layer(run: RunRecord, columns: Columns, rows: Sequence[int], stat: str, how: str) -> Floats:
    """One row of the map, shape (C,)."""
    stored = run.history.stat
    rows = list(rows)
    if stat == "norm":
        square = stored(rows, "rms", "max") ** 2 * stored(rows, "total", "max")
        seen = np.isfinite(square)
        return columns.reduce(np.where(seen.any(axis=1), np.sqrt(np.where(seen, square, 0).sum(axis=1)), np.nan), "max")
    if stat in SHARES:
        among = stored(rows, SHARES[stat], "max").sum(axis=1)
        counted = stored(rows, stat, "max").sum(axis=1)
        return columns.reduce(np.where(among > 0, counted / np.maximum(among, 1), np.nan), "max")
    high, low = columns.reduce(stored(rows, stat, "max"), "max"), columns.reduce(stored(rows, stat, "min"), "min")
    if how == "extreme":
        both = np.concatenate([high, low], axis=1)
        largest: Floats = np.take_along_axis(both, np.abs(np.nan_to_num(both)).argmax(axis=1)[:, None], axis=1)[:, 0]
        return largest
    reduced: Floats = np.fmin.reduce(low, axis=1) if how == "min" else np.fmax.reduce(high, axis=1)
    return reduced


VIEW = Member("heatmap", "a statistic of every layer at every step", compute, takes=("layer", "stat", "kind", "step"))
