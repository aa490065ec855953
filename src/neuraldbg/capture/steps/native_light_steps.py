"""Usual light steps, taken by native code: the hooks' arguments in, one line per step out, many lines at a time.

A loop of one model and one optimizer is nearly always the same: the model is called, its loss is differentiated, the
optimizer steps. ``kernel/light_loop.h`` follows that sequence, and writes a line for each step. A step that deviates,
or has unusual numbers, goes to Python's hooks, after ``leave``: then the state is as if these had handled every step.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.guest.native import native
from neuraldbg.capture.loop.native_steps import BatchSizes
from neuraldbg.capture.loop.optimizer_stream import Begun
from neuraldbg.capture.parameters.read_plan import row_of
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.raw_rows import Raw
from neuraldbg.capture.steps.light_step import Seen, line_of
from neuraldbg.clocks import perf_counter
from neuraldbg.forks import tell_children

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import numpy.typing as npt
    from torch import nn

    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.capture.loop.backward import Losses
    from neuraldbg.capture.loop.models import Models
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.optimizers import Optimizers
    from neuraldbg.capture.parameters.read_plan import Stepped
    from neuraldbg.capture.statistics.watched_parameter import Watched
    from neuraldbg.capture.steps.layout import Layouts
    from neuraldbg.capture.steps.step_accounting import Pace
    from neuraldbg.nouns import Layout

AT_S, OWN_S, RATE, NORM, WEIGHED, BACKWARDS, LOSS, OUTSIDE, CHANGED, CHANGED_TOO, MISSING, APART, LINE = range(13)
"""Columns of a line, float64, and their number; the same as in ``kernel/light_loop.h``."""
USUAL_LOSS, USUAL_NORM, EVERY, READING_S, MEAN, SPREAD, SEEN, EXPECTED_S, MOST, SHARED = range(10)
"""Indices of the float64 numbers shared with native code while steps are taken."""
LINES = 512
"""Lines that wait at most."""
ROWS = 32_768
"""Rows of sites that wait at most, of all lines together."""
_PLAIN = 3
"""Usual light steps in a row after which native code takes the next."""
_RARELY = 1024
"""Upper limit of that number, for a program whose steps mostly deviate."""


class Light:
    """Takes the light steps of a session, if there is native code and one model with one optimizer.

    ``settle`` is called when it is time to process the lines that wait.
    """

    def __init__(
        self,
        hooks: HookManager,
        optimizers: Optimizers,
        losses: Losses,
        models: Models,
        layouts: Layouts,
        pace: Pace,
        settle: Callable[[], None],
        reopen: Callable[[Stream], None],
    ) -> None:
        self._hooks, self._optimizers, self._losses, self._models = hooks, optimizers, losses, models
        self._layouts, self.pace = layouts, pace
        self.counting: AbstractContextManager[Any] = threading.RLock()  # a signal handler may log within
        self._lines, self._told = np.zeros((LINES, LINE)), np.zeros((LINES, LINE))
        self._shared = np.zeros(SHARED)
        self._plain, self._needed, self._taken = 0, _PLAIN, 0
        """Usual steps in a row (``_plain``); number needed (``_needed``); steps taken since ``enter`` (``_taken``)."""
        self._stream: Stream | None = None
        self._stepped: Stepped | None = None
        """Plans by which native code reads the parameters, None if it reads no sites."""
        self.sizes = BatchSizes()
        self._reopen = reopen
        """Called with an optimizer whose step is running when Python's hooks take over."""
        self._room, self._blank = LINES, self._hooks.table.blank()
        """Number of steps whose rows there is room for (``_room``), and blank rows for one step (``_blank``)."""
        self._seen: tuple[tuple[Watched, ...], Layout] | None = None
        """The stepped parameters and the layout while native code reads sites, else None."""
        self.begins: Callable[..., Any] = optimizers.begins
        self.ends: Callable[..., Any] = optimizers.ends
        """The step hooks of all optimizers."""
        self.glance: Callable[[nn.Module, Any, Any], bool] = _never
        """Takes a call of the model. Returns False if Python has to handle it."""
        self.take: Callable[[Any], bool] = _never
        """Takes the loss of a backward pass, or returns False; ``passed`` reports the end of that pass."""
        self.passed: Callable[[], None] = _nothing
        self.forget: Callable[[], None] = _nothing
        """Drops the newest call, which raised."""
        self._native: Any = None
        # Native hooks replace Python's where they exist; Python's are their slow path.
        if native is not None:
            at = int(self._lines.ctypes.data), LINES, int(self._shared.ctypes.data)
            keep, slow = (self._lines, self._shared), (self.begins, self.ends)
            made = self._native = native.Light(*at, keep, *slow, settle, perf_counter, torch.is_grad_enabled)
            self.begins, self.ends, self.glance = made.begins, made.ends, made.glance
            self.take, self.passed, self.forget = made.take, made.passed, made.forget
            tell_children(self)

    @property
    def entered(self) -> bool:
        """True while native code takes steps."""
        return self._native is not None and bool(self._native.entered)

    @property
    def stepping(self) -> bool:
        """True while a backward pass or a step that native code takes is running."""
        return self._native is not None and bool(self._native.busy)

    @property
    def midway(self) -> bool:
        """True if a step that native code takes has begun, with a call of the model, and is not over."""
        return self._native is not None and bool(self._native.midway)

    def lends(self, *, within: bool) -> bool:
        """Stop taking steps in their thread if none is running, or with ``within`` none is in a backward pass or a call
        of the optimizer. Return False if one is. Call ``leave`` afterwards.
        """
        return not self.entered or bool(self._native.lend(within))

    @property
    def waiting(self) -> int:
        """Number of steps that were taken and not processed yet."""
        return int(self._native.waiting) if self._native is not None else 0

    def since(self) -> float:
        """Return the end of the first waiting step, in seconds since the session began; infinite for none."""
        return float(self._lines[0, AT_S]) - self.pace.clock(0.0) if self.waiting else math.inf

    def hurry(self) -> None:
        """Process the current step as soon as it ends: a fact was logged in it."""
        self._shared[MOST] = 0

    def enter(self, stream: Stream, now: float) -> None:
        """Take the steps of an optimizer from now on, if enough of the last were usual. The newest ended at ``now``."""
        self._plain += 1
        if self._native is not None and self._plain >= self._needed and not self._native.entered:
            self.start(stream, now)

    def start(self, stream: Stream, now: float) -> None:
        """Take the steps of an optimizer from now on, if native code sees all that Python would."""
        sighted = self._models.switch.sighted
        stepped, norm = (self.plans(stream) if sighted else None), stream.norm
        if stepped is not None:
            few = every = stepped.gradients.plan
        elif not sighted and norm is not None and norm.stands and not norm.waits and self._usual_loop():
            few, every = norm.plans
        else:
            return
        self._stream, self._taken, self._stepped, stream.outside = stream, 0, stepped, None
        self._shared[[MEAN, SPREAD, SEEN]] = stream.usual.state
        self._shared[EXPECTED_S] = 0.0
        models, blank = dict(self._models.outermost), self._hooks.table.blank()
        self._room = max(min(LINES, ROWS // max(len(blank), 1)), 1) if stepped is not None else 0
        self._blank, copies = blank, np.empty((self._room, *blank.shape))
        elements = stream.kept
        kept = stepped or norm, blank, copies, elements  # keeps alive what native code reads by address
        plans, held = (*few, *every), len(stream.tensors())
        self._native.enter(stream.opt, stream, models, *plans, stream.steps, self.pace.clock(now), kept, held)
        if elements is not None:
            self._native.keep(*elements.plan)
        if stepped is not None:
            addresses, weights, lent = stepped.samples.plans
            here = int(blank.ctypes.data), int(copies.ctypes.data), len(blank), self._room
            self._native.see(self._hooks.table.rows.address, *here, *addresses, weights, lent)
            self._seen = tuple(stepped.watched), self._layouts.now()

    def plans(self, stream: Stream) -> Stepped | None:
        """Return the plans for an optimizer's parameters if native code can read the sites of the next steps, but for
        the updates of large embeddings, or None.
        """
        table = self._hooks.table
        if self._native is None or self._hooks.settings.every != 1 or not table.here or table.binning.on:
            return None
        return self._optimizers.params.plan_of(stream.tensors()) if self._usual_loop() else None

    def expect(self, until: int) -> None:
        """Set the limits beyond which steps go to Python: ``until`` is the first that is read in full at any cost."""
        if not self.entered:
            return
        shared, most = self._shared, min(until - self._hooks.step, LINES)
        shared[USUAL_LOSS], shared[USUAL_NORM] = self._losses.usual, self.pace.usual_norm
        shared[EVERY], shared[READING_S] = self._optimizers.norms_every, self._optimizers.reading_s
        if self._seen is not None:
            shared[EVERY], most = 1, min(most, self._room)
        shared[MOST] = max(most, 1) if self.pace.delivery.batch > 1 else 1

    def _usual_loop(self) -> bool:
        """Return True if the loop is such that native code sees all that Python would."""
        alone = len(self._optimizers.streams) == 1 and not self._optimizers.judging
        return alone and self._losses.plain and self._models.plain

    def leave(self, *, odd: bool = True) -> None:
        """Stop taking steps: Python's hooks continue with the state of the current one. ``odd`` is True if that one
        deviates, False if the next is to be read in full.
        """
        if not self.entered:
            return
        with self.pace.delivery.lock:
            with self.counting:
                self.drain()
                seen, losses, total, own, stepping, *read = self._native.leave()
                # The state of the current step moves to Python's hooks.
                self._models.resume(seen)
                self._losses.resume(losses, total)
                self._models.owner.open |= bool(seen or losses or stepping)
            self._spend(own)
            stream, stepped = self._stream, self._stepped
            self._stream = self._stepped = self._seen = None
            if stepped is not None:
                stepped.forget()
            if stream is not None:
                stream.usual.state = tuple(self._shared[[MEAN, SPREAD, SEEN]].tolist())
                if stepping:
                    self._optimizers.resume(stream, Begun(stepping, *read), stepped)
                    self._reopen(stream)
            if odd:  # a program that deviates every few steps is left to Python
                self._needed = _PLAIN if self._taken >= 4 * self._needed else min(2 * self._needed, _RARELY)
            self._plain = 0

    def in_child(self) -> None:
        """Stop taking steps in a forked child."""
        self.abandon()

    def abandon(self) -> None:
        """Stop taking steps and discard them, without a lock: in a forked child its holder may not exist."""
        if self._native is not None:
            self._native.drain(int(self._told.ctypes.data), 0)
            self._native.leave()
            self._stream = self._stepped = self._seen = None

    def drain(self) -> None:
        """Move the steps that wait in native code to the others, to be booked. Call with the lock of the delivery."""
        if not self.waiting:
            return
        with self.counting:
            self._drain()

    def _drain(self) -> None:
        rows = np.empty((self._room, *self._blank.shape)) if self._seen is not None else None
        stream, wait, count = self._stream, self.waiting, 0
        before = len(self.pace.waiting), self._hooks.step, self._losses.total, self._taken, float(self._shared[MOST])
        try:
            count = self._native.drain(int(self._told.ctypes.data), int(rows.ctypes.data) if rows is not None else 0)
            self._put_down(count, rows, stream, *before)
        except BaseException:  # a time limit of the program's: native code reports each step only once
            self._put_down(count or wait - self.waiting, rows, stream, *before)
            raise

    def _put_down(
        self,
        count: int,
        rows: npt.NDArray[np.float64] | None,
        stream: Stream | None,
        waited: int,
        first: int,
        total: int,
        taken: int,
        most: float,
    ) -> None:
        """Put the ``count`` steps that native code has reported behind those that ``waited``. A second call has no
        effect, but on the account of time. ``first`` is the number of the first step; ``total``, ``taken`` and ``most``
        are the counts before it.
        """
        if stream is None or not count:
            return
        lines = self._told[:count]
        own = self._hooks.tally.seconds + np.cumsum(lines[:, OWN_S])
        every, began = zip(lines.tolist(), own.tolist(), strict=True), self.pace.clock(0.0)
        self.pace.waiting[waited:] = [
            line_of(line, spent, step, stream.index, began, self._sites_of(rows, step, first))
            for step, (line, spent) in enumerate(every, first)
        ]
        # All but the time are assignments, not additions, so that a second call repeats them.
        self._hooks.step = first + count
        self._losses.total = total + int(lines[:, BACKWARDS].sum())
        self._taken, self._shared[MOST] = taken + count, most - count
        self._spend(float(lines[:, OWN_S].sum()))
        self._optimizers.reading_s = float(self._shared[READING_S])
        if count > 1:
            self._shared[EXPECTED_S] = (lines[-1, AT_S] - lines[0, AT_S]) / (count - 1)
        self._note_outside(stream, lines, first)
        self._note_missing(stream, lines, first)

    def _note_outside(self, stream: Stream, lines: npt.NDArray[np.float64], first: int) -> None:
        """Note weights that something else than the optimizer has changed. ``first`` is the step of the first line."""
        if (kept := stream.kept) is None:
            return
        for index in np.flatnonzero(lines[:, OUTSIDE]).tolist():
            self._optimizers.outside.note(kept.told(first + index, *lines[index, OUTSIDE:MISSING].tolist()))

    @staticmethod
    def _note_missing(stream: Stream, lines: npt.NDArray[np.float64], first: int) -> None:
        """Note the newest step before which the number of tensors without a gradient changed."""
        read = np.flatnonzero(lines[:, MISSING] >= 0)
        known = [(first + int(k), int(lines[k, MISSING])) for k in read]
        known = [stream.missing, *known] if stream.missing is not None else known
        for (since, before), (until, now) in itertools.pairwise(known):
            if now != before:
                stream.turned = since, until
        stream.missing = known[-1] if known else None

    def _sites_of(self, rows: npt.NDArray[np.float64] | None, step: int, first: int) -> Seen | None:
        if rows is None or self._seen is None:
            return None
        number = step - first
        if self._stepped is not None and self._stepped.lookups:  # a sample at fixed places says nothing of them
            rows[number, [row_of(w.update) for w in self._stepped.lookups]] = operation.BLANK
        return Seen(Raw(rows[number], None), *self._seen, self.sizes)

    def _spend(self, seconds: float) -> None:
        tally = self._hooks.tally
        tally.seconds += seconds
        tally.parts["light steps"] = tally.parts.get("light steps", 0.0) + seconds


def _never(*_: object) -> bool:
    return False


def _nothing() -> None:
    return None
