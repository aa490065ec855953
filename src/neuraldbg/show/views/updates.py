"""The size of each layer's updates relative to its weights: about a thousandth is usual (Karpathy, makemore 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Heat, Scale
from neuraldbg.show.views.columns import columns_of, end_of
from neuraldbg.show.views.heatmap import heat_of
from neuraldbg.show.views.reading import NORM, group
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord

RATIO = "Update ratio: norm of the update over norm of the parameters"


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Heat:
    """Return norm(update) / norm(parameters) of each layer; of several steps, the largest update over the weights."""
    columns = columns_of(run.history, choice, end_of(run, choice))
    updates, weights = group(run, "update", choice.layer), group(run, "param", choice.layer)
    changed, sizes = updates.values(columns, NORM), weights.values(columns, NORM)
    place = {layer: i for i, layer in enumerate(weights.layers)}
    at = [place.get(layer, -1) for layer in updates.layers]
    known = np.array(at, int) >= 0
    size = np.where(known[:, None], sizes[at], np.nan) if len(sizes) else np.full(changed.shape, np.nan)
    found = heat_of(
        run,
        diagnosis,
        choice,
        name="updates",
        title="Update ratio of each layer",
        layers=updates.layers,
        columns=columns,
        values=np.divide(changed, size, out=np.full(changed.shape, np.nan), where=size > 0),
        nonfinite=updates.nonfinite(columns),
        scale=Scale("update ratio", log=True),
        reduce="max",
        missing="updates of any layer",
    )
    return replace(found, notes=(RATIO, *found.notes) if not found.empty else found.notes)


VIEW = Member("updates", "the norm of the update over that of the parameters", compute, takes=("layer", "step"))
