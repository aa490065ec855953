"""The contract of a sink: alerts in, delivered where a person will see them; all of it on the thread of ours.

A sink that works at once (the file) is done when ``put`` returns. One that takes time (a command, a webhook) takes one
alert at a time: ``busy`` is True until it is through with it, and ``turn`` lets it go on without waiting for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neuraldbg.nouns.alert import Alert


class NotDelivered(Exception):
    """Raised by a sink that could not deliver an alert. Its text says why, and holds no path of an address."""


class Sink(Protocol):
    """The interface of a sink."""

    @property
    def name(self) -> str:
        """The sink as a sentence names it: "the file alerts.jsonl"."""
        ...

    @property
    def busy(self) -> bool:
        """True if the sink has begun with an alert and is not through with it: it takes no other."""
        ...

    def put(self, alert: Alert) -> None:
        """Begin to deliver an alert. Raises NotDelivered."""
        ...

    def turn(self, left_s: float | None) -> None:
        """Go on with the alert that was begun; ``left_s`` is the time until the session is over, None if it goes on.
        Raises NotDelivered.
        """
        ...

    def abandon(self) -> None:
        """Give up the alert that was begun, and leave no process behind."""
        ...
