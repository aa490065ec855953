"""Regimes with hysteresis: masks of what is bad and what is calm enter, events that begin, last and end leave.

An episode begins when a place was bad in all observations of ``enter_steps`` steps, or at once where ``certain`` says
so. Its first step is the first of those, so that being bad from step 0 on is an event of step 0. It ends after
``leave_steps`` calm observations in a row; between bad and calm it lasts.

Where steps go by unread (light steps), those between two bad observations count as bad, but a quarter of
``enter_steps``, and three, must have been observed. Nothing is ever concluded from a light step itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.nouns import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]
    Describe = Callable[[int], "tuple[float, dict[str, Any]]"]

REFRESH = 16
"""An event that lasts is given again when it has grown by 1/16 of its age: long ones cost nothing, young ones are
fresh."""

LEAST = 3
"""Observations that an episode takes at least, or all of its ``enter_steps`` if these are fewer."""

Place = tuple["str | None", str]
"""Where an episode is: layer path and site label."""


def carry(old: Sequence[Any], new: Sequence[Any], values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
    """Bring an array over ``old`` keys into the order of ``new`` ones, a superset; new keys get ``fill``."""
    moved = np.full(len(new), fill, dtype=values.dtype)
    where = {key: i for i, key in enumerate(old)}
    for i, key in enumerate(new):
        if key in where:
            moved[i] = values[where[key]]
    return moved


def _least(steps: int) -> int:
    """Observations that must be bad for an episode of so many steps."""
    return max(min(LEAST, steps), steps // 4)


class Episodes:
    """Episodes of one kind of event at many places, judged together."""

    def __init__(self, kind: str, transition: str, *, enter_steps: int = 1, leave_steps: int = 1) -> None:
        self.kind = kind
        self.transition = transition
        self.enter_steps = enter_steps
        self.leave_steps = leave_steps
        self.places: tuple[Place, ...] = ()
        self.enter_seen = _least(enter_steps)
        self.run: Ints = np.zeros(0, np.int64)
        """Bad observations in a row."""
        self.unread: Ints = np.zeros(0, np.int64)
        """Light steps that went by between them."""
        self.missed: Ints = np.zeros(0, np.int64)
        """What was given as ``missed`` at the last bad observation."""
        self.quiet: Ints = np.zeros(0, np.int64)
        self.since: Ints = np.zeros(0, np.int64)
        self.last: Ints = np.zeros(0, np.int64)
        self.due: Ints = np.zeros(0, np.int64)
        self.active: Bools = np.zeros(0, np.bool_)
        self._said: dict[Place, tuple[float, dict[str, Any]]] = {}
        self._busy = False

    @property
    def idle(self) -> bool:
        """Return True if nothing is bad or was so in the last observation: then calm observations may be left out."""
        return not self._busy

    def resize(self, places: Sequence[Place]) -> None:
        """Judge these places from now on: all those of before, in any order, and new ones."""
        places = tuple(places)
        for name in ("run", "unread", "missed", "quiet", "since", "last", "due", "active"):
            setattr(self, name, carry(self.places, places, getattr(self, name), 0))
        self.places = places

    def observe(
        self,
        index: int,
        bad: Bools,
        calm: Bools,
        describe: Describe,
        certain: Bools | None = None,
        *,
        missed: int = 0,
    ) -> list[Event]:
        """Take one observation; the masks are over places, and neither is true where nothing was seen.

        ``describe(i)`` gives confidence and details of place i; it is called when an event begins or is given again.
        ``missed`` is the number of light steps in the run up to now (`Readings.missed`).
        """
        if not self._busy and not bad.any():
            return []
        fresh = bad & (self.run == 0)
        self.since[fresh & ~self.active] = index
        self.run[bad] += 1
        self.run[calm] = 0
        if missed:
            self.unread = np.where(fresh, 0, self.unread + np.where(bad, missed - self.missed, 0))
            self.missed[bad] = missed
            lasted = (self.run + self.unread >= self.enter_steps) & (self.run >= self.enter_seen)
        else:
            lasted = self.run >= self.enter_steps
        began = bad & ~self.active & lasted
        if certain is not None:
            began |= bad & ~self.active & certain
        self.active |= began
        self.quiet[calm] += 1
        self.quiet[~calm & bad] = 0
        self.last[self.active & bad] = index
        ended = self.active & (self.quiet >= self.leave_steps)
        events = self._tell(index, began, ended, bad, describe)
        self.active &= ~ended
        self._busy = bool(self.active.any() or self.run.any())
        return events

    def _tell(self, index: int, began: Bools, ended: Bools, bad: Bools, describe: Describe) -> list[Event]:
        told = np.flatnonzero(self.active & (began | ended | (bad & (self.due <= index))))
        events = []
        for i in told.tolist():
            place = self.places[i]
            if not ended[i]:
                self._said[place] = describe(i)
                self.due[i] = index + max(1, (index - int(self.since[i])) // REFRESH)
            events.append(self._event(i))
            if ended[i]:
                del self._said[place]
        return events

    def ongoing(self) -> list[Event]:
        """The events that last, up to date."""
        return [self._event(i) for i in np.flatnonzero(self.active).tolist()]

    def _event(self, i: int) -> Event:
        layer, site = self.places[i]
        confidence, details = self._said[self.places[i]]
        first, last = int(self.since[i]), int(self.last[i])
        return Event(self.kind, self.transition, first, max(first, last), layer, site, confidence, details)


class Episode:
    """Episodes of one kind at one place, in plain numbers: what `Episodes` is for many places."""

    def __init__(self, kind: str, transition: str, *, enter_steps: int = 1, leave_steps: int = 1) -> None:
        self.kind = kind
        self.transition = transition
        self.enter_steps = enter_steps
        self.leave_steps = leave_steps
        self.enter_seen = _least(enter_steps)
        self.active = False
        self.unread = self.missed = 0
        self.run = self.quiet = self.since = self.last = self.due = 0
        self.layer: str | None = None
        self.site = ""
        self._said: tuple[float, dict[str, Any]] = (0.0, {})

    def observe(
        self,
        index: int,
        bad: bool,
        calm: bool,
        describe: Callable[[], tuple[float, dict[str, Any]]],
        *,
        certain: bool = False,
        since: int | None = None,
        missed: int = 0,
    ) -> list[Event]:
        """Take one observation. ``since`` overrides the first step of an episode that begins now."""
        if bad:
            if self.run == 0 and not self.active:
                self.since = index
            self.unread = self.unread + missed - self.missed if self.run else 0
            self.missed = missed
            self.run += 1
            self.quiet = 0
        elif calm:
            self.run = 0
            self.quiet += 1
        lasted = self.run >= self.enter_seen and self.run + self.unread >= self.enter_steps
        began = bad and not self.active and (certain or lasted)
        if began:
            self.active = True
            self.since = self.since if since is None else since
        if not self.active:
            return []
        if bad:
            self.last = index
        if self.quiet >= self.leave_steps:
            event = self.event()
            self.active = False
            return [event]
        if not began and not (bad and self.due <= index):
            return []
        self._said = describe()
        self.due = index + max(1, (index - self.since) // REFRESH)
        return [self.event()]

    def event(self) -> Event:
        """The event as it stands."""
        confidence, details = self._said
        last = max(self.since, self.last)
        return Event(self.kind, self.transition, self.since, last, self.layer, self.site, confidence, details)

    def ongoing(self) -> list[Event]:
        """The event if it lasts."""
        return [self.event()] if self.active else []
