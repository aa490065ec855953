"""The rate limit of alerts: the first one at once, then at most one in so many seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg import clocks

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from neuraldbg.nouns.alert import Alert

KEPT = 1_000
"""Rules that are remembered at most: a program may put numbers into the names of its own."""


class RateLimit:
    """Admits alerts, each kind of them at most once in some seconds; of those held back the newest is kept."""

    def __init__(self, clock: Callable[[], float] = clocks.monotonic) -> None:
        self._clock = clock
        self._told: dict[Hashable, float] = {}
        """Time at which each kind of alert was told last."""
        self._held: dict[Hashable, Alert] = {}
        """The newest alert of each kind that was held back; its ``held_back`` counts those before it."""

    def admit(self, key: Hashable, alert: Alert, every_s: float) -> Alert | None:
        """Return an alert with the number of those held back before it; None if it is held back itself."""
        now, last, held = self._clock(), self._told.get(key), self._held.get(key)
        alert = replace(alert, held_back=held.held_back + 1 if held is not None else 0)
        if last is not None and now - last < every_s:
            self._held[key] = alert
            return None
        self._told.pop(key, None)
        self._told[key] = now
        self._held.pop(key, None)
        if len(self._told) > KEPT:
            oldest = next(iter(self._told))
            del self._told[oldest]
            self._held.pop(oldest, None)
        return alert

    def rest(self) -> list[Alert]:
        """Return the newest alert of each kind that is held back, when the session ends, and forget them."""
        rest, self._held = list(self._held.values()), {}
        return rest
