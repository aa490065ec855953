"""The distribution of many durations in constant memory: seconds in, quantiles out.

The first ``EXACT`` durations are kept, and their quantiles are exact. Of more, each is counted in a bucket whose bounds
have the ratio (1 + ERROR) / (1 - ERROR), so that a quantile is at most ``ERROR`` away from the duration of that rank
(DDSketch: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch", VLDB 12, 2019). Nothing is drawn at
random: the same durations give the same quantiles, and the program's generators are left alone.
"""

from __future__ import annotations

import math
from collections import defaultdict

EXACT = 1_000
"""Durations of which quantiles are exact."""
ERROR = 0.005
"""Relative error of the quantiles of more durations. From 1 ns to 1,000 s there are 2,763 buckets."""
_RATIO = math.log((1 + ERROR) / (1 - ERROR))
"""Logarithm of the ratio between the bounds of a bucket."""
_MIDDLE = 2 / (1 + math.exp(_RATIO))
"""The value of a bucket over its upper bound: as far from the lower bound, relatively, as from the upper."""
_LEAST = 1e-9
"""Seconds of the first bucket: clocks do not tell shorter durations apart."""


class DurationSketch:
    """Counts durations."""

    __slots__ = ("_buckets", "_kept", "count", "largest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.largest = self.total = 0.0
        self._kept: list[float] | None = []
        """All durations so far; None once they are counted in buckets."""
        self._buckets: defaultdict[int, int] = defaultdict(int)

    def add(self, seconds: float) -> None:
        """Count a duration. Takes about 0.3 microseconds."""
        self.count += 1
        self.total += seconds
        self.largest = max(self.largest, seconds)
        if self._kept is None:
            self._buckets[math.ceil(math.log(max(seconds, _LEAST)) / _RATIO)] += 1
            return
        self._kept.append(seconds)
        if len(self._kept) > EXACT:
            kept, self._kept = self._kept, None
            for one in kept:
                self._buckets[math.ceil(math.log(max(one, _LEAST)) / _RATIO)] += 1

    def quantile(self, share: float) -> float:
        """Return the shortest duration that is at least as long as a share of them all (``inverted_cdf`` of numpy); NaN
        without any.
        """
        if not self.count:
            return math.nan
        rank = max(math.ceil(share * self.count - 1e-9), 1)
        if self._kept is not None:
            return sorted(self._kept)[rank - 1]
        for bucket, count in sorted(self._buckets.items()):
            rank -= count
            if rank <= 0:
                return min(math.exp(bucket * _RATIO) * _MIDDLE, self.largest)
        return self.largest
