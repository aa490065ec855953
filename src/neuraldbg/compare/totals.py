"""Totals of the differences over the whole run: by kind of site, by layer, over all layers, and as a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.comparison import Drift, KindSpan, LayerSpan

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.compare.alignment import Stretches
    from neuraldbg.compare.divergence import Findings
    from neuraldbg.nouns.comparison import Trend

KINDS = ("input", "param", "activation", "op", "output_grad", "param_grad", "update")
"""Kinds of sites in the order of a step."""
COLUMNS = 480
"""Largest number of columns of the map; more stretches are joined by their maximum."""
INPUT = "(input)"


def kind_spans(found: Findings) -> tuple[KindSpan, ...]:
    """Return the totals of each kind of site, and of the loss."""
    spans = []
    measured, steps = found.measured, found.time.steps
    seen: npt.NDArray[np.bool_] = np.any(~np.isnan(measured.relative), axis=0)
    for kind in KINDS:
        at = np.flatnonzero([bool(seen[p]) and pair.one.kind == kind for p, pair in enumerate(found.pairs)])
        if not len(at):
            continue
        beyond = measured.beyond[:, at]
        hit = np.flatnonzero(beyond.any(axis=1))
        spans.append(
            KindSpan(
                kind,
                len(at),
                int(beyond.any(axis=0).sum()),
                int(steps[hit[0]]) if len(hit) else None,
                float(np.fmax.reduce(measured.relative[:, at], axis=None)),
                *_extent(found.time, np.asarray(~np.isnan(measured.relative[:, at]).all(axis=1))),
            )
        )
    if found.losses:
        beyond_at = [int(p.time.steps[np.argmax(p.beyond)]) for p in found.losses if p.beyond.any()]
        largest = max(float(p.relative.max()) for p in found.losses)
        extents = [_extent(p.time, np.ones(len(p.time), bool)) for p in found.losses]
        ends = [span for _, span in extents if span is not None]
        span = (min(first for first, _ in ends), max(last for _, last in ends)) if ends else None
        read = sum(steps for steps, _ in extents)
        spans.append(
            KindSpan("loss", len(found.losses), len(beyond_at), min(beyond_at, default=None), largest, read, span)
        )
    return tuple(spans)


def _extent(time: Stretches, seen: npt.NDArray[np.bool_]) -> tuple[int, tuple[int, int] | None]:
    """Return the number of steps in some stretches, and the first and the last of them."""
    at = np.flatnonzero(seen)
    if not len(at):
        return 0, None
    ends = time.steps[at] + time.width[at]
    return int(time.width[at].sum()), (int(time.steps[at[0]]), int(ends.max()) - 1)


def _by_layer(found: Findings) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Return the layers in data-flow order, and for each pair the index of its layer."""
    depth = found.runs[0].layout.depth
    names = [INPUT if pair.one.kind == "input" else pair.one.module for pair in found.pairs]
    rank = {INPUT: -1}
    layers = sorted(dict.fromkeys(names), key=lambda name: rank.get(name, depth.get(name, len(depth))))
    place = {name: k for k, name in enumerate(layers)}
    return layers, np.array([place[name] for name in names], np.intp)


def _largest(found: Findings) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Return the layers, and the largest relative difference of each, shape (G, L)."""
    layers, owner = _by_layer(found)
    largest = np.full((len(found.time), len(layers)), np.nan, np.float32)
    for p, k in enumerate(owner):
        np.fmax(largest[:, k], found.measured.relative[:, p], out=largest[:, k])
    return layers, largest


def layer_spans(found: Findings) -> tuple[LayerSpan, ...]:
    """Return the totals of each layer, in data-flow order."""
    if not len(found.time):
        return ()
    layers, owner = _by_layer(found)
    _, largest = _largest(found)
    spans = []
    for k, layer in enumerate(layers):
        hit = np.flatnonzero(found.measured.beyond[:, owner == k].any(axis=1))
        seen = largest[:, k][~np.isnan(largest[:, k])]
        if len(seen):
            first = int(found.time.steps[hit[0]]) if len(hit) else None
            spans.append(LayerSpan(layer, first, float(seen.max()), float(seen[-1])))
    return tuple(spans)


def overall_trend(found: Findings, step: int) -> Trend | None:
    """Return the trend of the median over all layers from a step on; None if there is none."""
    if not len(found.time):
        return None
    _, largest = _largest(found)
    after = np.flatnonzero(found.time.steps + found.time.width > step)
    if np.isnan(largest[after]).all():
        return None
    median = np.full(len(after), np.nan)
    some = ~np.isnan(largest[after]).all(axis=1)
    median[some] = np.nanmedian(largest[after][some], axis=1)
    return found.course(int(after[0]), median, range(len(found.pairs)))


def drift_of(found: Findings) -> Drift | None:
    """Return the map of differences for the picture; None if nothing was compared."""
    if not len(found.time) or not found.pairs:
        return None
    layers, largest = _largest(found)
    steps, ends = found.time.steps, found.time.steps + found.time.width
    span = int(ends[-1] - steps[0])
    each = max(1, -(-span // COLUMNS))
    starts = np.flatnonzero(np.diff((steps - steps[0]) // each, prepend=-1))
    lasts = np.append(starts[1:], len(steps)) - 1
    values = np.fmax.reduceat(largest, starts, axis=0).T
    return Drift(tuple(layers), steps[starts], ends[lasts] - steps[starts], values)
