"""The usual size of a number, such as a loss or the norm of the gradients, and the bound above which it is unusual."""

from __future__ import annotations

import math

FAR = 8.0
"""Mean absolute deviations from the running mean beyond which a number is unusual."""
KNOWN = 16
"""Count of numbers from which on the running mean is used."""
LEFT, RUN = 2.0, 12
"""Mean absolute deviations above its level, and numbers in a row that lie there, by which a loss has left its level."""
SLOW = 128
"""Numbers over which a level is averaged, and twice those from which on it is known at first."""


class _Running:
    """A running mean of a number, and its mean absolute deviation."""

    def __init__(self) -> None:
        self._mean = self._spread = 0.0
        self._seen = 0

    def _take(self, off: float, memory: int) -> None:
        """Take a number that is ``off`` the mean into both: as one of all so far, or of about ``memory`` if there are
        more.
        """
        self._seen += 1
        weight = max(1 / self._seen, 1 / memory)
        self._mean += weight * off
        self._spread += weight * (abs(off) - self._spread)


class Level(_Running):
    """The level of a loss, and the numbers in a row above it: a rise of some deviations that stays is no single
    unusual number.
    """

    def __init__(self) -> None:
        super().__init__()
        self._above = 0
        self._needed = SLOW // 2
        """Numbers from which on the level is known: ever more for a loss that leaves it again and again, as that of
        optimizers by turns.
        """

    def left(self, value: float) -> bool:
        """Return True if a loss lies above its level for the ``RUN``-th time in a row. Then a new level begins."""
        if not math.isfinite(value):
            return False
        off = value - self._mean
        known = self._seen >= self._needed
        self._above = self._above + 1 if known and off > LEFT * self._spread + 0.01 * abs(self._mean) else 0
        if self._above == RUN:
            self._mean, self._spread, self._seen, self._above = 0.0, 0.0, 0, 0
            self._needed *= 2
            return True
        self._take(off, SLOW)
        return False


class Usual(_Running):
    """The usual size of a number, by its running mean."""

    @property
    def state(self) -> tuple[float, float, float]:
        """(mean, mean absolute deviation, count of values): native code continues from there, and returns its own."""
        return self._mean, self._spread, float(self._seen)

    @state.setter
    def state(self, state: tuple[float, float, float]) -> None:
        self._mean, self._spread, self._seen = state[0], state[1], int(state[2])

    @property
    def bound(self) -> float:
        """The size above which a number is unusual."""
        return abs(self._mean) * 1.01 + FAR * self._spread if self._seen >= KNOWN else math.inf

    def odd(self, value: float) -> bool:
        """Return True if a number is far above the usual or not finite; it then hardly changes the usual."""
        if not math.isfinite(value):
            return True
        off = value - self._mean
        if self._seen >= KNOWN and off > FAR * self._spread + 0.01 * abs(self._mean):
            # If more like it follow they become the usual over time; a single one, however far, hardly counts.
            off = min(off, 2 * FAR * self._spread)
            self._mean += off / 64
            self._spread += (off - self._spread) / 64
            return True
        self._take(off, 32)
        return False
