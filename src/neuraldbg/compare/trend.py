"""The trend of differences over steps: grow, stay or shrink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.comparison import Trend

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

READINGS = 64
"""Number of readings after the first that are used: later ones show the end of the difference, not its trend."""
FEWEST = 4
"""Least number of readings for a trend."""
MATTERS = 1.5
"""Least factor over all readings by which a difference grows or shrinks: from batch to batch it varies as much."""
_SMALLEST = 1e-12
_LARGEST = 1e6
"""Replacement for a non-finite value in the test for order; it is never returned."""


def trend_of(steps: npt.NDArray[np.int64], relative: npt.NDArray[np.floating]) -> Trend | None:
    """Return the trend of a difference from its first reading on; None if there is none.

    The slope is Theil's and Sen's: the median over all pairs of readings (Sen 1968, JASA 63:1379); it counts if
    Kendall's test finds an order in time at the level of 5 % (Kendall 1975, "Rank Correlation Methods").
    """
    seen = np.flatnonzero(~np.isnan(relative))[: READINGS + 1]
    if not len(seen):
        return None
    x = steps[seen].astype(np.float64)
    y = np.log(np.clip(relative[seen].astype(np.float64), _SMALLEST, _LARGEST))
    bad = np.isinf(relative[seen])
    if bad.any() and not bad[0]:
        return _broken(x, y, bad)
    ends = _ends(y[~bad])
    if len(seen) < FEWEST:
        return Trend("unknown", 1.0, int(x[0]), int(x[-1]), *ends, len(seen))
    i, j = np.triu_indices(len(x), 1)
    rise = y[j] - y[i]
    slope = float(np.median(rise / (x[j] - x[i])))
    n = len(x)
    ordered = abs(float(np.sign(rise).sum())) > 1.96 * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    change = slope * (x[-1] - x[0])
    course = "stays" if not ordered or abs(change) < np.log(MATTERS) else "grows" if change > 0 else "shrinks"
    factor = _factor(x[~bad], y[~bad]) if bad.any() else float(np.exp(slope))
    return Trend(course, factor, int(x[0]), int(x[-1]), *ends, n)


def _broken(x: Floats, y: Floats, bad: npt.NDArray[np.bool_]) -> Trend:
    """Return the trend of a difference that becomes non-finite: factor and ends are those of the numbers before."""
    k = int(bad.argmax())
    return Trend("grows", _factor(x[:k], y[:k]), int(x[0]), int(x[-1]), *_ends(y[:k]), len(x), broke=int(x[k]))


def _ends(y: Floats) -> tuple[float, float]:
    if not len(y):
        return np.inf, np.inf
    few = max(1, min(3, len(y) // 2))
    return float(np.exp(np.median(y[:few]))), float(np.exp(np.median(y[-few:])))


def _factor(x: Floats, y: Floats) -> float:
    i, j = np.triu_indices(len(x), 1)
    return float(np.exp(np.median((y[j] - y[i]) / (x[j] - x[i])))) if len(i) else 1.0
