"""Steps that are over, from the moment they close until they are handed on, derived and in order.

What of a step is still on its way from a device is put in its place when it has arrived; till then the step waits, and
those after it with it.

Working on one step at a time finds every cache cold, so they are put aside and worked on together. None waits longer
than a fraction of the second that a killed process may lose.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.capture.guest.tensor_kinds import heard
from neuraldbg.capture.parameters.update_ratio import update_ratios
from neuraldbg.errors import TrainingHalted
from neuraldbg.nouns import STATS, Step
from neuraldbg.raised import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.statistics.device.pending import Late
    from neuraldbg.capture.statistics.raw_rows import Raw
    from neuraldbg.capture.statistics.table import Table
    from neuraldbg.capture.statistics.watched_parameter import Watched
    from neuraldbg.nouns import Fact, Layout

BACKLOG_S = 0.25
"""Seconds that a closed step may wait."""
BATCH = 64
"""Steps that are worked on together."""


_MOST_LATE = 64
"""Steps that may be on their way from a device; the oldest of more is waited for."""
_AT_ONCE = 32_768
"""Rows that are worked on at once, of all steps together: a few megabytes."""
_NOTHING = np.zeros((0, len(STATS)))
"""The table of a light step."""


class Closed(NamedTuple):
    """A step that is over, its table not yet derived."""

    step: int
    stream: int
    time: float
    scalars: dict[str, float]
    facts: tuple[Fact, ...]
    applied: bool
    layout: Layout
    taken: Raw | None
    """None of a light step."""
    stepped: tuple[Watched, ...] = ()
    """The parameters that were changed by it."""
    late: Late | None = None
    """What of it is on its way from a device, if it was when the step closed."""


class Delivery:
    """Puts closed steps aside and hands them on."""

    def __init__(self, table: Table, tally: Tally, emit: Callable[[Step, Layout], None]) -> None:
        self._table, self._tally, self._emit = table, tally, emit
        self.batch = BATCH
        """Steps after which those put aside are handed on."""
        self.heard: Callable[[Closed], bool] = lambda closed: False
        """Told of each late step when it has arrived, in order; returns whether it looks odd."""
        self.expect: Callable[[Sequence[Step], Layout, npt.NDArray[np.float64]], None] | None = None
        """Told of full steps that are about to be handed on one by one, where they have one layout: with their tables,
        shape (steps, sites, len(STATS)), which must not be kept beyond the last of them."""
        self._handing_on = False
        self._backlog: list[Closed] = []
        self._whole = 0
        """How many of the first of them have arrived."""
        self._rows = 0
        """Rows of all of them."""
        self._urgent = 0
        """How many of the first of them are to be handed on as soon as they have arrived."""
        self.lock = threading.RLock()
        """Held by whoever puts steps aside or hands them on."""

    def put(self, closed: Closed) -> bool:
        """Put a step aside. Returns whether it is time to hand on."""
        with self.lock:
            self._backlog.append(closed)
            self._rows += len(closed.taken.raw) if closed.taken is not None else 0
            self.arrive()
        waited = closed.time - self._backlog[0].time if self._backlog else 0.0
        soon = max(waited, closed.scalars["duration"]) > BACKLOG_S or self._urgent > 0
        return soon or not closed.applied or len(self._backlog) >= self.batch or self._rows >= _AT_ONCE

    def hurry(self) -> None:
        """Have what is put aside now handed on soon: it holds parameters that the program has let go of."""
        self._urgent = len(self._backlog)  # without the lock: whoever calls may hold another that its holder waits for

    def arrive(self, *, wait: bool = False) -> bool:
        """Put what has arrived of late steps in its place, in the order of the steps. Returns whether one looks odd.

        Called by the thread that trains alone: while that captures a CUDA graph, no other may ask a device anything.
        """
        odd = False
        with self.lock:
            while self._whole < len(self._backlog):
                closed = self._backlog[self._whole]
                if closed.late is not None:
                    try:
                        wait_now = wait or len(self._backlog) - self._whole > _MOST_LATE
                        if not (wait_now or closed.late.ready()):
                            break
                        closed.scalars.update(closed.late.land(closed.taken))
                        odd |= self.heard(closed)
                    except Exception:  # noqa: BLE001 (a device that died tells nothing more; what is here still counts)
                        self._tally.caught("fetching numbers from a device")
                self._whole += 1
        return odd

    @property
    def awaits(self) -> bool:
        """Return True if a step is on its way from a device."""
        return self._whole < len(self._backlog)

    def deliver(self, *, wait: bool = False) -> None:
        """Hand on the steps that were put aside and have arrived, in order; ``wait`` for all of them."""
        with self.lock:
            if wait:
                self.arrive(wait=True)
            backlog, self._backlog = self._backlog[: self._whole], self._backlog[self._whole :]
            self._whole = self._rows = 0
            self._urgent = max(0, self._urgent - len(backlog))
            # Whoever takes a step may ask for those that closed meanwhile: they come in between.
            inner, self._handing_on = self._handing_on, True
            begun = 0
            try:
                for alike in _alike(backlog):
                    steps = self._steps(alike, expected=not inner)
                    for closed, step in zip(alike, steps, strict=True):
                        begun += 1
                        self._hand_on(step, closed.layout)
            except BaseException as error:
                if passes(error):
                    self._take_back(backlog[begun:])
                raise
            finally:
                self._handing_on = inner

    def _take_back(self, backlog: list[Closed]) -> None:
        """Put steps aside again that a signal handler of the program's has kept from being handed on."""
        self._backlog[:0] = backlog
        self._whole += len(backlog)
        self._rows += sum(len(closed.taken.raw) for closed in backlog if closed.taken is not None)

    def _steps(self, alike: list[Closed], *, expected: bool) -> list[Step]:
        """Make the steps, which are alike. They are ``expected`` by those who take them, unless they come in between
        steps that are.
        """
        tables = self._tables(alike)
        if tables is None:
            return [_step(closed, _NOTHING) for closed in alike]
        # Whoever keeps a step's table must not keep all.
        steps = [_step(closed, table.copy()) for closed, table in zip(alike, tables, strict=True)]
        layout = alike[0].layout
        if self.expect is not None and expected and all(closed.layout is layout for closed in alike):
            self.expect(steps, layout, tables)
        return steps

    def _tables(self, alike: list[Closed]) -> npt.NDArray[np.float64] | None:
        """Work out the tables of steps that are alike, and what follows from them; None of light steps."""
        taken = [closed.taken for closed in alike if closed.taken is not None]
        if not taken:
            return None
        tables = self._table.derive_all([closed.step for closed in alike], taken)
        if alike[0].stepped:
            for closed, ratio in zip(alike, update_ratios(alike[0].stepped, tables), strict=True):
                if ratio is not None:
                    closed.scalars["update_ratio"] = ratio
        return tables

    def deliver_late(self, now: float) -> None:
        """Hand on steps that have waited too long, where no step follows that would: called by the writer's thread.

        ``now`` is in seconds since the run began.
        """
        backlog = self._backlog
        if backlog and self._whole and now - backlog[0].time > BACKLOG_S:
            self.deliver()

    def _hand_on(self, step: Step, layout: Layout) -> None:
        try:
            with heard():  # who takes it may be the program
                self._emit(step, layout)
        except Exception as error:
            if isinstance(error, TrainingHalted):
                raise
            self._tally.caught("judging and recording steps")  # the steps after this one are still handed on


def _step(closed: Closed, table: npt.NDArray[np.float64]) -> Step:
    return Step(
        index=closed.step,
        stream=closed.stream,
        time=closed.time,
        table=table,
        scalars=closed.scalars,
        facts=closed.facts,
        applied=closed.applied,
        histograms=None if closed.taken is None else closed.taken.histograms,
    )


def _alike(backlog: list[Closed]) -> Iterator[list[Closed]]:
    """Yield steps in a row that have the same sites and changed the same parameters."""
    alike: list[Closed] = []
    for closed in backlog:
        full = alike and len(alike) * max(1, _form(closed)[0]) >= _AT_ONCE
        if alike and (full or _form(closed) != _form(alike[0])):
            yield alike
            alike = []
        alike.append(closed)
    if alike:
        yield alike


def _form(closed: Closed) -> tuple[int, tuple[Watched, ...]]:
    return -1 if closed.taken is None else len(closed.taken.raw), closed.stepped
