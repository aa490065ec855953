"""The one thread whose training is followed, the owner, and the account of training in other threads.

The table of a session, its plans and its current step belong to one thread, the owner. Operations of the program (a
call of a model, a backward pass, a step of an optimizer) are read in the owner's thread alone. In every other thread
they pass through, and are counted for the coverage report.

The first thread that trains is the owner. Another becomes the owner

- when the owner has ended, has trained nothing yet, or has done nothing for ``IDLE_S`` seconds; a thread in the middle
  of a training of its own only after these seconds: of four trainings at once the ends of three are no part of the
  first;
- between two steps, when it calls the followed model and has trained it before: workers of a pool take turns with one
  model, and another thread may score the model that the owner trains;
- within a step, when it does a part of that step and trains nothing of its own: one that only calls backward, or steps
  the optimizer;

but never during a call, a backward pass or a step of the owner.

A thread that calls a model with gradients may be about to train, or only score: unknown until the first backward pass.
So each thread may displace an owner that has trained nothing, once within a step, and a backward pass decides: the
thread that runs it after a call of its own becomes the owner, at once or when the owner begins its next operation.

Python switches threads between any two of its instructions, so an operation announces its begin before it checks that
its thread is the owner (``claims``), and a thread announces that it wants to be the owner before it checks for a
running operation (``asks``): one of the two sees the other. Only threads that are not the owner ever take the lock.

A question (``dbg.record()`` in another thread) takes the owner's place while the owner waits: for the answer, as it
begins its next operation, or in Python's library for work. Between two operations it may be clearing gradients (see
``other_threads``): if it does not wait for long, no gradient is read.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal

from neuraldbg import clocks
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.other_threads import others_wait, waits
from neuraldbg.capture.loop.unfollowed_threads import Missed, Runner, Stranger, missed_by, unread
from neuraldbg.unlisted_thread import unlisted_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.capture.guest.guard import Switch, Tally
    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.capture.loop.native_steps import NativeSteps

IDLE_S = 5.0
"""Seconds without an operation after which the owner gives way to another thread that trains."""
_QUESTION_S, _NOTICED_S = 10.0, 0.1
"""Seconds that an operation of the owner waits at most for the answer to a question of another thread, and for that
thread to notice the wait."""
_STILL_S = 0.03
"""Seconds after which a question is answered while the owner runs between two operations."""
_POLL_S = 0.0005
_KEPT = 64
"""Threads that have ended and are remembered by name."""
_AGAIN_S = 0.002
_PATIENCE_S = 0.5, 2.0
"""Total seconds that threads wait for an owner that has trained nothing to end a call (one that scores a model again
and again is nearly always within one), and to end our own code there: attaching to a model took half a second on a
machine under load."""

Operation = Literal["call", "backward", "step"]


class Owner:
    """Decides which thread's operations are followed: the owner's."""

    def __init__(
        self,
        switch: Switch,
        hooks: HookManager,
        *,
        busy: Callable[[], bool],
        differentiating: Callable[[], bool],
        progress: Callable[[], object],
        release: Callable[[], None],
        give_up: Callable[[int, set[Any]], object],
    ) -> None:
        self.switch, self.hooks = switch, hooks
        self.light: NativeSteps
        self.busy = busy
        """Returns True while an operation of the owner runs in Python."""
        self.differentiating = differentiating
        """Returns True while a backward pass of the owner runs."""
        self.release = release
        """Called when the owner has ended, or is displaced: none of its operations is running any more."""
        self.give_up = give_up
        """Called when another thread displaces a living owner, with the models that the new owner has called, too."""
        self.progress = progress
        """Returns the owner's progress: equal values mean that the owner did nothing in between."""
        self._claimed: set[int] = set()
        """Threads in which an operation has begun, and not ended as far as is known. Each thread changes its own entry
        alone: a displaced owner must not undo the new owner's claim."""
        self.open = False
        """True if the owner is within a step: it has called a model with gradients, and not stepped since."""
        self.trained = False
        """True once a backward pass of the owner has reached a watched model."""
        self.missed = False
        """True if the newest backward pass of an owner that has trained nothing, one of several threads, has reached no
        watched model: its call was not seen, and its next step is not followed."""
        self.names: dict[str, None] = {}
        """Names of the threads that were the owner and trained, in order."""
        self.strangers: dict[int, Stranger] = hooks.table.strangers
        self._past: dict[str, Missed] = {}
        self._trainers: set[int] = set()
        self.trainers: set[int] = set()
        """Threads that were the owner when a backward pass reached the model, in this training and in all of them."""
        self._lock = threading.RLock()  # a signal handler may run a model while this thread holds it
        self._wanted = False
        """True while another thread checks whether it can be the owner."""
        self._heir = 0
        """The thread that displaces an untrained owner when that begins its next operation; 0 for none."""
        self._patience = list(_PATIENCE_S)
        self._over = False
        """True once the session ends: the owner no longer changes."""
        self._asking = False
        """True while a question is being answered: the asking thread has the owner's place."""
        self._before = 0
        """The thread whose place the asking thread has."""
        self._question: tuple[int, bool] | None = None
        """The thread that wants to ask, and True if it may ask ``within`` a step; None once it is being answered."""
        self._waiting = 0
        """The owner while it waits for the answer to a question, else 0."""
        self._silent: tuple[object, float] = (None, 0.0)
        self._runner: Runner
        switch.lends = hooks.lends = self.lends
        self.follow(get_ident())

    @property
    def tally(self) -> Tally:
        """The counts of errors and time."""
        return self.hooks.tally

    # -- the owner ----------------------------------------------------------------------------------------------

    @property
    def claiming(self) -> bool:
        """True if an operation of the owner has begun, and not ended as far as is known; set for the current thread."""
        return self.switch.thread in self._claimed

    @claiming.setter
    def claiming(self, begun: bool) -> None:
        (self._claimed.add if begun else self._claimed.discard)(get_ident())

    def forget_claim(self) -> None:
        """Drop the claim of an owner that has ended or is displaced."""
        self._claimed.discard(self.switch.thread)

    def claims(self) -> bool:
        """Begin an operation. Return True in the owner's thread."""
        me = get_ident()
        if me != self.switch.thread:
            return False
        self._claimed.add(me)
        return (not self._wanted and me == self.switch.thread) or self._claims_still(me)

    def _claims_still(self, me: int) -> bool:
        """Wait until another thread has noticed the begin of an operation, or has become the owner just before. Make
        the heir the owner if there is one.
        """
        self._claimed.discard(me)  # not begun yet: the thread with the lock may wait for the owner to rest
        self._stand_by(me)
        with self._lock:
            heir = self._heir
            if me == self.switch.thread and heir and (self.trained or not self.busy()):
                self._heir, self._wanted = 0, False
                if not self.trained:
                    self._displace(self._stranger(heir), gone=False)
                    self.open = True  # the heir is within a step of its own
                    self.follow(heir)
            if me != self.switch.thread:
                return False
            self._claimed.add(me)
            return True

    def lends(self) -> bool:
        """Return True in a thread of autograd's own during a backward pass of the owner, which it works for."""
        return self.differentiating() and in_autograd()

    def trains(self) -> None:
        """Record that a backward pass of the owner has reached a watched model: other threads no longer displace it."""
        self.missed = False
        if self.trained and self.switch.thread in self._trainers:
            return
        self.trained = True
        self.names.setdefault(self._runner.name)
        self._trainers.add(self.switch.thread)
        self.trainers.add(self.switch.thread)
        if (before := self.strangers.get(self.switch.thread)) is not None:
            before.followed = True
        self.hooks.tally.follow(self.switch.thread)

    def misses(self) -> None:
        """Record that a backward pass of the owner has reached no watched model."""
        if self.trained or not self.strangers:
            return
        with self._lock:
            self.missed = True
            self._stranger(self.switch.thread).backwards += 1

    def follow(self, thread: int) -> None:
        """Follow a thread from now on. Native hooks read in any thread until it has trained."""
        self.missed = False
        self.switch.thread = self.hooks.thread = thread
        self._runner = Runner(thread)
        self.hooks.tally.follow(thread if self.trained else 0)

    # -- other threads ------------------------------------------------------------------------------------------

    def asks(self, operation: Operation, *, ours: bool, new: bool, model: object = None) -> bool:
        """Make this thread the owner, and begin an operation, if that is allowed; return True if so. ``ours`` is True
        if the operation belongs to the followed training, ``new`` if it could begin one; ``model`` is the watched model
        being called.
        """
        me = get_ident()
        self._wait_for_answer(me)
        with self._deciding():
            if me == self.switch.thread:  # it was the owner before a question
                self.claiming = True
                return True
            # Either the thread begins a training of its own, or it does a part of the followed one.
            stranger = self._stranger(me)
            if model is not None:
                stranger.uses.add(model)
            gone = self._gone()
            within = operation != "call"
            begins = self._begins(stranger, within=within)
            anew = new and ((gone and not stranger.midway) or begins or self._idle())
            stranger.called |= ours and not within
            goes_on = ours and (not stranger.apart if within else (stranger.joins or me in self._trainers))
            rests = gone or self._comes_to_rest(within=within or anew)
            late = begins and self.trained  # the owner has trained while this thread waited
            if self._over or late or not rests or not (anew or goes_on):
                if not within:
                    stranger.apart = True
                    stranger.again = clocks.perf_counter() + _AGAIN_S
                if new and begins and within and stranger.apart:
                    self._heir = me
                return False
            self._heir = 0
            # From here on the thread is the owner.
            if anew:
                self._displace(stranger, gone=gone)
                self.trained, self.open = gone and within and self.trained, False
            stranger.apart = False
            self.follow(me)
            if self.trained:
                self.names.setdefault(stranger.name)
            self.claiming = True
        self._begin()
        return True

    def _begins(self, stranger: Stranger, *, within: bool) -> bool:
        """Return True if a thread may displace an owner that has trained nothing yet."""
        if self.trained:
            return False
        # An open step may be continued by a thread that has called nothing; a thread that has called a model and now
        # differentiates is the one that trains.
        return not self.open or (stranger.apart if within else not stranger.tried)

    def _displace(self, stranger: Stranger, *, gone: bool) -> None:
        """End the followed training in favour of one that a thread begins."""
        if self.trained:
            for each in list(self.strangers.values()):
                each.tried = False
        elif self.open and not gone:
            stranger.tried = True
            before = self._stranger(self.switch.thread)
            before.tried = before.apart = True  # its next backward pass, if any, will be of its own training
        self._trainers.clear()
        self.release()
        if not gone:
            self.give_up(self.switch.thread, stranger.uses)

    def _comes_to_rest(self, *, within: bool) -> bool:
        """Return True once the owner is at rest, see ``_at_rest``. Wait a little for one that has trained nothing."""
        while not self._at_rest(within=within):
            ours = self.claiming and not self.busy()
            if self.trained or self._asking or self._patience[ours] <= 0:
                return False
            began = clocks.perf_counter()
            clocks.sleep(_POLL_S)
            self._patience[ours] -= clocks.perf_counter() - began
        return True

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            finally:
                self._wanted = self._heir != 0 or self._question is not None

    @guarded
    def _begin(self) -> None:
        """Let Python's hooks continue a light step that native code has begun in another thread."""
        self.light.leave()

    def waits(self) -> bool:
        """Return True if this thread was refused a moment ago: asking again at each layer would be slow."""
        stranger = self.strangers.get(get_ident())
        return stranger is not None and clocks.perf_counter() < stranger.again

    def _at_rest(self, *, within: bool, asks: bool = False) -> bool:
        """Return True if the owner is between two steps, or ``within`` one between two operations. It begins none
        before the lock is free. ``asks`` is True for a question, during which native light steps may go on.
        """
        self._wanted = True
        if self._asking or self.claiming or self.busy() or (self.open and not within):
            return False
        return not self.light.stepping if asks else self.light.lends(within=within)

    @contextlib.contextmanager
    def differentiates_beside(self, *, counts: bool) -> Iterator[None]:
        """Wrap a backward pass of another thread that is not followed. It ``counts`` if all trainings are followed."""
        with self._lock:
            stranger = self._stranger(get_ident())
            stranger.running += 1
            helped, stranger.helps = stranger.helps, False
        self._wait_for_answer(get_ident())  # the owner may have been displaced just now
        try:
            yield
        finally:
            stranger.running -= 1
            stranger.backwards += counts or stranger.called or stranger.helps
            stranger.apart = not stranger.helps
            stranger.helps |= helped

    def reached_beside(self, thread: int) -> None:
        """Record that a backward pass of another thread has gone through a tensor that ``thread``, the
        owner, computed.
        """
        here = self.strangers.get(get_ident())
        running = [here] if here is not None and here.running else self.strangers.values()  # a thread of autograd's own
        for stranger in list(running):
            stranger.helps |= stranger.running > 0 and self.strangers.get(thread) is not stranger

    def steps_beside(self, *, counts: bool, shared: bool) -> None:
        """Record an optimizer step of another thread, ``shared`` if it changed watched parameters. It ``counts`` if all
        trainings are to be followed.
        """
        with self._lock:
            stranger = self._stranger(get_ident())
            stranger.steps += counts or shared
            stranger.apart = True
            stranger.joins |= shared and stranger.called

    def _stranger(self, ident: int) -> Stranger:
        known = self.strangers.get(ident)
        if known is None or known.ended:
            if known is not None and (missed := missed_by(known)):
                name = known.name if len(self._past) < _KEPT else "others"
                self._past[name] = self._past.get(name, Missed(0, 0)).plus(missed)
            known = self.strangers[ident] = Stranger(ident)
        return known

    def _gone(self) -> bool:
        return not self._runner.alive

    def _idle(self) -> bool:
        """Return True if the owner has done nothing for ``IDLE_S`` seconds."""
        progress, now = self.progress(), clocks.perf_counter()
        if progress != self._silent[0]:
            self._silent = progress, now
        return now - self._silent[1] > IDLE_S

    # -- questions ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def asked(self, patience: float, *, within: bool = False) -> Iterator[bool]:
        """Give this thread the owner's place for a question. Yields False if the owner does not rest between two steps,
        or ``within`` one, in ``patience`` seconds.
        """
        me, until = get_ident(), clocks.perf_counter() + patience
        lent = me == self.switch.thread
        if lent:
            yield True
            return
        try:
            while not lent and (now := clocks.perf_counter()) < until:
                lent = self._lent(me, within=within, still=now < until - patience + _STILL_S)
                if not lent:
                    clocks.sleep(_POLL_S)
            self._withdraw(me)
            yield lent
        finally:
            self._withdraw(me)
            with self._lock:
                if lent and self._asking:
                    self.claiming = self._asking = False
                    self.switch.thread = self._before

    def _lent(self, me: int, *, within: bool, still: bool) -> bool:
        with self._deciding():
            if self._gone():
                self.release()
                self.trained = self.open = False  # a thread that trains next goes before the thread that asked
                self.follow(me)
                return True
            if self._asking or self._question not in (None, (me, within)):
                return False
            if not (self._at_rest(within=within, asks=True) and (not still or self._stands_still())):
                self._question = me, within
                return False
            self._before, self.switch.thread = self.switch.thread, me
            self._asking, self._question = True, None
            self.claiming = True
            return True

    def _stands_still(self) -> bool:
        owner = self.switch.thread  # native light steps are only reported, and need no wait
        return self._waiting == owner or self.light.entered or waits(owner)

    def _withdraw(self, me: int) -> None:
        with self._deciding():
            if self._question is not None and self._question[0] == me:
                self._question = None

    def seize(self) -> bool:
        """Make this thread the owner, as the session ends. Return True if another thread was it, and lives on."""
        with self._lock:
            before = self._before if self._asking else self.switch.thread
            goes_on = before != get_ident() and Runner(before).alive
            self._over, self._asking, self._heir, self._question = True, False, 0, None
            self.follow(get_ident())
            self.claiming = True
        return goes_on

    def _stand_by(self, me: int) -> None:
        """Wait, in the owner's thread between two operations, for a question that another thread wants to ask."""
        until = clocks.perf_counter() + _NOTICED_S
        while (question := self._question) is not None and clocks.perf_counter() < until:
            if me != self.switch.thread or self.busy() or (self.open and not question[1]):
                break
            self._waiting = me
            clocks.sleep(_POLL_S)
        self._wait_for_answer(me)

    def stands_aside(self) -> None:
        """Wait, before gradients are cleared, for the end of a question that may read gradients."""
        if self._asking and self._before == get_ident():
            self._wait_for_answer(self._before)

    def _wait_for_answer(self, me: int) -> None:
        """Wait, in the owner's thread, while a question is answered."""
        until = clocks.perf_counter() + _QUESTION_S
        while True:
            with self._lock:  # a question begins while this is held
                if not self._asking or me != self._before or clocks.perf_counter() >= until:
                    self._waiting = 0 if self._waiting == me else self._waiting
                    return
                self._waiting = me
            clocks.sleep(_POLL_S)

    def gradients_rest(self) -> bool:
        """Return True if no other thread can be changing the gradients of followed models: see ``other_threads``."""
        me = get_ident()
        if self._asking and me == self.switch.thread:
            trainer, ours = self._before, self._waiting == self._before
        else:
            trainer, ours = me, me in self._trainers
        users = [one for thread, one in list(self.strangers.items()) if thread not in (me, trainer) and not one.ended]
        meddled = any(
            one.joins or one.helps or (one.uses and (one.running or one.backwards or one.steps)) for one in users
        )
        return (ours and not meddled) or others_wait()

    # -- what was not followed ----------------------------------------------------------------------------------

    def unread(self) -> dict[str, str]:
        """Return sentences about the threads that trained and were not followed, as {subject: rest}."""
        missed = dict(self._past)
        for one in list(self.strangers.values()):
            if now := missed_by(one):
                missed[one.name] = missed.get(one.name, Missed(0, 0)).plus(now)
        return unread(missed, self.names)


def in_autograd() -> bool:
    """Return True in a thread of autograd's own during a backward pass: one that neither Python, nor we, nor the
    program has started.
    """
    thread = threading._active.get(get_ident())  # type: ignore[attr-defined]  # noqa: SLF001 (asking makes a dummy)
    if unlisted_here() or not (thread is None or isinstance(thread, threading._DummyThread)):  # noqa: SLF001
        return False
    frame = sys._getframe()  # noqa: SLF001 (no public way)
    while frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] in ("torch", "neuraldbg")  # called by no Python
