"""One part of the record in the database, the scalars of steps or the tables of sites: appending, closing, thinning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.record import codec
from neuraldbg.record.binning import fold
from neuraldbg.record.budget import BIN
from neuraldbg.record.retention import Entry, next_fold
from neuraldbg.record.row_block import amended, join

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from neuraldbg.record.budget import Limits
    from neuraldbg.record.row_block import Amendment, Block

_FIELDS = "id, level, ordinal, rows, first_step, last_step, length(body)"


class Lane:
    """The blocks of one part of the record. Its state in memory mirrors the database; after an error, ``reload``."""

    def __init__(self, db: sqlite3.Connection, part: str) -> None:
        self._db = db
        self._part = part
        self._entries: list[Entry] = []
        """Closed blocks, in order of time."""
        self._tail: list[tuple[int, Block]] = []
        """Open blocks with their ids: their rows become one closed block when there are enough."""
        self._known: dict[int, Block] = {}
        """Closed blocks of scalars by id: a megabyte or two, which is cheaper to keep than to read again."""

    def reload(self) -> None:
        """Read the list of blocks, and the open ones, from the database."""
        self._known.clear()
        closed = f"SELECT {_FIELDS} FROM block WHERE part = ? AND NOT open ORDER BY ordinal"  # noqa: S608 (a constant)
        self._entries = [Entry(*row) for row in self._db.execute(closed, (self._part,))]
        tail = self._db.execute("SELECT id, body FROM block WHERE part = ? AND open ORDER BY ordinal", (self._part,))
        self._tail = [(row_id, codec.decode(body)) for row_id, body in tail]

    def put(self, fresh: Sequence[Block], limits: Limits, places: Collection[int]) -> None:
        """Append rows, close full blocks, and fold blocks beyond the limits. ``places`` are the places of events."""
        if not fresh:
            return
        new = join(fresh)
        if sum(len(block) for _, block in self._tail) + len(new) < limits.block_rows:
            self._tail.append((self._store(new, 0, closed=False), new))
            return
        rows = join([*(block for _, block in self._tail), new])
        self._delete(row_id for row_id, _ in self._tail)
        self._tail.clear()
        closed = len(rows) - len(rows) % limits.block_rows
        for first in range(0, closed, limits.block_rows):
            self._store(rows.slice(first, first + limits.block_rows), 0)
        if closed < len(rows):
            rest = rows.slice(closed, len(rows))
            self._tail.append((self._store(rest, 0, closed=False), rest))
        self._thin(limits, places)

    def amend(self, late: Mapping[int, Mapping[str, Amendment]]) -> None:
        """Add scalars to the rows of steps that are stored, by number of the step. A step that no row covers is passed
        over: it was not recorded.
        """
        waiting = dict(late)
        for place in range(len(self._tail) - 1, -1, -1):
            row_id, block = self._tail[place]
            if mine := _of_steps(block, waiting):
                block = amended(block, mine)
                self._delete([row_id])
                self._tail[place] = self._store(block, 0, closed=False), block
        for entry in sorted(self._entries, key=lambda one: one.last_step, reverse=True):
            near = [step for step in waiting if entry.first_step <= step <= entry.last_step]
            if near and (mine := _of_steps(rows := self._read(entry), waiting)):
                self._delete([entry.id])
                self._entries = [other for other in self._entries if other.id != entry.id]
                self._store(amended(rows, mine), entry.level)
            if not waiting:
                return

    def _thin(self, limits: Limits, places: Collection[int]) -> None:
        while found := next_fold(self._entries, places, limits):
            entries, level = found
            rows = join([self._read(entry) for entry in entries])
            gone = {entry.id for entry in entries}
            self._delete(gone)
            self._entries = [entry for entry in self._entries if entry.id not in gone]
            self._store(fold(rows, BIN**level), level)

    def _read(self, entry: Entry) -> Block:
        if entry.id in self._known:
            return self._known[entry.id]
        (body,) = self._db.execute("SELECT body FROM block WHERE id = ?", (entry.id,)).fetchone()
        return codec.decode(body)

    def _store(self, block: Block, level: int, *, closed: bool = True) -> int:
        first, last = int(block.steps.min()), int((block.steps + block.width - 1).max())
        ordinal, body = int(block.ordinal[0]), codec.encode(block)
        row_id = self._db.execute(
            "INSERT INTO block (part, level, open, ordinal, rows, first_step, last_step, body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self._part, level, not closed, ordinal, len(block), first, last, body),
        ).lastrowid
        assert row_id is not None
        if closed:
            entry = Entry(row_id, level, ordinal, len(block), first, last, len(body))
            later = next((i for i, other in enumerate(self._entries) if other.ordinal > ordinal), len(self._entries))
            self._entries.insert(later, entry)
            if not block.mean.shape[1]:
                self._known[row_id] = block
        return row_id

    def _delete(self, ids: Iterable[int]) -> None:
        gone = list(ids)
        for row_id in gone:
            self._known.pop(row_id, None)
        self._db.executemany("DELETE FROM block WHERE id = ?", [(row_id,) for row_id in gone])


def _of_steps(block: Block, waiting: dict[int, Mapping[str, Amendment]]) -> dict[int, list[Mapping[str, Amendment]]]:
    """Take from the scalars that wait those of the steps of a block. Return them by the index of the row."""
    found: dict[int, list[Mapping[str, Amendment]]] = {}
    for step in list(waiting):
        rows = np.flatnonzero((block.steps <= step) & (step < block.steps + block.width))
        if len(rows):
            found.setdefault(int(rows[-1]), []).append(waiting.pop(step))
    return found
