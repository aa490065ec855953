"""The trend of differences over steps: they grow, shrink, stay or vary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.comparison import Trend
from neuraldbg.nouns.robust_statistics import kendall, theil_sen

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

READINGS = 64
"""Number of readings after the first that are used: later ones show the end of the difference, not its trend."""
FEWEST = 4
"""Least number of readings for a trend."""
MATTERS = 1.5
"""Least factor between the beginning and the end of a difference that grows or shrinks: from batch to batch it varies
as much. One that does neither varies if its readings spread over more than the square of it."""
NOISE = 3.0
"""Ratio of the change from the beginning to the end to that between two readings, above which the change is none of
chance, even if it was made in the first few readings."""
_SMALLEST = 1e-12
_LARGEST = 1e6
"""Replacement for a non-finite value in the test for order; it is never returned."""


def trend_of(steps: npt.NDArray[np.int64], relative: npt.NDArray[np.floating]) -> Trend | None:
    """Return the trend of a difference from its first reading on; None if there is none.

    It grows or shrinks if its end is far enough from its beginning, and if Kendall's test finds an order in time at the
    level of 5 % (Kendall 1975, "Rank Correlation Methods"), or the change is many times that between two readings. The
    factor per step is Theil's and Sen's slope: the median over all pairs of readings (Sen 1968, JASA 63:1379).
    """
    seen = np.flatnonzero(~np.isnan(relative))[: READINGS + 1]
    if not len(seen):
        return None
    x = steps[seen].astype(np.float64)
    y = np.log(np.clip(relative[seen].astype(np.float64), _SMALLEST, _LARGEST))
    bad = np.isinf(relative[seen])
    if bad.any() and not bad[0]:
        return _broken(x, y, bad)
    x, y = x[~bad], y[~bad]
    span = int(steps[seen[0]]), int(steps[seen[-1]])
    low, high = (float(relative[seen][~bad].min()), float(relative[seen][~bad].max())) if len(y) else (np.inf, np.inf)
    course = _course(y) if len(seen) >= FEWEST else "unknown"
    return Trend(course, _factor(x, y), *span, *_ends(y), len(seen), low=low, high=high)


def _course(y: Floats) -> str:
    """Return the course of the logarithms of a difference, shape (T,) in the order of time."""
    n = len(y)
    if n < FEWEST:
        return "stays"
    begin, end = _ends(y)
    change = float(np.log(max(end, _SMALLEST) / max(begin, _SMALLEST)))
    order = kendall(y).s
    ordered = abs(order) > 1.96 * np.sqrt(n * (n - 1) * (2 * n + 5) / 18) and order * change > 0
    large = abs(change) >= np.log(MATTERS) and (y[-1] - y[0]) * change > 0  # the first reading is said with it
    if large and (ordered or abs(change) > NOISE * float(np.median(np.abs(np.diff(y))))):
        return "grows" if change > 0 else "shrinks"
    low, high = np.quantile(y, (0.1, 0.9))
    return "varies" if high - low > 2 * np.log(MATTERS) else "stays"


def _broken(x: Floats, y: Floats, bad: npt.NDArray[np.bool_]) -> Trend:
    """Return the trend of a difference that becomes non-finite: factor and ends are those of the numbers before."""
    k = int(bad.argmax())
    return Trend("grows", _factor(x[:k], y[:k]), int(x[0]), int(x[-1]), *_ends(y[:k]), len(x), broke=int(x[k]))


def _ends(y: Floats) -> tuple[float, float]:
    """Return the medians of the first and of the last few readings; infinite if there are none."""
    if not len(y):
        return np.inf, np.inf
    few = max(1, min(3, len(y) // 2))
    begin, end = (float(np.exp(np.median(part))) for part in (y[:few], y[-few:]))
    return (begin if begin > 2 * _SMALLEST else 0.0), (end if end > 2 * _SMALLEST else 0.0)


def _factor(x: Floats, y: Floats) -> float:
    return float(np.exp(theil_sen(x, y).value)) if len(x) > 1 else 1.0
