"""What a stream's loss has done so far: where it began, its best level, where it is, how noisy it is.

Losses may be negative, cross zero, or be heavy-tailed: levels are compared by differences, never by ratios to a mean.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.nouns import Step

START = 3
"""Losses that make the starting level."""
BLOWN = 10.0
"""A second or third loss that is this far from the first, in units of it, is what became of the start."""
SPAN = 10
"""Time constant, in steps, of the moving level and of the noise."""
IQR_OF_SIGMA = 1.349
"""The interquartile range of a normal distribution in units of its standard deviation."""
SIGMA_OF_DIFF = math.sqrt(math.pi) / 2
"""Standard deviation of white normal noise from the mean absolute difference of neighbours."""


class Progress:
    """The course of one loss."""

    __slots__ = ("best", "count", "diff", "last", "level", "start")

    def __init__(self) -> None:
        self.count = 0
        self.start = self.level = self.best = self.last = math.nan
        self.diff = 0.0

    def add(self, loss: float) -> None:
        """Take one finite loss."""
        self.count += 1
        if self.count == 1:
            self.start = self.level = self.best = self.last = loss
            return
        weight = 1.0 / min(self.count, SPAN)
        change = abs(loss - self.last)
        if self.count > SPAN:
            change = min(change, 5.0 * self.diff + 1e-12)  # a spike must not pass for noise
        self.diff += weight * (change - self.diff)
        self.level += weight * (loss - self.level)
        self.last = loss
        if self.count <= START and abs(loss - self.start) <= BLOWN * abs(self.start):
            self.start += (loss - self.start) / self.count
        self.best = min(self.best, self.level)

    @property
    def noise(self) -> float:
        """Standard deviation of the loss from step to step around its trend."""
        return SIGMA_OF_DIFF * self.diff

    def learned(self, share: float = 0.1) -> bool:
        """Whether the loss fell by a share of its start and clearly beyond its noise, and has stayed down."""
        fall = self.start - self.best
        return fall > max(share * abs(self.start), 3.0 * self.noise) and self.level - self.best < 0.3 * fall


class Progresses:
    """The courses of all streams."""

    def __init__(self) -> None:
        self._of: dict[int, Progress] = {}
        self._latest: Progress | None = None

    def observe(self, step: Step) -> Progress | None:
        """Take a step's loss and give the course that judges it: its stream's, or the latest if it has none."""
        loss = step.loss
        known = self._of.get(step.stream)
        if loss is None or not math.isfinite(loss):
            return known or self._latest
        if known is None:
            known = self._of[step.stream] = Progress()
        known.add(loss)
        self._latest = known
        return known


class Window:
    """The last values, kept sorted: median, quartiles and extremes at no cost, robust to a quarter of outliers."""

    __slots__ = ("_queue", "_sorted", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Take a finite value; the oldest leaves when the window is full."""
        if len(self._queue) == self.size:
            oldest = self._queue.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
        self._queue.append(value)
        insort(self._sorted, value)

    def clear(self) -> None:
        """Forget all values."""
        self._queue.clear()
        self._sorted.clear()

    def quantile(self, share: float) -> float:
        """The value below which that share of the window lies (nearest rank)."""
        return self._sorted[min(int(share * len(self._sorted)), len(self._sorted) - 1)]

    @property
    def median(self) -> float:
        """The median (upper one of an even window)."""
        return self._sorted[len(self._sorted) // 2]

    @property
    def low(self) -> float:
        """The smallest value."""
        return self._sorted[0]

    @property
    def high(self) -> float:
        """The largest value."""
        return self._sorted[-1]

    @property
    def sigma(self) -> float:
        """Robust standard deviation: interquartile range / 1.349."""
        return (self.quantile(0.75) - self.quantile(0.25)) / IQR_OF_SIGMA
