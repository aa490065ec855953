"""The layers that no gradient reaches: a layer whose output looks sound is not healthy if it cannot learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.views.bars import some

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord

MISSING = "no gradient"
ZERO = "gradient always exactly 0"


def without_gradient(run: RunRecord) -> dict[str, str]:
    """Return the called layers that got no gradient in any step, or none but zeros, each with that in words.

    A layer without parameters counts if no gradient at its output was read and the layer with parameters before it got
    none: the first layers of a model, which only prepare its input, need none.
    """
    layout, rank = run.layout, run.layout.depth
    if not len(run.history):
        return {}
    of_weights, at_outputs = _largest(run, "param_grad"), _largest(run, "output_grad")
    found: dict[str, str] = {}
    dry = False
    for path in sorted(layout.called & layout.by_path.keys(), key=lambda path: rank.get(path, len(rank))):
        layer = layout.by_path[path]
        if layer.params:
            size = of_weights.get(path, np.nan)
            dry = not size > 0
            if dry:
                found[path] = ZERO if size == 0 else MISSING
        elif layer.leaf and dry and np.isnan(at_outputs.get(path, np.nan)):
            found[path] = MISSING
    return found


def missing_note(run: RunRecord) -> str:
    """Write of which layers with parameters no gradient was read in any step; "" if there are none, or no others."""
    with_parameters = {layer.path for layer in run.layout.layers if layer.params and layer.path in run.layout.called}
    missing = [path for path, why in without_gradient(run).items() if why == MISSING and path in with_parameters]
    return f"No gradient was read of {some(missing)}" if 0 < len(missing) < len(with_parameters) else ""


def _largest(run: RunRecord, kind: str) -> dict[str, float]:
    """Return the largest root mean square of each layer's gradients over all steps: infinite if NaN or infinite values
    were read, NaN or absent if nothing was.
    """
    rows = run.layout.rows(kind)
    if not rows:
        return {}
    read = run.history.stat(rows, "count", "max") > 0
    size = np.where(read, run.history.stat(rows, "rms", "max"), np.nan)
    size[read & (run.history.stat(rows, "nonfinite", "max") > 0)] = np.inf
    largest = np.fmax.reduce(size, axis=0)
    found: dict[str, float] = {}
    for row, value in zip(rows, largest.tolist(), strict=True):
        path = run.layout.sites[row].module
        found[path] = float(np.fmax(found.get(path, np.nan), value))
    return found
