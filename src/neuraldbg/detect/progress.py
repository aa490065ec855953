"""The progress of a stream's loss: its start, best level, present level and noise; and a sorted window of values.

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
"""Losses whose mean is the starting level."""
BLOWN = 10.0
"""Distance of a second or third loss from the first, in units of the first, above which it is not part of the start."""
SPAN = 10
"""Time constant, in steps, of the moving level and of the noise."""
IQR_OF_SIGMA = 1.349
"""The interquartile range of a normal distribution in units of its standard deviation."""
SIGMA_OF_DIFF = math.sqrt(math.pi) / 2
"""Standard deviation of white normal noise in units of the mean absolute difference of neighbours."""


class Progress:
    """The start, best level, present level and noise of one loss."""

    __slots__ = ("best", "count", "diff", "last", "level", "start")

    def __init__(self) -> None:
        self.count = 0
        self.start = self.level = self.best = self.last = math.nan
        self.diff = 0.0

    def add(self, loss: float) -> None:
        """Add one finite loss."""
        self.count = count = self.count + 1
        if count == 1:
            self.start = self.level = self.best = self.last = loss
            return
        change = loss - self.last if loss > self.last else self.last - loss
        if count > SPAN:
            weight = 1.0 / SPAN
            most = 5.0 * self.diff + 1e-12
            if change > most:  # a spike must not count as noise
                change = most
        else:
            weight = 1.0 / count
            if count <= START and abs(loss - self.start) <= BLOWN * abs(self.start):
                self.start += (loss - self.start) / count
        self.diff += weight * (change - self.diff)
        self.level = level = self.level + weight * (loss - self.level)
        self.last = loss
        if level < self.best:
            self.best = level

    @property
    def noise(self) -> float:
        """Standard deviation of the loss from step to step around its trend."""
        return SIGMA_OF_DIFF * self.diff

    def learned(self, share: float = 0.1) -> bool:
        """Return True if the loss fell by ``share`` of its start and clearly beyond its noise, and has stayed down."""
        fall = self.start - self.best
        return fall > max(share * abs(self.start), 3.0 * self.noise) and self.level - self.best < 0.3 * fall


class Progresses:
    """The progress of the losses of all streams; a second call for the same step returns the same object."""

    def __init__(self) -> None:
        self._of: dict[int, Progress] = {}
        self._latest: Progress | None = None
        self._step: Step | None = None
        self._said: Progress | None = None

    def observe(self, step: Step) -> Progress | None:
        """Add a step's loss. Return the progress of its stream, or the newest one if its stream has no loss."""
        if step is self._step:
            return self._said
        self._step = step
        loss = step.scalars.get("loss")
        known = self._of.get(step.stream)
        if loss is None or not math.isfinite(loss):
            self._said = known or self._latest
            return self._said
        if known is None:
            known = self._of[step.stream] = Progress()
        known.add(loss)
        self._latest = self._said = known
        return known


class Window:
    """The last values, kept sorted: median, quartiles and extremes by index, robust to a quarter of outliers."""

    __slots__ = ("_queue", "ordered", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: deque[float] = deque()
        self.ordered: list[float] = []
        """Values in the window, smallest first."""

    def __len__(self) -> int:
        return len(self.ordered)

    def add(self, value: float) -> None:
        """Add a finite value. In a full window it replaces the oldest."""
        queue, ordered = self._queue, self.ordered
        if len(queue) == self.size:
            del ordered[bisect_left(ordered, queue.popleft())]
        queue.append(value)
        insort(ordered, value)

    def clear(self) -> None:
        """Remove all values."""
        self._queue.clear()
        self.ordered.clear()

    def quantile(self, share: float) -> float:
        """Return the value below which ``share`` of the window lies (nearest rank)."""
        return self.ordered[min(int(share * len(self.ordered)), len(self.ordered) - 1)]

    @property
    def median(self) -> float:
        """The median (upper one of an even window)."""
        return self.ordered[len(self.ordered) // 2]

    @property
    def low(self) -> float:
        """The smallest value."""
        return self.ordered[0]

    @property
    def high(self) -> float:
        """The largest value."""
        return self.ordered[-1]

    @property
    def sigma(self) -> float:
        """Robust standard deviation: interquartile range / 1.349."""
        return (self.quantile(0.75) - self.quantile(0.25)) / IQR_OF_SIGMA
