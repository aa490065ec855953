"""The accounting of finished steps: booked with the governor, and passed on to the delivery.

Full steps are booked one by one. Light ones wait until there are a few, one has waited for long, or one is unusual.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.steps.delivery import Closed
from neuraldbg.capture.steps.overhead_budget import AT_ONCE, SHORT, Governor
from neuraldbg.clocks import perf_counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.steps.delivery import Delivery
    from neuraldbg.capture.steps.light_step import Glimpse, Line
    from neuraldbg.config import CaptureSettings
    from neuraldbg.nouns import Fact, Layout

MOST = 8
"""Light steps that wait at most: the governor notices a change within ten steps."""
LONGEST_S = 0.25
"""Seconds that a light step may wait."""


class Pace:
    """Keeps the accounts of a session. ``background`` returns the CPU seconds of our own threads."""

    def __init__(
        self, settings: CaptureSettings, tally: Tally, delivery: Delivery, background: Callable[[], float]
    ) -> None:
        self.governor = Governor(settings.overhead, settings.allowance_s)
        self.waiting: list[Glimpse | Line] = []
        """Light steps that wait to be booked."""
        self.usual_norm = math.inf
        """The gradient norm above which a step is unusual."""
        self.usual_loss = math.inf
        """The size of a loss above which a step is unusual."""
        self.deliver = False
        """True if it is time to deliver the collected steps."""
        self._began = self.last = self._within = self._spent = 0.0
        """Start of the session by the clock (``_began``); end of the newest step since then (``last``); time that
        watching had taken on the training's threads by then (``_within``), and with closing the step and writing
        (``_spent``). Seconds."""
        self._seen = 0
        """Number of waiting steps whose device values were checked."""
        self._settings, self._tally, self.delivery, self._background = settings, tally, delivery, background

    def start(self) -> None:
        """Start the clock of the session."""
        self._began = perf_counter()

    def now(self) -> float:
        """Return the seconds since the session began."""
        return perf_counter() - self._began

    def clock(self, now: float) -> float:
        """Return the value of ``perf_counter`` at the time ``now``."""
        return self._began + now

    def skip(self, seconds: float) -> None:
        """Leave the last seconds out of all times: the program waited for a person. Steps that are over, and wait in
        native code, must have been taken from there.
        """
        self._began += seconds
        if self._tally.inside:
            self._tally.began += seconds

    def due(self, now: float) -> bool:
        """Return True if it is time to settle."""
        waiting = self.waiting
        norm = waiting[-1].norm
        odd = norm is not None and not norm < self.usual_norm  # true for NaN
        if self.delivery.awaits:
            odd |= self.delivery.arrive()
        elif waiting[self._seen].late is not None:
            odd |= self._arrived_odd()
        each = self.delivery.batch == 1  # a stop, a hook or an alert is about this step, and not some steps ago
        return odd or each or len(waiting) >= MOST or now - waiting[0].time > LONGEST_S

    def _arrived_odd(self) -> bool:
        """Check the device values that have arrived since. Return True if one is unusual."""
        while self._seen < len(self.waiting):
            late = self.waiting[self._seen].late
            if late is not None:
                if not late.ready():
                    break
                found = late.land(None)
                loss, norm = found.get("loss", 0.0), found.get("grad_norm", 0.0)
                if not (-self.usual_loss < loss < self.usual_loss and norm < self.usual_norm):
                    return True
            self._seen += 1
        self._seen = min(self._seen, len(self.waiting) - 1)
        return False

    def settle(self, layout: Layout, reading: float, facts: tuple[Fact, ...] = (), *, applied: bool = True) -> None:
        """Book the light steps that wait. ``facts`` and ``applied`` belong to the last; ``reading`` are the seconds
        that a reading of the gradients took.
        """
        waiting, self.waiting, self._seen = self.waiting, [], 0
        try:
            self._settle(waiting, layout, reading, facts, applied=applied)
        finally:  # steps that a signal handler of the program has kept from being booked are booked next time
            self.waiting[:0] = waiting

    def _settle(
        self, waiting: list[Glimpse | Line], layout: Layout, reading: float, facts: tuple[Fact, ...], *, applied: bool
    ) -> None:
        while waiting:
            last = len(waiting) == 1
            each = waiting.pop(0)
            learnt = facts if last else ()
            taken, stepped, known = each.seen[:3] if each.seen is not None else (None, (), layout)
            done = applied or not last
            counted = each.scalars()
            late = each.late
            closed = Closed(
                each.step, each.stream, each.time, counted, learnt, done, known, taken, stepped if done else (), late
            )
            reading_it = reading if each.weighed else 0.0
            self.book(closed, each.own, each.own, sighted=taken is not None, reading=reading_it)

    def book(self, closed: Closed, own: float, booked: float, *, sighted: bool = False, reading: float = 0.0) -> None:
        """Book a step that ended at ``closed.time``, and pass it on to the delivery. Watching had taken ``own`` seconds
        on the training's threads by then, and ``booked`` with the work of closing the step. See ``Governor.book``.
        """
        # The step's scalars are of one span; the price of a full step includes closing it.
        took, within = closed.time - self.last, own - self._within
        booked += self._background()
        spent = booked - self._spent
        self.last, self._within, self._spent = closed.time, own, booked
        counted = closed.scalars
        # Hooks in threads of autograd's may run beside each other.
        counted["duration"], counted["overhead"] = took, min(max(0.0, within), took)
        self.deliver |= self.delivery.put(closed)
        governor = self.governor
        if closed.late is None:
            self.watch(closed)
        # The first step holds the program's imports and its loading of data, which are no training.
        full, governor.handing_s = closed.taken is not None, self.delivery.handing_s
        governor.book(took if closed.step else spent, spent, full=full, sighted=sighted, reading=reading)

    def watch(self, closed: Closed) -> bool:
        """Check the loss and the norm of a step, once all values are here. Return True if one is unusual."""
        return self.governor.watch(closed.scalars.get("loss"), closed.scalars.get("grad_norm"))

    def cost(self) -> dict[str, Any]:
        """Return the cost of watching so far: seconds by kind of work, and how many steps were read how."""
        governor = self.governor
        background = self._background()
        self._tally.collect()
        own, training = self._tally.seconds + background, governor.training
        return {
            "budget": governor.overhead,
            "allowance_s": self._settings.allowance_s if governor.overhead is not None else None,
            "at_once_s": AT_ONCE * self._settings.allowance_s if governor.overhead is not None else None,
            "short_share": SHORT if governor.overhead is not None else None,
            "elapsed_s": self.last,
            "own_s": own,
            "training_s": training,
            "ratio": own / training if training > 0 else None,
            "full_steps": governor.full_steps,
            "sighted_steps": governor.sighted_steps,
            "full_s": governor.on_full_s,
            "sighted_s": governor.on_sighted_s,
            "light_steps": governor.light_steps,
            "parts_s": {**self._tally.parts, "writing": background},
        }
