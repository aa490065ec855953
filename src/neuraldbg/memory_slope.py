"""The growth of one number of memory over the steps: its readings, thinned, and the slope of its lowest values.

An allocator keeps what it once had, so memory rises in jumps and falls rarely; the lowest value of a stretch of steps
is what is needed in all of them.
"""

from __future__ import annotations

from itertools import pairwise

_MOST = 512
"""Readings that are kept: when there are more, every second is dropped."""
_STRETCHES = 8
"""Stretches of the run of which the lowest value counts."""
_READINGS, _STEPS = 24, 32
"""Readings and steps from which on there is a slope."""
_LONG, _LARGE, _SHARE = 256, 64 << 20, 0.05
"""Steps, bytes and share of the first value from which on memory has grown for long."""


class Readings:
    """The readings of one number."""

    def __init__(self) -> None:
        self._held: list[tuple[int, float]] = []
        self._every = 1
        self._count = 0

    def add(self, step: int, value: float) -> None:
        """Add a reading."""
        self._count += 1
        if self._count % self._every:
            return
        self._held.append((step, value))
        if len(self._held) >= _MOST:
            self._held, self._every = self._held[::2], 2 * self._every

    def _lowest(self) -> list[tuple[int, float]]:
        """Return the lowest reading of each stretch of the steps, the first quarter left out: that is warm-up."""
        if len(self._held) < _READINGS:
            return []
        first, last = self._held[0][0], self._held[-1][0]
        begin = first + (last - first) // 4
        if last - begin < _STEPS:
            return []
        lows: dict[int, tuple[int, float]] = {}
        for step, value in self._held:
            if step >= begin:
                at = min(_STRETCHES - 1, (step - begin) * _STRETCHES // max(1, last - begin))
                if at not in lows or value < lows[at][1]:
                    lows[at] = (step, value)
        return [lows[at] for at in sorted(lows)]

    def slope(self) -> float | None:
        """Return the growth per step, 0 if it is not in all parts of the run; None if there are too few readings."""
        lows = self._lowest()
        if len(lows) < _STRETCHES // 2:
            return None
        # The median of the slopes between all pairs (Theil and Sen): a single jump does not count.
        slopes = sorted((b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(lows) for b in lows[i + 1 :] if b[0] > a[0])
        return max(0.0, slopes[len(slopes) // 2]) if slopes else None

    def span(self) -> tuple[int, int] | None:
        """Return the first and the last step that the slope is made of; None if there is none."""
        lows = self._lowest()
        return (lows[0][0], lows[-1][0]) if len(lows) >= _STRETCHES // 2 else None

    def grows(self) -> bool:
        """Return True if it has grown for long and by much, in nearly all stretches."""
        lows = self._lowest()
        if len(lows) < _STRETCHES // 2 or lows[-1][0] - lows[0][0] < _LONG:
            return False
        risen = lows[-1][1] - lows[0][1]
        steady = sum(b[1] > a[1] for a, b in pairwise(lows)) >= len(lows) - 2
        return steady and risen > max(_LARGE, _SHARE * lows[0][1])
