"""The dead units of a run in words: which layers have some, and their indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.dead_indices import DeadIndicesFact

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.facts.dead_indices import DeadLayer


@dataclass(frozen=True)
class DeadUnits:
    """The dead units that are known at the end of a run, or before its first NaN."""

    layers: tuple[DeadLayer, ...] = ()
    """Rectified layers with dead units, in data-flow order."""
    step: int = 0
    """Step since which they are the same."""
    left_out: int = 0
    """Layers with dead units that were not recorded."""
    end: int | None = None
    """First step whose loss is not finite, after which every unit looks dead; None if there is none."""


def dead_layers(run: RunRecord) -> DeadUnits:
    """Return the newest dead units of layers that are rectified: a unit of another layer may be negative and alive."""
    loss = run.scalar("loss")
    broken = np.flatnonzero(~np.isfinite(loss.values))
    end = int(loss.steps[broken[0]]) if len(broken) else None
    known = [(step, fact) for step, fact in run.versions(DeadIndicesFact) if end is None or step < end]
    if not known:
        return DeadUnits(end=end)
    step, fact = known[-1]
    rank = run.layout.depth
    found = [one for one in fact.layers if one.layer in run.layout.rectified and one.dead]
    ordered = sorted(found, key=lambda one: rank.get(one.layer, len(rank)))
    return DeadUnits(tuple(ordered), max(0, min(step, run.steps - 1)), fact.left_out, end)


def indices(layer: DeadLayer) -> str:
    """Write the indices of a layer's dead units: all, or 0 to 3, 7, 12 to 15 and 20 more."""
    if layer.dead == layer.units:
        return "all"
    told = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in layer.ranges]
    more = layer.dead - sum(last - first + 1 for first, last in layer.ranges)
    return ", ".join(told) + (f" and {more:,} more" if more > 0 else "")
