"""Robust statistics of a few numbers in the order of time: noise, order, slope. Numbers enter, numbers leave.

Each needs no assumption of normal noise, and holds with outliers in a quarter of the values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MAD_TO_SIGMA = 1.4826
"""Standard deviation of normal noise in units of its median absolute deviation."""
Z95 = 1.959963984540054
"""Quantile 0.975 of the normal distribution."""
EXACT = 10
"""Largest number of values for which the distribution of Kendall's S is counted out instead of taken as normal."""


class Slope(NamedTuple):
    """A slope with its interval of 95% confidence, per unit of x."""

    value: float
    low: float
    high: float


class Order(NamedTuple):
    """Kendall's test of an order in time."""

    s: int
    """Number of pairs that rise minus the number of those that fall."""
    p: float
    """Probability of an S at least as far from zero, on either side, if there is no order."""


def noise_of(values: Floats) -> float:
    """Return the standard deviation of one value about its trend, by the differences of neighbours; 0 if unknown.

    It is 1.4826 times the median absolute deviation of the differences, over the square root of two (the usual robust
    estimate of a standard deviation, Rousseeuw and Croux 1993). ``values`` has shape (T,), in the order of time.
    """
    if len(values) < 3:
        return 0.0
    change = np.diff(values)
    return float(MAD_TO_SIGMA * np.median(np.abs(change - np.median(change))) / np.sqrt(2))


def theil_sen(x: Floats, y: Floats, inflation: float = 1.0) -> Slope:
    """Return the median slope over all pairs of points, with Sen's interval (Sen 1968, JASA 63:1379).

    ``x`` and ``y`` have shape (T,). ``inflation`` is the factor by which correlated noise raises the variance of
    Kendall's S. NaN without two different x.
    """
    i, j = np.triu_indices(len(x), 1)
    apart = x[j] != x[i]
    slopes = np.sort((y[j] - y[i])[apart] / (x[j] - x[i])[apart])
    count = len(slopes)
    if not count:
        return Slope(math.nan, math.nan, math.nan)
    sigma = math.sqrt(max(_variance_of_s(x, y) * inflation, 0.0))
    upper = min(round((count + Z95 * sigma) / 2), count - 1)
    lower = max(round((count - Z95 * sigma) / 2) - 1, 0)
    return Slope(float(np.median(slopes)), float(slopes[lower]), float(slopes[upper]))


def kendall(y: Floats, inflation: float = 1.0) -> Order:
    """Return Kendall's test of an order in values of shape (T,) that are in the order of time (Kendall 1975, "Rank
    Correlation Methods"; Mann 1945). Few values without ties are counted out, others by the normal approximation.
    """
    n = len(y)
    if n < 2:
        return Order(0, 1.0)
    i, j = np.triu_indices(n, 1)
    s = int(np.sign(y[j] - y[i]).sum())
    if n <= EXACT and inflation == 1.0 and len(np.unique(y)) == n:
        return Order(s, _exact_p(n, abs(s)))
    variance = _variance_of_s(np.arange(n, dtype=np.float64), y) * inflation
    if variance <= 0 or s == 0:
        return Order(s, 1.0)
    return Order(s, math.erfc((abs(s) - 1) / math.sqrt(2 * variance)))


def correlation_inflation(residuals: Floats) -> float:
    """Return the factor by which the correlation of neighbours raises the variance of a mean or of Kendall's S:
    (1 + r) / (1 - r) for the lag-one correlation r of residuals of shape (T,) (Bayley and Hammersley 1946).

    1 if r is within what chance makes of independent values at the level of 5%.
    """
    n = len(residuals)
    centred = residuals - residuals.mean() if n else residuals
    square = float(centred @ centred)
    if n < 5 or square <= 0:
        return 1.0
    r = float(centred[1:] @ centred[:-1]) / square
    return (1 + r) / (1 - r) if r > 1.645 / math.sqrt(n) else 1.0


def _variance_of_s(x: Floats, y: Floats) -> float:
    """Return the variance of Kendall's S without an order, with its correction for ties."""
    n = len(y)

    def part(k: npt.NDArray[np.int64]) -> float:
        return float((k * (k - 1.0) * (2.0 * k + 5.0)).sum())

    ties = sum(part(np.unique(values, return_counts=True)[1]) for values in (x, y))
    return (n * (n - 1) * (2 * n + 5) - ties) / 18


def _exact_p(n: int, s: int) -> float:
    """Return the probability that S of n values is at least s away from zero, by the numbers of inversions of all
    permutations (Kendall 1938, Biometrika 30:81).
    """
    counts = np.ones(1)
    for k in range(2, n + 1):
        counts = np.convolve(counts, np.ones(k))
    pairs = n * (n - 1) // 2
    tail = counts[: (pairs - s) // 2 + 1].sum() / counts.sum()
    return float(min(1.0, 2 * tail))
