"""What waits for the writer: bounded, and never a reason for training to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.record.block import Block, Stamp, fold, from_steps, join
from neuraldbg.record.retention import BIN
from neuraldbg.record.writer import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Event, Fact, Layout, RunInfo, Step


class Backlog:
    """Collects steps until the writer takes them. Not thread-safe: the recorder holds a lock around every call.

    When ``limit`` steps wait, further ones are folded into bins until the writer comes; facts and events are kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ordinal = 0
        self._turns: dict[int, int] = {}
        self._start()

    def _start(self) -> None:
        self._batch = Batch()
        self._puts: list[tuple[Step, Sequence[Event]]] = []
        self._stamps: list[Stamp] = []
        self._excess: list[tuple[Stamp, Step]] = []
        self._bin = BIN
        self._bin_rows = self._limit

    def put(self, step: Step, layout: Layout, events: Sequence[Event]) -> bool:
        """Take a step; False if it will be folded because too many wait."""
        turn = self._turns.get(step.stream, 0)
        self._turns[step.stream] = turn + 1
        stamp = Stamp(self._ordinal, turn)
        self._ordinal += 1
        self._batch.layout = layout
        if len(self._puts) < self._limit:
            self._puts.append((step, tuple(events)))
            self._stamps.append(stamp)
            return True
        self._keep(step, events)
        self._excess.append((stamp, step))
        if len(self._excess) == BIN:
            self._fold_excess()
        return False

    def tell(self, events: Sequence[Event]) -> None:
        """Take newer versions of events."""
        self._batch.events.update((event.key, event) for event in events)

    def note(self, facts: Sequence[Fact]) -> None:
        """Take facts that belong to no single step."""
        self._batch.facts.extend(facts)

    def inform(self, info: RunInfo) -> None:
        """Take the newest information about the run."""
        self._batch.info = info

    def take(self) -> Batch:
        """Give what waits, and start anew."""
        self._fold_excess()
        batch, puts, stamps = self._batch, self._puts, self._stamps
        late = (batch.facts, batch.events)  # what excess steps brought, and what was told: newer than the puts
        batch.facts, batch.events = [], {}
        for step, events in puts:
            self._keep(step, events)
        batch.facts.extend(late[0])
        batch.events.update(late[1])
        batch.steps = [(stamp, step) for stamp, (step, _) in zip(stamps, puts, strict=True)]
        self._start()
        return batch

    @property
    def waiting(self) -> int:
        """Steps that wait at full resolution."""
        return len(self._puts)

    def _keep(self, step: Step, events: Sequence[Event]) -> None:
        self._batch.facts.extend(step.facts)
        self._batch.events.update((event.key, event) for event in events)

    def _fold_excess(self) -> None:
        if not self._excess:
            return
        stamps, steps = zip(*self._excess, strict=True)
        self._excess = []
        blocks: list[Block] = self._batch.blocks
        blocks.append(fold(from_steps(steps, stamps), self._bin))
        # A writer that hangs for hours: ever wider bins, so that memory stays bounded.
        if sum(map(len, blocks)) > self._bin_rows:
            self._bin *= BIN
            blocks[:] = [fold(join(blocks), self._bin)]
            self._bin_rows = max(self._bin_rows, 2 * len(blocks[0]))
