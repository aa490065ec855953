"""Threads that are not followed, and the account of their training."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_NAMES = 4
"""Threads that a sentence names at most."""
FEW = 2
"""Steps of a thread that may pass before its part in the followed training is known."""


class Runner:
    """A thread by its number, listed by ``threading`` or not: Qt and ``_thread`` start unlisted ones."""

    def __init__(self, ident: int) -> None:
        thread = next((each for each in threading.enumerate() if each.ident == ident), None)
        listed = thread is not None and not isinstance(thread, threading._DummyThread)  # noqa: SLF001 (it never ends)
        self._ident, self._thread = ident, weakref.ref(thread) if thread is not None and listed else None
        self.name = thread.name if thread is not None else f"thread {ident}"

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        if self._thread is None:
            return self._ident in sys._current_frames()  # noqa: SLF001 (no public way)
        thread = self._thread()
        return thread is not None and thread.is_alive()


class Stranger:
    """A thread that is not the owner, and the account of its training."""

    def __init__(self, ident: int) -> None:
        self._runner = Runner(ident)
        self.name = self._runner.name
        self.apart = False
        """True if the thread's newest operation that was not followed belongs to a training of its own."""
        self.helps = False
        """True if a backward pass of it has gone through a tensor that the owner computed."""
        self.tried = False
        """True if the thread was the owner without training, or has displaced an untrained one within a step."""
        self.called = self.joins = False
        """True if the thread has called the followed model with gradients (``called``), and then stepped its parameters
        (``joins``)."""
        self.followed = False
        """True if the thread has trained as the owner since."""
        self.running = 0
        """Number of backward passes that are running."""
        self.backwards = self.steps = 0
        """Number of backward passes and optimizer steps that were not followed."""
        self.uses: set[Any] = set()
        """The watched models that the thread has called."""
        self.again = 0.0
        """Time of ``clocks.perf_counter`` from which on its calls are checked again, in seconds."""

    @property
    def midway(self) -> bool:
        """True if the thread is well into a training of its own that is not followed."""
        return max(self.steps, self.backwards) > FEW and not (self.joins or self.helps)

    @property
    def ended(self) -> bool:
        """True if the thread has ended: another may have its number by now."""
        return not self._runner.alive


class Missed(NamedTuple):
    """Steps and backward passes of one thread that were not followed."""

    steps: int
    backwards: int

    def plus(self, other: Missed) -> Missed:
        """Return the sums of both."""
        return Missed(self.steps + other.steps, self.backwards + other.backwards)


def missed_by(one: Stranger) -> Missed | None:
    """Return the counts to report, None if there are only the first steps of a thread that was then followed."""
    joined = one.joins or one.helps or one.followed
    return Missed(one.steps, one.backwards) if max(one.steps, one.backwards) > (FEW if joined else 0) else None


def unread(missed: Mapping[str, Missed], names: Collection[str]) -> dict[str, str]:
    """Return sentences about the threads that trained and were not followed, as {subject: rest}. ``names`` are those of
    the threads that were followed.
    """
    if not missed:
        return {}
    steps, backwards = (sum(each) for each in zip(*missed.values(), strict=True))
    rest = f"({_counted(steps, 'step') if steps else _counted(backwards, 'backward pass', 'es')} not read)"
    did = "trained" if steps else "ran backward passes"
    others = [name for name in missed if name not in names]
    if not others:
        return {_listed(list(missed)): f"also {did} while another thread was followed {rest}"}
    followed = list(names) or ["none"]
    only = f"only the first, {followed[0]}, was" if len(followed) == 1 else f"only {_listed(followed)} were"
    threads = "1 other thread" if len(others) == 1 else f"{len(others)} other threads"
    return {threads: f"{did} ({_listed(others)}): {only} followed {rest}"}


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")


def _counted(number: int, what: str, plural: str = "s") -> str:
    return f"1 {what} was" if number == 1 else f"{number:,} {what}{plural} were"
