"""The thread whose training is followed, and the note of what other threads trained beside it.

The table of a session, its plans and its newest step have one owner: a thread. What comes from the program (a call of a
model, a backward pass, a step of an optimizer) is read in that thread alone. In every other thread it passes through,
and is counted for ``coverage``.

The first thread that trains is the owner. Another becomes the owner

- when that thread has ended, has trained nothing yet, or has done nothing for ``IDLE_S`` seconds;
- between two steps, when it calls the followed model and has trained it before: workers of a pool take turns with one
  model, and another thread may score what the owner trains;
- within a step, when it does a part of that step and trains nothing of its own: one that only calls backward, or steps
  the optimizer;

but never while a call, a backward pass or a step of the owner is under way.

Python switches threads between any two of its instructions, so an operation says that it begins before it looks whether
its thread is the owner (``claims``), and who wants to be the owner says so before it looks whether one is under way
(``asks``): one of the two sees the other. Only threads that are not the owner ever take the lock.
"""

from __future__ import annotations

import contextlib
import threading
import time
from threading import get_ident
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.capture.guest import Switch
    from neuraldbg.capture.hooks import HookManager
    from neuraldbg.capture.light import Light

IDLE_S = 5.0
"""Seconds without an operation after which the owner makes way for another thread that trains."""
_QUESTION_S = 1.0
"""Seconds that an operation of the owner waits at most for a question of another thread to be answered."""
_POLL_S = 0.0005
_NAMES = 4
"""Threads that are named."""
_FEW = 2
"""Steps of a thread that may go by before it is known to have a part in what is followed."""

Operation = Literal["call", "backward", "step"]


class Stranger:
    """A thread that is not the owner, and what it has trained meanwhile."""

    def __init__(self, thread: threading.Thread | None, ident: int) -> None:
        self.thread = thread
        self.name = thread.name if thread is not None else f"thread {ident}"
        self.apart = False
        """Whether its newest operation that was not followed belongs to a training of its own."""
        self.helps = False
        """Whether a backward pass of its has gone through what the owner computed."""
        self.called = self.joins = False
        """Whether it has called the followed model with gradients, and whether it has then stepped its parameters."""
        self.running = 0
        """Backward passes that are under way."""
        self.backwards = self.steps = 0
        """Backward passes and optimizer steps that were not followed."""

    @property
    def ended(self) -> bool:
        """Whether the thread has ended: another may have its number by now."""
        return self.thread is not None and not self.thread.is_alive()


class Owner:
    """Decides whose operations are followed."""

    def __init__(self, switch: Switch, hooks: HookManager) -> None:
        self.switch, self.hooks = switch, hooks
        self.light: Light
        self.busy: Callable[[], bool] = lambda: False
        """Tells whether an operation of the owner is under way in Python."""
        self.differentiating: Callable[[], bool] = lambda: False
        """Tells whether a backward pass of the owner is under way."""
        self.release: Callable[[], None] = lambda: None
        """Called when the owner has ended, or is given up: none of its operations is under way any more."""
        self.progress: Callable[[], object] = lambda: None
        """Tells how far the owner has come: equal values mean that it did nothing in between."""
        self.claiming = False
        """Whether an operation of the owner has begun, and not ended as far as is known."""
        self.open = False
        """Whether the owner is within a step: it has called a model with gradients, and not yet stepped."""
        self.trained = False
        """Whether a backward pass of the owner has reached a watched model."""
        self.names: dict[str, None] = {}
        """Names of the threads that have been the owner and trained, in order."""
        self.strangers: dict[int, Stranger] = hooks.table.strangers
        self._past: list[Stranger] = []
        self._trainers: set[int] = set()
        """Threads that have been the owner when a backward pass reached the model."""
        self._lock = threading.Lock()
        self._asking = False
        self._silent: tuple[object, float] = (None, 0.0)
        self._thread: threading.Thread | None = None
        switch.lends = hooks.lends = self.lends
        self.follow(get_ident())

    # -- the owner ----------------------------------------------------------------------------------------------

    def claims(self) -> bool:
        """Begin an operation, and return True, in the owner's thread."""
        me = get_ident()
        if me != self.switch.thread:
            return False
        self.claiming = True
        return me == self.switch.thread

    def lends(self) -> bool:
        """Return True in a thread of autograd's own during a backward pass of the owner: it works for the owner."""
        return self.differentiating() and in_autograd()

    def trains(self) -> None:
        """Note that a backward pass of the owner has reached a watched model: other threads no longer displace it."""
        self.trained = True
        self.names.setdefault(_name(self._thread, self.switch.thread))
        self._trainers.add(self.switch.thread)
        self.hooks.tally.follow(self.switch.thread)

    def follow(self, thread: int) -> None:
        """Follow a thread from now on. Native hooks read in any thread until it has trained."""
        self.switch.thread = self.hooks.thread = thread
        self._thread = _thread(thread)
        self.hooks.tally.follow(thread if self.trained else 0)

    # -- other threads ------------------------------------------------------------------------------------------

    def asks(self, operation: Operation, *, ours: bool, new: bool) -> bool:
        """Make this thread the owner, and begin an operation, if it may be. ``ours`` if the operation belongs to what
        is followed, ``new`` if it could begin a training that is not followed yet.
        """
        me = get_ident()
        self._wait_for_answer()
        with self._lock:
            if me == self.switch.thread:  # it was, before a question
                self.claiming = True
                return True
            stranger = self._stranger(me)
            gone = self._gone()
            within = operation != "call"
            begins = not self.trained and not (within and self.open)  # what is open may be what it goes on with
            anew = new and (gone or begins or self._idle())
            stranger.called |= ours and not within
            goes_on = ours and (not stranger.apart if within else (stranger.joins or me in self._trainers))
            if not (anew or goes_on) or not self._free(me, gone=gone, within=within or anew):
                stranger.apart |= not within
                return False
            if anew:
                self._trainers.clear()
                self.release()
                self.trained, self.open = gone and within and self.trained, False
            stranger.apart = False
            self.follow(me)
            if self.trained:
                self.names.setdefault(stranger.name)
            self.claiming = True
        self.light.leave()
        return True

    def _free(self, me: int, *, gone: bool, within: bool) -> bool:
        """Say that this thread wants to be the owner, then look whether the owner is at rest; else take that back."""
        before = self.switch.thread
        self.switch.thread = me
        taken = self.claiming or self.busy() or (self.open and not within) or not self.light.lends(within=within)
        if taken and not gone:
            self.switch.thread = before
            return False
        return True

    @contextlib.contextmanager
    def differentiates_beside(self) -> Iterator[None]:
        """Surround a backward pass of another thread that is not followed."""
        with self._lock:
            stranger = self._stranger(get_ident())
            stranger.running += 1
            helped, stranger.helps = stranger.helps, False
        try:
            yield
        finally:
            stranger.running -= 1
            stranger.backwards += 1
            stranger.apart = not stranger.helps
            stranger.helps |= helped

    def reached_beside(self, thread: int) -> None:
        """Note that a backward pass of another thread has gone through what ``thread`` has computed as the owner."""
        for ident, stranger in list(self.strangers.items()):
            stranger.helps |= stranger.running > 0 and ident != thread

    def steps_beside(self, *, shared: bool) -> None:
        """Count an optimizer step of another thread, ``shared`` if it changed watched parameters."""
        with self._lock:
            stranger = self._stranger(get_ident())
            stranger.steps += 1
            stranger.apart = True
            stranger.joins |= shared and stranger.called

    def _stranger(self, ident: int) -> Stranger:
        known = self.strangers.get(ident)
        if known is None or known.ended:
            if known is not None:
                self._past.append(known)
            known = self.strangers[ident] = Stranger(_thread(ident), ident)
        return known

    def _gone(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def _idle(self) -> bool:
        """Return True if the owner has done nothing for long."""
        progress, now = self.progress(), time.perf_counter()
        if progress != self._silent[0]:
            self._silent = progress, now
        return now - self._silent[1] > IDLE_S

    # -- questions ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def asked(self, patience: float, *, within: bool = False) -> Iterator[bool]:
        """Let this thread stand in the owner's place for a question. Yields False if the owner does not come to rest
        between two steps, or ``within`` one, in ``patience`` seconds.
        """
        me, until = get_ident(), time.perf_counter() + patience
        before = self.switch.thread
        lent = me == before or self._lent(me, within=within)
        while not lent and time.perf_counter() < until:
            time.sleep(_POLL_S)
            lent = self._lent(me, within=within)
        try:
            yield lent
        finally:
            if self._asking and me == self.switch.thread:
                with self._lock:
                    self.claiming = self._asking = False
                    self.switch.thread = self._before

    def _lent(self, me: int, *, within: bool) -> bool:
        with self._lock:
            if self._gone():
                self.release()
                self.follow(me)
                return True
            self._before = self.switch.thread
            self.switch.thread = me
            if self._asking or self.claiming or self.busy() or (self.open and not within) or self.light.stepping:
                self.switch.thread = self._before
                return False
            self._asking = self.claiming = True
            return True

    def seize(self) -> None:
        """Make this thread the owner whatever the other one is doing: the session ends."""
        with self._lock:
            self._asking = False
            self.follow(get_ident())

    def _wait_for_answer(self) -> None:
        until = time.perf_counter() + _QUESTION_S if self._asking else 0.0
        while self._asking and time.perf_counter() < until:
            time.sleep(_POLL_S)

    # -- what was not followed ----------------------------------------------------------------------------------

    def unread(self) -> dict[str, str]:
        """Return which threads trained and were not followed, and by how much: what, and the rest of the sentence."""
        every = [one for one in (*self._past, *self.strangers.values()) if one.steps > _FEW or one.backwards > _FEW]
        if not every:
            return {}
        steps = sum(one.steps for one in every)
        unit = "optimizer steps" if steps else "backward passes"
        missed = f"({steps or sum(one.backwards for one in every):,} {unit} were not read)"
        names = list(dict.fromkeys(one.name for one in every))
        others = [name for name in names if name not in self.names]
        if not others:
            return {_listed(names): f"also trained while another thread was followed {missed}"}
        followed = list(self.names)
        only = f"only the first, {followed[0]}, was" if len(followed) == 1 else f"only {_listed(followed)} were"
        threads = "1 other thread" if len(others) == 1 else f"{len(others)} other threads"
        return {threads: f"trained ({_listed(others)}): {only} followed {missed}"}


def in_autograd() -> bool:
    """Return True in a thread that Python has not started: during a backward pass, one of autograd's own."""
    thread = threading._active.get(get_ident())  # type: ignore[attr-defined]  # noqa: SLF001 (asking makes a dummy)
    return thread is None or isinstance(thread, threading._DummyThread)  # noqa: SLF001


def _thread(ident: int) -> threading.Thread | None:
    return next((each for each in threading.enumerate() if each.ident == ident), None)


def _name(thread: threading.Thread | None, ident: int) -> str:
    return thread.name if thread is not None else f"thread {ident}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
