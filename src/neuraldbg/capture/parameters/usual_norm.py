"""The usual size of a number, such as a loss or the norm of the gradients, and the bound above which it is odd."""

from __future__ import annotations

import math

_FAR = 8.0
"""Mean absolute deviations from the running mean that make a number suspicious."""
_KNOWN = 16
"""Numbers from which on there is a mean to deviate from."""


class Usual:
    """The usual size of a number: running mean, and mean absolute deviation, of it or of the logarithm of its size."""

    def __init__(self) -> None:
        self._mean = self._spread = 0.0
        self._seen = 0

    @property
    def state(self) -> tuple[float, float, float]:
        """Mean, spread and the number of values behind them: native code goes on from there, and gives it back."""
        return self._mean, self._spread, float(self._seen)

    @state.setter
    def state(self, state: tuple[float, float, float]) -> None:
        self._mean, self._spread, self._seen = state[0], state[1], int(state[2])

    @property
    def bound(self) -> float:
        """The size from which on a number is odd."""
        return abs(self._mean) * 1.01 + _FAR * self._spread if self._seen >= _KNOWN else math.inf

    def odd(self, value: float) -> bool:
        """Return True if a number is far above the usual or not finite; then it leaves the usual as it is."""
        if not math.isfinite(value):
            return True
        off = value - self._mean
        if self._seen >= _KNOWN and off > _FAR * self._spread + 0.01 * abs(self._mean):
            # Further ones like it are the new usual, by and by; a single one, however far, hardly counts.
            off = min(off, 2 * _FAR * self._spread)
            self._mean += off / 64
            self._spread += (off - self._spread) / 64
            return True
        self._seen += 1
        weight = max(1 / self._seen, 1 / 32)
        self._mean += weight * off
        self._spread += weight * (abs(off) - self._spread)
        return False
