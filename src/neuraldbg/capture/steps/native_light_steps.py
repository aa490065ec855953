"""Light steps that go as usual, taken by native code: what the hooks hear enters, lines leave, many at a time.

A loop of one model and one optimizer is nearly always the same: the model is called, its loss is differentiated, the
optimizer steps. ``_kernel_light.h`` knows that course, and writes a line for each step. What does not go like this, or
looks odd, it hands to Python's hooks, which ``leave`` first: then all is as if they had heard of every step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.guest.native import native
from neuraldbg.capture.statistics.raw_rows import Raw
from neuraldbg.capture.steps.light_step import Seen, line_of
from neuraldbg.clocks import perf_counter
from neuraldbg.forks import tell_children

if TYPE_CHECKING:
    from collections.abc import Callable

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

AT_S, OWN_S, RATE, NORM, WEIGHED, BACKWARDS, LOSS, LINE = range(8)
"""The columns of a line, float64, and their number: ``_kernel_light.h`` has the same."""
USUAL_LOSS, USUAL_NORM, EVERY, READING_S, MEAN, SPREAD, SEEN, EXPECTED_S, MOST, SHARED = range(10)
"""What native code and this share while steps are taken, float64."""
LINES = 512
"""Lines that wait at most."""
_ROWS = 32_768
"""Rows of sites that wait at most, of all lines together."""
_PLAIN = 3
"""Light steps that have to go as usual before the next is expected to."""
_RARELY = 1024
"""The same at most, of a program whose steps mostly do not."""


class Light:
    """Takes the light steps of a session, where there is native code and one model with one optimizer.

    ``settle`` is called when it is time to look at the lines that wait.
    """

    def __init__(
        self,
        hooks: HookManager,
        optimizers: Optimizers,
        losses: Losses,
        models: Models,
        layouts: Layouts,
        settle: Callable[[], None],
    ) -> None:
        self._hooks, self._optimizers, self._losses, self._models = hooks, optimizers, losses, models
        self._layouts = layouts
        self.pace: Pace
        self._lines, self._told = np.zeros((LINES, LINE)), np.zeros((LINES, LINE))
        self._shared = np.zeros(SHARED)
        self._plain, self._needed, self._taken = 0, _PLAIN, 0
        """Steps in a row that went as usual; how many it takes; those taken since it was entered."""
        self._stream: Stream | None = None
        self._stepped: Stepped | None = None
        """How native code reads the parameters where it reads sites."""
        self.reopen: Callable[[Stream], None] = lambda stream: None
        """Told of an optimizer whose step is under way when Python's hooks take over."""
        self._room, self._blank = LINES, self._hooks.table.blank()
        """Steps whose rows there is room for, and as many blank rows as each has."""
        self._seen: tuple[tuple[Watched, ...], Layout] | None = None
        """Of a stretch in which native code reads sites: the parameters that are stepped, and the layout."""
        self.begins: Callable[..., Any] = optimizers.begins
        self.ends: Callable[..., Any] = optimizers.ends
        """The hooks of all optimizers."""
        self.glance: Callable[[nn.Module, Any, Any], bool] = _never
        """Takes a call of the model: False where Python is to do it."""
        self.take: Callable[[Any], bool] = _never
        """Takes the loss of a backward pass, the same; ``passed`` tells its end."""
        self.passed: Callable[[], None] = _nothing
        self.forget: Callable[[], None] = _nothing
        """Holds nothing of the newest call: it raised."""
        self._native: Any = None
        if native is not None:
            at = int(self._lines.ctypes.data), LINES, int(self._shared.ctypes.data)
            keep, slow = (self._lines, self._shared), (self.begins, self.ends)
            made = self._native = native.Light(*at, keep, *slow, settle, perf_counter, torch.is_grad_enabled)
            self.begins, self.ends, self.glance = made.begins, made.ends, made.glance
            self.take, self.passed, self.forget = made.take, made.passed, made.forget
            tell_children(self)

    @property
    def entered(self) -> bool:
        """Return True if steps are taken."""
        return self._native is not None and bool(self._native.entered)

    @property
    def stepping(self) -> bool:
        """Return True if a backward pass or a step that is taken is under way."""
        return self._native is not None and bool(self._native.busy)

    def lends(self, *, within: bool) -> bool:
        """Take nothing more in the thread whose steps are taken, where none is under way, or none is within a backward
        pass or a call of the optimizer; False where one is. Then ``leave``.
        """
        return not self.entered or bool(self._native.lend(within))

    @property
    def waiting(self) -> int:
        """Steps that were taken and not told yet."""
        return int(self._native.waiting) if self._native is not None else 0

    def since(self) -> float:
        """Return when the first step that waits ended, in seconds since the session began; infinite for none."""
        return float(self._lines[0, AT_S]) - self.pace.clock(0.0) if self.waiting else math.inf

    def hurry(self) -> None:
        """Have the step under way told as soon as it ends: something was learnt in it."""
        self._shared[MOST] = 0

    def enter(self, stream: Stream, now: float) -> None:
        """Take the steps of an optimizer from now on, if the last ones were such as can be taken. The newest ended
        ``now``.
        """
        self._plain += 1
        if self._native is not None and self._plain >= self._needed and not self._native.entered:
            self.start(stream, now)

    def start(self, stream: Stream, now: float) -> None:
        """Take the steps of an optimizer from now on, if native code sees what Python would."""
        sighted = self._models.switch.sighted
        stepped, norm = (self.plans(stream) if sighted else None), stream.norm
        if stepped is not None:
            few = every = stepped.gradients.plan
        elif not sighted and norm is not None and norm.stands and not norm.waits and self._usual_loop():
            few, every = norm.plans
        else:
            return
        self._stream, self._taken, self._stepped = stream, 0, stepped
        self._shared[[MEAN, SPREAD, SEEN]] = stream.usual.state
        self._shared[EXPECTED_S] = 0.0
        models, blank = dict(self._models.outermost), self._hooks.table.blank()
        self._room = max(min(LINES, _ROWS // max(len(blank), 1)), 1) if stepped is not None else 0
        self._blank, copies = blank, np.empty((self._room, *blank.shape))
        kept = stepped or norm, blank, copies  # what native code reads by its address
        plans, held = (*few, *every), len(stream.tensors())
        self._native.enter(stream.opt, stream, models, *plans, stream.steps, self.pace.clock(now), kept, held)
        if stepped is not None:
            addresses, weights, lent = stepped.samples.plans
            here = int(blank.ctypes.data), int(copies.ctypes.data), len(blank), self._room
            self._native.see(self._hooks.table.rows.address, *here, *addresses, weights, lent)
            self._seen = tuple(stepped.watched), self._layouts.now()

    def plans(self, stream: Stream) -> Stepped | None:
        """Return how the parameters of an optimizer are read, if native code can read all sites of steps to come."""
        table = self._hooks.table
        if self._native is None or self._hooks.settings.every != 1 or not table.here or table.binning.on:
            return None
        return self._optimizers.params.plan_of(stream.tensors()) if self._usual_loop() else None

    def expect(self, until: int) -> None:
        """Say which of the steps to come are worth a look: ``until`` is the first that is read whatever it costs."""
        if not self.entered:
            return
        shared, most = self._shared, min(until - self._hooks.step, LINES)
        shared[USUAL_LOSS], shared[USUAL_NORM] = self._losses.usual, self.pace.usual_norm
        shared[EVERY], shared[READING_S] = self._optimizers.norms_every, self._optimizers.reading_s
        if self._seen is not None:
            shared[EVERY], most = 1, min(most, self._room)
        shared[MOST] = max(most, 1) if self.pace.delivery.batch > 1 else 1

    def _usual_loop(self) -> bool:
        """Return True if all is so that native code sees what Python would."""
        alone = len(self._optimizers.streams) == 1 and not self._optimizers.judging
        return alone and self._losses.plain and self._models.plain

    def leave(self, *, odd: bool = True) -> None:
        """Take no more steps: Python's hooks go on with what the one under way has told.

        ``odd``: because it does not go as usual, and not because the next is to be read in full.
        """
        if not self.entered:
            return
        with self.pace.delivery.lock:
            self.drain()
            seen, losses, total, own, stepping, rate, norm, turn = self._native.leave()
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
                    self._optimizers.resume(stream, stepping, rate, norm, stepped, turn)
                    self.reopen(stream)
            if odd:  # a program that does something else at every few steps is left to Python
                self._needed = _PLAIN if self._taken >= 4 * self._needed else min(2 * self._needed, _RARELY)
            self._plain = 0

    def in_child(self) -> None:
        """Take no more steps in a forked child."""
        self.abandon()

    def abandon(self) -> None:
        """Take no more steps and tell of none, without a lock: in a forked child nobody may ever let go of it."""
        if self._native is not None:
            self._native.drain(int(self._told.ctypes.data), 0)
            self._native.leave()
            self._stream = self._stepped = self._seen = None

    def drain(self) -> None:
        """Let the steps that wait here wait with the others, to be booked. Call with the lock of the delivery."""
        if not self.waiting:
            return
        rows = np.empty((self._room, *self._blank.shape)) if self._seen is not None else None
        stream, wait, count = self._stream, self.waiting, 0
        before = len(self.pace.waiting), self._hooks.step, self._losses.total, self._taken, float(self._shared[MOST])
        try:
            count = self._native.drain(int(self._told.ctypes.data), int(rows.ctypes.data) if rows is not None else 0)
            self._put_down(count, rows, stream, *before)
        except BaseException:  # a time limit of the program's: what native code has told it tells only once
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
        """Put the steps that native code has told behind those that ``waited``; done twice it is as if done once, but
        for the account of the time. ``first`` is their first; so many backward passes and steps were counted before
        them, and ``most`` were to come.
        """
        if stream is None or not count:
            return
        lines = self._told[:count]
        own = self._hooks.tally.seconds + np.cumsum(lines[:, OWN_S])
        every, began = zip(lines.tolist(), own.tolist(), strict=True), self.pace.clock(0.0)
        self.pace.waiting[waited:] = [
            line_of(line, spent, step, stream.index, began, self._sites_of(rows, step - first))
            for step, (line, spent) in enumerate(every, first)
        ]
        self._hooks.step = first + count
        self._losses.total = total + int(lines[:, BACKWARDS].sum())
        self._taken, self._shared[MOST] = taken + count, most - count
        self._spend(float(lines[:, OWN_S].sum()))
        self._optimizers.reading_s = float(self._shared[READING_S])
        if count > 1:
            self._shared[EXPECTED_S] = (lines[-1, AT_S] - lines[0, AT_S]) / (count - 1)

    def _sites_of(self, rows: npt.NDArray[np.float64] | None, number: int) -> Seen | None:
        if rows is None or self._seen is None:
            return None
        return Seen(Raw(rows[number], None), *self._seen)

    def _spend(self, seconds: float) -> None:
        tally = self._hooks.tally
        tally.seconds += seconds
        tally.parts["light steps"] = tally.parts.get("light steps", 0.0) + seconds


def _never(*_: object) -> bool:
    return False


def _nothing() -> None:
    return None
