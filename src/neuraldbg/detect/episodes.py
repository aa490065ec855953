"""Regimes with hysteresis: masks of bad and calm places in, events that begin, last and end out.

An episode begins when a place was bad in all observations of ``enter_steps`` steps, or at once if ``certain`` is True.
Its first step is the first of those, so that being bad from step 0 on is an event of step 0. It ends after
``leave_steps`` calm observations in a row; between bad and calm it lasts.

Light steps between two bad observations count as bad, but a quarter of ``enter_steps``, and three, must have been
observed. Nothing is concluded from a light step itself.
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
"""Share of its age, 1/16, by which an event must have grown to be returned again: a long one costs little, a young one
is up to date."""

LEAST = 3
"""Bad observations that an episode needs at least, or ``enter_steps`` if these are fewer."""

Place = tuple["str | None", str]
"""Layer path and site label of an episode."""


def carry(old: Sequence[Any], new: Sequence[Any], values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
    """Reorder an array over ``old`` keys to the order of ``new`` ones, a superset; new keys get ``fill``."""
    moved = np.full(len(new), fill, dtype=values.dtype)
    where = {key: i for i, key in enumerate(old)}
    for i, key in enumerate(new):
        if key in where:
            moved[i] = values[where[key]]
    return moved


def _least(steps: int) -> int:
    """Return the number of bad observations that an episode of ``steps`` steps needs."""
    return max(min(LEAST, steps), steps // 4)


class Episodes:
    """The episodes of one kind of event at many places, judged together as arrays over places."""

    def __init__(self, kind: str, transition: str, *, enter_steps: int = 1, leave_steps: int = 1) -> None:
        self.kind = kind
        self.transition = transition
        self.enter_steps = enter_steps
        self.leave_steps = leave_steps
        self.places: tuple[Place, ...] = ()
        self.enter_seen = _least(enter_steps)
        self.run: Ints = np.zeros(0, np.int64)
        """Number of bad observations in a row."""
        self.unread: Ints = np.zeros(0, np.int64)
        """Number of light steps between the bad observations."""
        self.missed: Ints = np.zeros(0, np.int64)
        """Value of ``missed`` at the last bad observation."""
        self.quiet: Ints = np.zeros(0, np.int64)
        """Number of calm observations since the last bad one."""
        self.since: Ints = np.zeros(0, np.int64)
        """First step of the episode, or of the bad observations in a row."""
        self.last: Ints = np.zeros(0, np.int64)
        """Last bad step of an active episode."""
        self.due: Ints = np.zeros(0, np.int64)
        """Step from which a lasting event is returned again."""
        self.active: Bools = np.zeros(0, np.bool_)
        """True where an episode lasts."""
        self._said: dict[Place, tuple[float, dict[str, Any]]] = {}
        self._busy = False

    @property
    def idle(self) -> bool:
        """True if no place is bad, or was bad in the last observation: calm observations may then be left out."""
        return not self._busy

    def resize(self, places: Sequence[Place]) -> None:
        """Set the places that are judged from now on: all earlier ones, in any order, and new ones."""
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
        ready: Bools | None = None,
        missed: int = 0,
        since: Ints | None = None,
    ) -> list[Event]:
        """Judge one observation. The masks have the shape (places,), and both are False where no site was read.

        ``describe(i)`` returns confidence and details of place i; it is called when an event begins or is returned
        again, and the details get that step, ``at_step``. Where ``ready`` is False a bad observation counts, but no
        episode begins. ``missed`` is the number of light steps so far (`Readings.missed`). ``since`` overrides the
        first step of episodes that begin now, for readings that tell how long a place was bad before.
        """
        if not self._busy and not bad.any():
            return []
        # An active episode keeps its first step, also after calm observations that were too few to end it.
        fresh = bad & (self.run == 0)
        begins = fresh & ~self.active
        self.since[begins] = index if since is None else since[begins]
        self.run[bad] += 1
        self.run[calm] = 0
        # Light steps between two bad observations count toward ``enter_steps``, not toward ``enter_seen``.
        if missed:
            self.unread = np.where(fresh, 0, self.unread + np.where(bad, missed - self.missed, 0))
            self.missed[bad] = missed
            lasted = (self.run + self.unread >= self.enter_steps) & (self.run >= self.enter_seen)
        else:
            lasted = self.run >= self.enter_steps
        began = bad & ~self.active & lasted
        if certain is not None:
            began |= bad & ~self.active & certain
        if ready is not None:
            began &= ready
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
                confidence, details = describe(i)
                self._said[place] = confidence, {"at_step": index, **details}
                self.due[i] = index + max(1, (index - int(self.since[i])) // REFRESH)
            events.append(self._event(i))
            if ended[i]:
                del self._said[place]
        return events

    def ongoing(self) -> list[Event]:
        """Return the events that last, with their newest last step."""
        return [self._event(i) for i in np.flatnonzero(self.active).tolist()]

    def _event(self, i: int) -> Event:
        layer, site = self.places[i]
        confidence, details = self._said[self.places[i]]
        first, last = int(self.since[i]), int(self.last[i])
        return Event(self.kind, self.transition, first, max(first, last), layer, site, confidence, details)


class Weaker:
    """The episodes of one kind on weaker grounds, at the same places as those on stronger grounds.

    Where an episode on stronger grounds lasts, or has the same first step, only that one is returned.
    """

    def __init__(self, own: Episodes, stronger: Episodes) -> None:
        self._own, self._stronger = own, stronger
        self._begun: dict[str, int] = {}
        """First step of the newest episode on stronger grounds, by site."""

    @property
    def idle(self) -> bool:
        """True if no place is bad, or was bad in the last observation."""
        return self._own.idle

    def resize(self, places: Sequence[Place]) -> None:
        """Set the places that are judged from now on."""
        self._own.resize(places)

    def observe(
        self, index: int, bad: Bools, calm: Bools, describe: Describe, told: list[Event], *, missed: int = 0
    ) -> list[Event]:
        """Judge one observation, after the stronger episodes did, which returned ``told``. Return the events of both.
        Parameters are as in `Episodes.observe`.
        """
        self._begun.update((event.site, event.first_step) for event in told)
        return told + self._left(self._own.observe(index, bad, calm, describe, missed=missed))

    def ongoing(self) -> list[Event]:
        """Return the events of both that last."""
        return self._stronger.ongoing() + self._left(self._own.ongoing())

    def _left(self, events: list[Event]) -> list[Event]:
        if not events:
            return events
        lasting = {self._stronger.places[i][1] for i in np.flatnonzero(self._stronger.active).tolist()}
        return [e for e in events if e.site not in lasting and self._begun.get(e.site) != e.first_step]


class Episode:
    """The episodes of one kind at one place, in Python's numbers: the counterpart of `Episodes` for many places."""

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
        """Judge one observation. ``since`` overrides the first step of an episode that begins now. Parameters are as in
        `Episodes.observe`.
        """
        # Between bad and calm nothing changes: that is the hysteresis.
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
        confidence, details = describe()
        self._said = confidence, {"at_step": index, **details}
        self.due = index + max(1, (index - self.since) // REFRESH)
        return [self.event()]

    def event(self) -> Event:
        """Return the newest version of the event."""
        confidence, details = self._said
        last = max(self.since, self.last)
        return Event(self.kind, self.transition, self.since, last, self.layer, self.site, confidence, details)

    def ongoing(self) -> list[Event]:
        """Return the event if it lasts."""
        return [self.event()] if self.active else []
