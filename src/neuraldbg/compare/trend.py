"""Differences over steps -> whether they grow, stay or shrink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.comparison import Trend

if TYPE_CHECKING:
    import numpy.typing as npt

READINGS = 64
"""Readings after the first that are looked at: later ones say how the difference ended, not what became of it."""
FEWEST = 4
"""Readings below which no course is told."""
MATTERS = 1.5
"""A difference that changes by less than this factor over all of them stays: from batch to batch it varies as much."""
_SMALLEST = 1e-12
_LARGEST = 1e6


def trend_of(steps: npt.NDArray[np.int64], relative: npt.NDArray[np.floating]) -> Trend | None:
    """Judge the course of a difference from its first reading on; None if there is none.

    The slope is Theil's and Sen's: the median over all pairs of readings (Sen 1968, JASA 63:1379); it counts if
    Kendall's test finds an order in time at the level of 5 % (Kendall 1975, "Rank Correlation Methods").
    """
    seen = np.flatnonzero(~np.isnan(relative))[: READINGS + 1]
    if not len(seen):
        return None
    x = steps[seen].astype(np.float64)
    y = np.log(np.clip(relative[seen].astype(np.float64), _SMALLEST, _LARGEST))
    few = max(1, min(3, len(y) // 2))
    ends = float(np.exp(np.median(y[:few]))), float(np.exp(np.median(y[-few:])))
    if len(seen) < FEWEST:
        return Trend("unknown", 1.0, int(x[0]), int(x[-1]), *ends, len(seen))
    i, j = np.triu_indices(len(x), 1)
    rise = y[j] - y[i]
    slope = float(np.median(rise / (x[j] - x[i])))
    n = len(x)
    ordered = abs(float(np.sign(rise).sum())) > 1.96 * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    change = slope * (x[-1] - x[0])
    course = "stays" if not ordered or abs(change) < np.log(MATTERS) else "grows" if change > 0 else "shrinks"
    return Trend(course, float(np.exp(slope)), int(x[0]), int(x[-1]), *ends, n)
