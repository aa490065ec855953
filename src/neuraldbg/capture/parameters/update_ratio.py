"""The update ratio, norm(update) / norm(weight), computed for all steps that are delivered together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.capture.parameters.read_plan import row_of
from neuraldbg.nouns import column

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.capture.statistics.watched_parameter import Watched

_COUNT, _TOTAL, _ZEROS, _RMS, _NONFINITE = map(column, ("count", "total", "zeros", "rms", "nonfinite"))


def update_ratios(stepped: tuple[Watched, ...], tables: npt.NDArray[np.float64]) -> list[float | None]:
    """Return the scalar ``update_ratio`` of steps that changed these parameters: the median of norm(update) /
    norm(weight) over matrices, None for a step without one.

    ``tables`` has shape (steps, sites, len(STATS)). A weight whose sample did not change is read whole from now on.
    """
    ours = [w for w in stepped if w.update is not None and w.update < tables.shape[1]]
    if not ours:
        return [None] * len(tables)
    update, weight = tables[:, [row_of(w.update) for w in ours]], tables[:, [row_of(w.param) for w in ours]]
    moved = update[..., _COUNT]
    seen = (moved > 0) & (weight[..., _COUNT] > 0)
    still = seen & (update[..., _ZEROS] == moved) & (moved < update[..., _TOTAL])
    for i in np.flatnonzero(seen[-1]):
        # Rows of an embedding that are in no batch do not change, and a sample may well miss the others.
        ours[i].whole = bool(still[-1, i]) and not ours[i].rows
    usable = seen & np.array([w.matrix for w in ours], np.bool_) & (weight[..., _RMS] > 0)
    usable &= (update[..., _NONFINITE] == 0) & (weight[..., _NONFINITE] == 0)
    with np.errstate(all="ignore"):
        ratios = np.where(usable, update[..., _RMS] / weight[..., _RMS], np.inf)
    return _medians(np.sort(ratios, axis=1), usable.sum(axis=1))


def _medians(ordered: npt.NDArray[np.float64], counts: npt.NDArray[np.intp]) -> list[float | None]:
    """Return the median of the first ``counts`` of each row of sorted numbers, None for 0. At least one column."""
    steps = np.arange(len(ordered))
    middle = (ordered[steps, np.maximum(counts - 1, 0) // 2] + ordered[steps, counts // 2 % ordered.shape[1]]) / 2
    return [value if count else None for value, count in zip(middle.tolist(), counts.tolist(), strict=True)]
