"""The guard around code that runs in the user's process: errors are counted and reported once, and training goes on.

Under our own tests (environment variable NEURALDBG_STRICT) errors raise.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import gc
import os
import sys
import traceback
import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.clocks import perf_counter
from neuraldbg.errors import TrainingHalted
from neuraldbg.forks import tell_children
from neuraldbg.raised import passes, tell_mishaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def collecting_later() -> Iterator[None]:
    """Suspend Python's garbage collector while many objects are made that stay: a search through all of torch's objects
    takes longer than attaching to a thousand layers, and finds nothing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


TOO_DEEP = "RecursionError: the program's calls are nested as deeply as Python allows, and left no room to read a layer"


class Tally:
    """Counts internal errors, keeps the first one's traceback, and adds up the seconds that we spend."""

    def __init__(self) -> None:
        self.failed: dict[str, int] = {}
        """Number of errors by the work that they ended, in the words of the diagnosis: "reading losses and facts"."""
        self.first = ""
        self.seconds = 0.0
        self.parts: dict[str, float] = {}
        """Seconds by kind of work."""
        self.inside = False
        """True while our code runs, so that nested calls are not timed twice."""
        self.began = 0.0
        """Clock at which the code that is running now began."""
        self.strict = bool(os.environ.get("NEURALDBG_STRICT"))
        tell_mishaps(self)
        self.clock = np.zeros(2)
        """Shared with native hooks, shape (2,): the seconds they have taken since the last ``collect``, and the thread
        in which they read, a 64-bit integer, 0 for any."""
        self._followed: Any = memoryview(self.clock[1:].view(np.int64))  # type: ignore[arg-type]
        self._spent: Any = memoryview(self.clock)  # type: ignore[arg-type] # a number of an array that is cold takes microseconds

    def follow(self, thread: int) -> None:
        """Restrict native hooks to one thread, 0 for any."""
        self._followed[0] = thread

    def collect(self) -> None:
        """Add the time that the native hooks have taken."""
        spent = self._spent[0]
        self._spent[0] = 0.0
        self.seconds += spent
        self.parts["layers"] = self.parts.get("layers", 0.0) + spent

    def spent(self, clock: float) -> float:
        """Return the seconds that were spent until ``clock``, also by native hooks and by the code that runs now."""
        self.collect()
        return self.seconds + (max(0.0, clock - self.began) if self.inside else 0.0)

    @property
    def errors(self) -> int:
        """Number of internal errors so far."""
        return sum(self.failed.values())

    def caught(self, doing: str) -> None:
        """Count the exception being handled under the work that it ended ("reading batches"). Re-raise it in strict
        mode, and if it is the program's.
        """
        error = sys.exc_info()[1]
        if self.strict or (error is not None and passes(error)):
            raise  # noqa: PLE0704 (only called while an exception is handled)
        self.mishap(doing)

    def mishap(self, doing: str) -> None:
        """Count the exception being handled under the work that it ended, where the work could go on another way."""
        self.first = self.first or _told()
        self.failed[doing] = self.failed.get(doing, 0) + 1


def _told() -> str:
    """Return the traceback of the exception being handled, four innermost frames; its class if formatting fails."""
    try:
        return traceback.format_exc(limit=-4)
    except Exception as error:
        if passes(error):
            raise
        return str(sys.exc_info()[0])


def hook_of(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """Return a hook for a tensor of the program. torch does not warn of this hook when the program saves the tensor."""
    made = functools.partial(function, *args)
    made.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return made


class StepMode(enum.Enum):
    """The way in which the current step is read."""

    OFF = "off"
    """Nothing is read: no session runs in this process, or it is paused."""
    LIGHT = "light"
    """Scalars are read: the loss, the learning rate, the norm of the gradients."""
    SIGHTED = "sighted"
    """Sites are read as well, and facts are not: light steps of a session without a budget."""
    FULL = "full"
    """Scalars, sites and facts are read."""


class Switch:
    """The step mode of a session's wrappers: off after the session, though another tool may keep calling them, and in
    a fork.
    """

    def __init__(self) -> None:
        self.mode = StepMode.OFF
        """The mode of the current step, in the thread that is followed."""
        self.thread = get_ident()
        """The thread that is followed: see ``Owner``."""
        self.lends: Callable[[], bool] = lambda: False
        """Returns True if the current thread, another one, works for the followed thread."""
        self.hushed: Callable[[], None] = lambda: None
        """Called before a pause."""
        self._runs = False
        self._stretch = StepMode.FULL
        SWITCHES.add(self)
        tell_children(self)

    @property
    def on(self) -> bool:
        """True while the session runs in this process and is not paused."""
        return self.mode is not StepMode.OFF

    @property
    def sighted(self) -> bool:
        """True if sites are read in light steps, paused or not."""
        return self._stretch is StepMode.SIGHTED

    def turn_on(self) -> None:
        """Start, in this process."""
        self._runs = True
        self.listen()

    def turn_off(self) -> None:
        """Pass every call through from now on."""
        self._runs, self.mode = False, StepMode.OFF

    def hush(self) -> None:
        """Pass every call through until ``listen``."""
        self.hushed()
        self.mode = StepMode.OFF

    def listen(self) -> None:
        """Resume after ``hush``, unless the session has ended meanwhile."""
        self.mode = self._stretch if self._runs else StepMode.OFF

    def in_child(self) -> None:
        """Turn off in a forked child, whose copy of the session is not read."""
        self.turn_off()

    def read(self, mode: StepMode) -> None:
        """Read the steps from now on in a mode other than OFF; a pause goes on."""
        self._stretch = mode
        if self.on:
            self.mode = mode

    def in_full_step(self) -> bool:
        """Return True during a full step, in the thread that is followed."""
        return self.mode is StepMode.FULL and (get_ident() == self.thread or self.lends())

    def here(self) -> bool:
        """Return True if the session runs and the current thread is followed."""
        return self.on and (get_ident() == self.thread or self.lends())


SWITCHES: weakref.WeakSet[Switch] = weakref.WeakSet()


@contextlib.contextmanager
def sessions_paused() -> Iterator[None]:
    """Pause every session while our own code calls models, backward passes or torch functions: those calls are not part
    of the program.
    """
    listening = [switch for switch in list(SWITCHES) if switch.on]
    try:
        for switch in listening:
            switch.hush()
        yield
    finally:
        for switch in listening:
            switch.listen()


class HasTally(Protocol):
    """Any object with a ``tally`` attribute, as ``guarded`` needs it."""

    @property
    def tally(self) -> Tally:
        """The counts of errors and time."""
        ...


_PARTS = {
    "layers": "layers",
    "loop.models": "calls of models",
    "loop.backward": "losses and facts",
    "loop.optimizers": "parameters and gradients",
    "readers": "losses and facts",
    "capture": "light steps",
}
"""Kind of work by room or module of ``capture``, for the breakdown of the time and for errors; the longest name that
fits counts. All else is _WATCHING."""

_FOLLOWED = ("calls of models", "light steps")
_WATCHING = "following the training"

_CAPTURE = __name__.partition(".guest")[0]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=HasTally)


def _part_of(module: str) -> str:
    """Return the kind of work that a module of ``capture`` does, in the words of the diagnosis."""
    place = module.removeprefix(f"{_CAPTURE}.")
    fitting = [name for name in _PARTS if f"{place}.".startswith(f"{name}.")]
    return _PARTS[max(fitting, key=len)] if fitting else _WATCHING


def guarded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Time a method that user code triggers, and keep its errors away from the user. TrainingHalted passes."""
    part = _part_of(method.__module__)
    doing = f"following {part}" if part in _FOLLOWED else f"reading {part}" if part in _PARTS.values() else _WATCHING

    @functools.wraps(method)
    def wrapper(self: S, *args: P.args, **kwargs: P.kwargs) -> R | None:
        tally = self.tally
        outermost = not tally.inside
        began = perf_counter()  # in this order: a signal handler may raise wherever a call returns
        try:
            # Operations of our own must not reach a __torch_function__ or a mode of the program.
            tally.inside = True
            if outermost:
                tally.began = began
            with unheard():
                return method(self, *args, **kwargs)
        except TrainingHalted:
            raise
        except RecursionError:  # the program's calls are nested deeply: no room for one call more
            tally.first = tally.first or TOO_DEEP
            tally.failed[doing] = tally.failed.get(doing, 0) + 1
            if tally.strict:
                raise
            return None
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            tally.caught(doing)
            return None
        finally:
            if outermost:
                tally.inside = False
                spent = perf_counter() - max(began, tally.began)  # moved by a stop, which counts for nothing
                tally.seconds += spent
                tally.parts[part] = tally.parts.get(part, 0.0) + spent

    return cast("Callable[Concatenate[S, P], R | None]", wrapper)
