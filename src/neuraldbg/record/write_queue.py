"""The queue of steps for the writer, bounded in steps and bytes: when it is full, steps are folded, and none waits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.record.binning import fold
from neuraldbg.record.budget import BIN, bin_bytes
from neuraldbg.record.retention import MAX_LEVEL
from neuraldbg.record.row_block import Amendment, Block, join, rows_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from neuraldbg.nouns import Event, Fact, Layout, RunInfo, Step, StepHistograms
    from neuraldbg.record.row_block import Ints

LIGHT_BYTES = 2048
"""Bytes of a step without its table: the object, and a dictionary of some twenty numbers."""
EXCESS = 256
"""Light steps that are folded at once; of steps with tables, BIN of them."""


@dataclass
class Batch:
    """The steps, facts and events that were queued since the last write."""

    steps: list[Step] = field(default_factory=list)
    """Steps at full resolution, oldest first."""
    ordinal: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """``Block.ordinal`` of the steps, shape (len(steps),)."""
    turn: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """``Block.turn`` of the steps, shape (len(steps),)."""
    full: list[Step] = field(default_factory=list)
    """The full steps among ``steps``, which have a table."""
    full_ordinal: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """``Block.ordinal`` of the full steps, shape (len(full),)."""
    full_turn: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """``Block.turn`` of the full steps in the part of tables, shape (len(full),)."""
    rows: list[Block] = field(default_factory=list)
    """Scalars of steps that were folded because the writer did not keep up; they come after ``steps``."""
    tables: list[Block] = field(default_factory=list)
    """Tables of steps that were folded; they come after ``steps``."""
    late: dict[int, dict[str, Amendment]] = field(default_factory=dict)
    """Scalars of steps that were stored before, by number of the step."""
    histograms: list[StepHistograms] = field(default_factory=list)
    """Histograms in step order."""
    layout: Layout | None = None
    """Newest layout. None if no step was queued, and no layout by itself."""
    facts: list[Fact] = field(default_factory=list)
    """Facts in the order of their arrival."""
    events: dict[tuple[str, str, str, int], Event] = field(default_factory=dict)
    """Newest version of each event by its key."""
    info: RunInfo | None = None
    """Newest information about the run. None if there is no new one."""

    def __bool__(self) -> bool:
        queued = self.steps or self.rows or self.late or self.facts or self.events or self.layout or self.info
        return bool(queued)

    def blocks(self) -> tuple[list[Block], list[Block]]:
        """Return the blocks of scalars and the blocks of tables of all steps."""
        rows, tables = list(self.rows), list(self.tables)
        if self.steps:
            rows.insert(0, rows_of(self.steps, self.ordinal, self.turn))
        if self.full:
            tables.insert(0, tables_of(self.full, self.full_ordinal, self.full_turn))
        return rows, tables


class _Clock:
    """Numbers steps in their order, within the run and within their stream."""

    def __init__(self) -> None:
        self._ordinal = 0
        self._turns: dict[int, int] = {}
        self._full_turns: dict[int, int] = {}

    def stamp(self, batch: Batch, steps: list[Step], tabled: int) -> None:
        """Put steps and their numbers into a batch; ``tabled`` is the number of steps with a table."""
        streams = [step.stream for step in steps]
        batch.steps = steps
        batch.ordinal = np.arange(self._ordinal, self._ordinal + len(steps))
        batch.turn = self._turn(self._turns, streams)
        if tabled:
            at = [i for i, step in enumerate(steps) if len(step.table)]
            batch.full = [steps[i] for i in at]
            batch.full_ordinal = batch.ordinal[at]
            batch.full_turn = self._turn(self._full_turns, [streams[i] for i in at])
        self._ordinal += len(steps)

    @staticmethod
    def _turn(turns: dict[int, int], streams: list[int]) -> Ints:
        if streams.count(streams[0]) == len(streams):
            first = turns.get(streams[0], 0)
            turns[streams[0]] = first + len(streams)
            return np.arange(first, first + len(streams))
        found = np.empty(len(streams), np.int64)
        for i, stream in enumerate(streams):
            found[i] = turn = turns.get(stream, 0)
            turns[stream] = turn + 1
        return found


class Backlog:
    """Collects steps until the writer takes them. It is not thread-safe: the recorder holds a lock around every call.

    When ``limit`` steps or ``most`` bytes wait, further steps are folded into bins until the writer takes them; facts,
    events and counts of non-finite values are kept.
    """

    def __init__(self, limit: int, most: int) -> None:
        self._limit, self._most = limit, most
        self._clock = _Clock()
        self._start()

    def _start(self) -> None:
        self._batch = Batch()
        self._steps: list[Step] = []
        self._bytes = 0
        self._full = False
        """True once a step goes to ``_excess``: later ones must follow it, to keep their order."""
        self._tabled = 0
        self._excess: list[Step] = []
        self._excess_tabled = 0
        self._bins: dict[str, tuple[int, int]] = {}
        """Steps per bin, and the number of rows above which bins get wider, by part of the record."""

    def put(self, step: Step, layout: Layout, events: Sequence[Event]) -> bool:
        """Queue a step. Return False if it will be folded because the queue is full."""
        batch = self._batch
        batch.layout = layout
        if events:
            self.tell(events)
        if step.facts:
            batch.facts.extend(step.facts)
        if step.histograms is not None:
            self._keep(step.histograms)
        # A single step larger than ``most`` is still taken: a queue that accepted none would record nothing in full.
        table = step.table.nbytes
        taken = self._bytes + LIGHT_BYTES + table
        if not self._full and len(self._steps) < self._limit and (taken <= self._most or not self._steps):
            self._bytes = taken
            self._tabled += table > 0
            self._steps.append(step)
            return True
        self._full = True
        self._excess.append(step)
        self._excess_tabled += table > 0
        if self._excess_tabled == BIN or len(self._excess) == EXCESS:
            self._fold_excess()
        return False

    def amend(self, index: int, scalars: Mapping[str, float], before: Mapping[str, float]) -> None:
        """Add scalars to a step that was put before, or replace those that it had ``before``. A step that was taken
        already is changed where it is stored.
        """
        for queue in (self._excess, self._steps):
            for place in range(len(queue) - 1, -1, -1):
                if queue[place].index == index:
                    queue[place] = replace(queue[place], scalars={**queue[place].scalars, **scalars})
                    return
                if queue[place].index < index:
                    break
        late = self._batch.late.setdefault(index, {})
        for name, value in scalars.items():
            had = late[name].before if name in late else before.get(name)
            late[name] = Amendment(value, had)

    def _keep(self, histograms: StepHistograms) -> None:
        """Queue the histograms of a step if there is room; if the writer does not keep up, some are left out."""
        if self._bytes + histograms.nbytes <= self._most or not self._batch.histograms:
            self._bytes += histograms.nbytes
            self._batch.histograms.append(histograms)

    def tell(self, events: Iterable[Event]) -> None:
        """Queue newer versions of events."""
        self._batch.events.update((event.key, event) for event in events)

    def note(self, facts: Sequence[Fact]) -> None:
        """Queue facts that belong to no single step."""
        self._batch.facts.extend(facts)

    def know(self, layout: Layout) -> None:
        """Queue a layout without a step."""
        self._batch.layout = layout

    def inform(self, info: RunInfo) -> None:
        """Queue the newest information about the run."""
        self._batch.info = info

    def take(self) -> Batch:
        """Return the queue as a batch, and empty it."""
        self._fold_excess()
        batch = self._batch
        if self._steps:
            self._clock.stamp(batch, self._steps, self._tabled)
        self._start()
        return batch

    @property
    def half_full(self) -> bool:
        """True if half of the limit of steps or bytes waits, and the writer should be woken."""
        return len(self._steps) * 2 >= self._limit or self._bytes * 2 >= self._most

    def _fold_excess(self) -> None:
        if not self._excess:
            return
        if self._steps:  # they are older, and get their numbers first
            self._clock.stamp(self._batch, self._steps, self._tabled)
            self._steps = []
        part = Batch()
        self._clock.stamp(part, self._excess, self._excess_tabled)
        self._excess, self._excess_tabled = [], 0
        rows, tables = part.blocks()
        self._add("rows", self._batch.rows, rows, EXCESS)
        if tables:
            most = self._most // bin_bytes(tables[0].mean.shape[1])
            self._add("tables", self._batch.tables, tables, max(2 * BIN, min(EXCESS, most)))

    def _add(self, part: str, kept: list[Block], new: list[Block], most: int) -> None:
        bin_steps, rows = self._bins.get(part, (BIN, most))
        kept.append(fold(join(new), bin_steps))
        # The writer may hang for hours: bins get ever wider, so that memory stays bounded.
        if sum(map(len, kept)) > rows:
            bin_steps = min(bin_steps * BIN, BIN**MAX_LEVEL)
            kept[:] = [fold(join(kept), bin_steps)]
            rows = max(rows, 2 * len(kept[0]))
        self._bins[part] = (bin_steps, rows)
