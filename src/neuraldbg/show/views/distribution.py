"""The distribution of the values of one site over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.layer_alias import resolve
from neuraldbg.nouns.histogram import HIGHEST, LOWEST
from neuraldbg.show.axes.gaps import breaks
from neuraldbg.show.format.safe_text import counted
from neuraldbg.show.forms import Scale, Spread
from neuraldbg.show.views.columns import columns_of, end_of, unread_note
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.reading import KINDS, check
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Floats, Ints
    from neuraldbg.show.views.columns import Columns

OF_PARAMETERS = ("param", "param_grad", "update")
DUST = 0.02
"""Largest share of the values of any step in the bins around zero that are put together."""


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Spread:
    """Return the distribution of the chosen layer's first site of a kind, of the guilty layer, or of the first one."""
    kind = choice.kind or "param_grad"
    check(kind, "rms")
    row = _row(run, diagnosis, choice, kind)
    end = end_of(run, choice)
    columns = columns_of(run.history, choice, end)
    layer = "" if row is None else run.layout.sites[row].module
    nothing = np.zeros(0)
    mean = std = low = high = nothing
    if row is not None and len(columns.steps):
        mean, std = (columns.reduce(run.history.stat(row, stat), "mean") for stat in ("mean", "std"))
        low = columns.reduce(run.history.stat(row, "min", "min"), "min")
        high = columns.reduce(run.history.stat(row, "max", "max"), "max")
    edges, shares, taken = _histograms(run, row, columns)
    if edges is not None and shares is not None:
        edges, shares = _without_dust(edges, shares)
    seen = bool(np.isfinite(mean).any())
    if edges is not None and not np.isfinite(edges).all():
        edges = _finite(edges, low, high)
        taken += f"; the outermost bins hold everything beyond {2.0**HIGHEST:.3g}"
    of = run.layout.sites[row].label if row is not None else resolve(run.layout, choice.layer) if choice.layer else ""
    note = f"{columns.note}; mean, minimum and maximum are over those that were read" if columns.note else ""
    unread = f"no finite value of the {KINDS[kind]} of {of or 'any layer'} was read in these steps"
    return Spread(
        name="distribution",
        title=f"Distribution over time: {KINDS[kind]} of {of or 'the model'}",
        layer=layer,
        steps=columns.steps if seen else np.zeros(0, np.int64),
        width=columns.width if seen else np.zeros(0, np.int64),
        end=end if seen else None,
        gaps=_gaps(columns),
        scale=Scale("value"),
        mean=mean,
        std=std,
        low=low,
        high=high,
        edges=edges,
        shares=shares,
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty_of(diagnosis, {layer})[0] if layer else (),
        notes=tuple(one for one in (note, taken, *_sampled(run, row), unread_note(run)) if one and seen),
        empty="" if seen else _bare(run, choice, kind) or unread,
    )


def _histograms(run: RunRecord, row: int | None, columns: Columns) -> tuple[Floats | None, Floats | None, str]:
    """Return borders, shares of shape (B, C), and the number of steps with a histogram; those of a column are added."""
    found = run.histogram(row) if row is not None else None
    if found is None or not len(found):
        return None, None, "No histograms were recorded: mean, standard deviation, minimum and maximum are shown"
    ends = columns.steps + columns.width
    counts = np.zeros((len(columns.steps), found.counts.shape[1]))
    at = np.searchsorted(columns.steps, found.steps, side="right") - 1
    inside = (at >= 0) & (found.steps < ends[at])
    np.add.at(counts, at[inside], found.counts[inside])
    total = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)
    most = int(found.counts.sum(axis=1).max(initial=0))
    beside_zero = (found.edges[:-1] >= 0) | (found.edges[1:] <= 0)
    if not found.counts[:, beside_zero].any() and _any_value(run, row):
        return None, None, f"All values are below {2.0**LOWEST:.1g}, the smallest bin of a histogram"
    taken = f"Histograms of at most {counted(most, 'value')} were recorded in {counted(int(inside.sum()), 'step')}"
    return found.edges, shares.T, taken


def _any_value(run: RunRecord, row: int | None) -> bool:
    """Return True if any value that was read of a site is not zero."""
    return row is not None and bool((np.nan_to_num(run.history.stat(row, "rms", "max")) > 0).any())


def _without_dust(edges: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Put the bins around zero together that never hold more than DUST of the values beside those that are zero: on a
    log axis they would take most of the picture.
    """
    outer = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))
    zero = (edges[:-1] < 0) & (edges[1:] > 0)
    beside = np.where(zero[:, None], 0.0, np.nan_to_num(shares))
    limit = 0.0
    for reach in np.unique(outer[np.isfinite(outer)]).tolist():
        if beside[outer <= reach].sum(axis=0).max(initial=0.0) > DUST:
            break
        limit = reach
    inside = np.flatnonzero(outer <= limit)
    if len(inside) < 2 or len(inside) == len(outer):
        return edges, shares
    first, last = int(inside[0]), int(inside[-1])
    middle = shares[first : last + 1].sum(axis=0, keepdims=True)
    kept = np.concatenate([edges[: first + 1], edges[last + 1 :]])
    return kept, np.concatenate([shares[:first], middle, shares[last + 1 :]])


def _gaps(columns: Columns) -> Ints:
    """Return the columns after which no step was read for long."""
    after = breaks(columns.row_steps, columns.row_width)
    return np.unique(np.searchsorted(columns.starts, after, side="right") - 1)


def _bare(run: RunRecord, choice: Choice, kind: str) -> str:
    """Write that the chosen layer has no parameters, if the view is of parameters; else empty."""
    layer = None if choice.layer is None else run.layout.by_path.get(resolve(run.layout, choice.layer))
    asked = layer is not None and not layer.params and kind in OF_PARAMETERS
    own = "" if layer is None or layer.leaf else " of its own"
    return f"{choice.layer} has no parameters{own}" if asked else ""


def _finite(edges: Floats, low: Floats, high: Floats) -> Floats:
    """Return borders that can be drawn: the open bins reach to the extremes."""
    found = edges.copy()
    beyond = 2.0 ** (HIGHEST + 1)
    if np.isposinf(found[-1]):
        found[-1] = max(beyond, np.nanmax(high[np.isfinite(high)], initial=0.0))
    if np.isneginf(found[0]):
        found[0] = min(-beyond, np.nanmin(low[np.isfinite(low)], initial=0.0))
    return found


def _row(run: RunRecord, diagnosis: Diagnosis, choice: Choice, kind: str) -> int | None:
    layer = None if choice.layer is None else resolve(run.layout, choice.layer)
    rank = run.layout.depth
    rows = run.layout.rows(kind)
    guilty = guilty_of(diagnosis, {run.layout.sites[row].module for row in rows})[0]
    rows = tuple(row for row in rows if layer is None or run.layout.sites[row].module == layer)

    def order(row: int) -> tuple[bool, int, bool, int]:
        site = run.layout.sites[row]
        return (site.module not in guilty, rank.get(site.module, len(rank)), site.name != "weight", row)

    return min(rows, key=order, default=None)


def _sampled(run: RunRecord, row: int | None) -> tuple[str, ...]:
    """Write a note if not all elements were read."""
    if row is None or not len(run.history):
        return ()
    count, total = (float(np.max(run.history.stat(row, stat, "max"), initial=0)) for stat in ("count", "total"))
    return (f"Statistics are of {int(count):,} of {int(total):,} elements, evenly spaced",) if count < total else ()


VIEW = Member("distribution", "a layer's values as a distribution over time", compute, takes=("layer", "kind", "step"))
