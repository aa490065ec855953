"""Closed steps until they are delivered, derived and in order.

Values of a step that are on a device are stored when they have arrived; until then the step waits, and those after it.

A single step finds every cache cold, so closed steps are collected and processed together. None waits longer than a
fraction of the second that a killed process may lose.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.capture.guest.tensor_kinds import heard
from neuraldbg.capture.parameters.update_ratio import update_ratios
from neuraldbg.clocks import perf_counter
from neuraldbg.errors import TrainingHalted
from neuraldbg.nouns import STATS, Step
from neuraldbg.raised import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
"""Steps that are processed together."""


MOST_LATE = 64
"""Steps with pending device values; beyond that the oldest is waited for."""
_AT_ONCE = 32_768
"""Rows of all steps together that are processed at once: a few megabytes."""
_MEMORY = 0.1
"""Weight of the newest steps in the mean time of handing one on."""
_NOTHING = np.zeros((0, len(STATS)))
"""The table of a light step, no rows."""


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
    """The raw rows, None for a light step whose sites were not read."""
    stepped: tuple[Watched, ...] = ()
    """The parameters that the step changed."""
    late: Late | None = None
    """Values that were still on a device when the step closed, None if there were none."""
    divided_by: int = 1
    """Number of micro-batches by which the program has divided each of the step's losses."""


class Delivery:
    """Collects closed steps and delivers them in order to the session."""

    def __init__(
        self,
        table: Table,
        tally: Tally,
        emit: Callable[[Step, Layout], None],
        arrived: Callable[[Closed], bool],
    ) -> None:
        self._table, self._tally, self._emit = table, tally, emit
        self.divided_by: Mapping[int, int] = {}
        """See ``Losses.divided_by``."""
        self.batch = BATCH
        """Number of collected steps at which they are delivered."""
        self.at_once = False
        """True if a step that is over waits for its values on a device: a breakpoint must stop at its step."""
        self._arrived = arrived
        """Called with each late step when its values have arrived, in order; returns True if they are unusual."""
        self.expect: Callable[[Sequence[Step], Layout, npt.NDArray[np.float64]], None] | None = None
        """Called with full steps of one layout before they are delivered one by one, and their tables, shape (steps,
        sites, len(STATS)), which must not be kept beyond the last of them. None if not needed."""
        self.handing_s = 0.0
        """Seconds in which the tables of one step are derived and handed on, a running mean."""
        self._handing_on = False
        self._backlog: list[Closed] = []
        self._whole = 0
        """Number of steps, from the first, whose values have arrived."""
        self._rows = 0
        """Number of rows of all collected steps."""
        self._urgent = 0
        """Number of steps, from the first, to deliver as soon as their values have arrived."""
        self.lock = threading.RLock()
        """Held while steps are added or delivered."""

    def put(self, closed: Closed) -> bool:
        """Add a closed step. Return True if it is time to deliver."""
        if self.divided_by:
            closed = closed._replace(divided_by=self.divided_by.get(closed.stream, 1))
        with self.lock:
            self._backlog.append(closed)
            self._rows += len(closed.taken.raw) if closed.taken is not None else 0
            self.arrive()
        waited = closed.time - self._backlog[0].time if self._backlog else 0.0
        soon = max(waited, closed.scalars["duration"]) > BACKLOG_S or self._urgent > 0
        return soon or not closed.applied or len(self._backlog) >= self.batch or self._rows >= _AT_ONCE

    def hurry(self) -> None:
        """Deliver the current steps soon: they hold parameters that the program has dropped."""
        self._urgent = len(self._backlog)  # without the lock, whose holder may wait for a lock of the caller

    def arrive(self, *, wait: bool = False) -> bool:
        """Store the values of late steps that have arrived, in the order of the steps. Return True if one is unusual.

        Called only by the thread that trains: while that captures a CUDA graph, no other may query a device.
        """
        odd = False
        with self.lock:
            while self._whole < len(self._backlog):
                closed = self._backlog[self._whole]
                if closed.late is not None:
                    try:
                        wait_now = wait or len(self._backlog) - self._whole > MOST_LATE
                        if not (wait_now or closed.late.ready()):
                            break
                        closed.scalars.update(closed.late.land(closed.taken))
                        odd |= self._arrived(closed)
                    except Exception:  # noqa: BLE001 (a device that died tells nothing more; what is here still counts)
                        self._tally.caught("fetching numbers from a device")
                self._whole += 1
        return odd

    @property
    def awaits(self) -> bool:
        """True if values of a step are still on a device."""
        return self._whole < len(self._backlog)

    def deliver(self, *, wait: bool = False) -> None:
        """Deliver the collected steps whose values have arrived, in order; ``wait`` delivers all of them."""
        with self.lock:
            if wait:
                self.arrive(wait=True)
            backlog, self._backlog = self._backlog[: self._whole], self._backlog[self._whole :]
            self._whole = self._rows = 0
            self._urgent = max(0, self._urgent - len(backlog))
            # A receiver of a step may ask for those that closed meanwhile: they are delivered in between.
            inner, self._handing_on = self._handing_on, True
            begun = 0
            try:
                for alike in _alike(backlog):
                    began = perf_counter()
                    steps = self._steps(alike, expected=not inner)
                    for closed, step in zip(alike, steps, strict=True):
                        begun += 1
                        self._hand_on(step, closed.layout)
                    if alike[0].taken is not None:
                        took = (perf_counter() - began) / len(alike)
                        self.handing_s += _MEMORY * (min(took, 4 * self.handing_s or took) - self.handing_s)
            except BaseException as error:
                if passes(error):
                    self._take_back(backlog[begun:])
                raise
            finally:
                self._handing_on = inner

    def _take_back(self, backlog: list[Closed]) -> None:
        """Put steps back that a signal handler of the program has kept from being delivered."""
        self._backlog[:0] = backlog
        self._whole += len(backlog)
        self._rows += sum(len(closed.taken.raw) for closed in backlog if closed.taken is not None)

    def _steps(self, alike: list[Closed], *, expected: bool) -> list[Step]:
        """Return the finished steps for closed ones of one form. Announce them to ``expect`` if ``expected``: not when
        they are delivered between announced steps.
        """
        tables = self._tables(alike)
        if tables is None:
            return [_step(closed, _NOTHING) for closed in alike]
        # A receiver that keeps a step's table must not keep all tables.
        steps = [_step(closed, table.copy()) for closed, table in zip(alike, tables, strict=True)]
        layout = alike[0].layout
        if self.expect is not None and expected and all(closed.layout is layout for closed in alike):
            self.expect(steps, layout, tables)
        return steps

    def _tables(self, alike: list[Closed]) -> npt.NDArray[np.float64] | None:
        """Return the tables of steps of one form, and set the scalars derived from them; None for light steps."""
        taken = [closed.taken for closed in alike if closed.taken is not None]
        if not taken:
            return None
        tables = self._table.derive_all([closed.step for closed in alike], taken)
        if alike[0].stepped:
            for closed, ratio in zip(alike, update_ratios(alike[0].stepped, tables), strict=True):
                if ratio is not None and not closed.scalars.get("overflowed"):
                    closed.scalars["update_ratio"] = ratio
        return tables

    def deliver_late(self, now: float) -> None:
        """Deliver steps that have waited too long, if no step follows that would: called by the writer's thread.
        ``now`` is in seconds since the run began.
        """
        backlog = self._backlog
        if backlog and self._whole and now - backlog[0].time > BACKLOG_S:
            self.deliver()

    def _hand_on(self, step: Step, layout: Layout) -> None:
        try:
            with heard():  # the receiver may be the program
                self._emit(step, layout)
        except Exception as error:
            if isinstance(error, TrainingHalted):
                raise
            self._tally.caught("judging and recording steps")  # the steps after this one are still delivered


def _step(closed: Closed, table: npt.NDArray[np.float64]) -> Step:
    scalars = closed.scalars
    # A copy, because a step that is put back is made once more.
    if closed.divided_by > 1 and "loss" in scalars:
        scalars = {**scalars, "loss": closed.divided_by * scalars["loss"]}
    return Step(
        index=closed.step,
        stream=closed.stream,
        time=closed.time,
        table=table,
        scalars=scalars,
        facts=closed.facts,
        applied=closed.applied and not scalars.get("overflowed"),
        histograms=None if closed.taken is None else closed.taken.histograms,
    )


def _alike(backlog: list[Closed]) -> Iterator[list[Closed]]:
    """Yield runs of steps that have the same sites and changed the same parameters."""
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
