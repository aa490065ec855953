"""Batches of steps into the run file: each in one transaction, so that what is in the file is always whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neuraldbg.record import codec, schema
from neuraldbg.record.block import Block, Stamp, fold, from_steps, join
from neuraldbg.record.retention import BIN, BLOCK_ROWS, Entry, Limits, next_fold, place_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from neuraldbg.nouns import Event, Fact, Layout, RunInfo, Step

MAX_FACTS = 4096
"""Versions kept of one kind of fact; beyond it the oldest quarter and the newest stay."""


@dataclass
class Batch:
    """What was recorded since the last write."""

    steps: list[tuple[Stamp, Step]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    """Steps that were folded because the writer did not keep up; they follow ``steps``."""
    layout: Layout | None = None
    facts: list[Fact] = field(default_factory=list)
    events: dict[tuple[str, str, str, int], Event] = field(default_factory=dict)
    """The last version of each."""
    info: RunInfo | None = None

    def __bool__(self) -> bool:
        return bool(self.steps or self.blocks or self.facts or self.events or self.layout or self.info)


class Writer:
    """Writes to one database. After any failure its state is read back from there, so a batch may be written again."""

    def __init__(self, db: sqlite3.Connection, full_steps: int) -> None:
        self._db = db
        self._full_steps = full_steps
        self._whole = False
        """Whether the fields below say what is in the database."""
        self._layout: Layout | None = None
        self._sites = 0
        self._entries: list[Entry] = []
        """Closed blocks, in order of time."""
        self._tail: list[tuple[int, Block]] = []
        """Open blocks by id: their rows become one closed block when there are enough."""
        self._places: set[int] = set()

    def write(self, batch: Batch) -> None:
        """Store a batch, all of it or nothing; sqlite3.Error if the database cannot take it."""
        if not self._whole:
            self._reload()
        self._whole = False
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if batch.info is not None:
                self._put_meta("info", schema.dumps(batch.info))
            if batch.layout is not None:
                self._put_layout(batch.layout)
            self._put_events(batch.events.values())
            self._put_facts(batch.facts)
            self._put_rows(batch)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._whole = True

    def _reload(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._layout = None
        self._sites = self._db.execute("SELECT count(*) FROM site").fetchone()[0]
        self._entries = [
            Entry(*row)
            for row in self._db.execute(
                "SELECT id, level, ordinal, rows, first_step, last_step FROM block WHERE NOT open ORDER BY ordinal"
            )
        ]
        tail = self._db.execute("SELECT id, body FROM block WHERE open ORDER BY ordinal")
        self._tail = [(row_id, codec.decode(body)) for row_id, body in tail]
        self._places = {place_of(step) for (step,) in self._db.execute("SELECT DISTINCT first_step FROM event")}

    def _put_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _put_layout(self, layout: Layout) -> None:
        old, self._layout = self._layout, layout
        if layout is old:
            return
        new_sites = list(enumerate(layout.sites))[self._sites :]
        self._db.executemany("INSERT INTO site VALUES (?, ?)", [(row, schema.dumps(site)) for row, site in new_sites])
        self._sites += len(new_sites)
        for part in ("layers", "edges", "called"):
            value = getattr(layout, part)
            if old is None or value != getattr(old, part):
                self._put_meta(part, schema.dumps(value))

    def _put_events(self, events: Iterable[Event]) -> None:
        rows = [(*event.key, schema.dumps(event)) for event in events]
        self._db.executemany(
            "INSERT INTO event (kind, layer, site, first_step, value) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (kind, layer, site, first_step) DO UPDATE SET value = excluded.value",
            rows,
        )
        self._places.update(place_of(row[3]) for row in rows)

    def _put_facts(self, facts: list[Fact]) -> None:
        # A FactKey is a str whose own text is its value, not what str() prints.
        rows = [(fact.step, str.__str__(fact.key), schema.dumps(fact.value)) for fact in facts]
        self._db.executemany("INSERT INTO fact (step, key, value) VALUES (?, ?, ?)", rows)
        for key in {row[1] for row in rows}:
            self._bound_facts(key)

    def _bound_facts(self, key: str) -> None:
        (count,) = self._db.execute("SELECT count(*) FROM fact WHERE key = ?", (key,)).fetchone()
        if count > MAX_FACTS:
            self._db.execute(
                "DELETE FROM fact WHERE id IN (SELECT id FROM fact WHERE key = ? ORDER BY id LIMIT ? OFFSET ?)",
                (key, MAX_FACTS // 2, MAX_FACTS // 4),
            )

    def _put_rows(self, batch: Batch) -> None:
        fresh = list(batch.blocks)
        if batch.steps:
            stamps, steps = zip(*batch.steps, strict=True)
            fresh.insert(0, from_steps(steps, stamps))
        if not fresh:
            return
        new = join(fresh)
        if sum(len(block) for _, block in self._tail) + len(new) < BLOCK_ROWS:
            self._tail.append((self._put_block(new, 0, closed=False), new))
            return
        rows = join([*(block for _, block in self._tail), new])
        self._delete(row_id for row_id, _ in self._tail)
        self._tail.clear()
        closed = len(rows) - len(rows) % BLOCK_ROWS
        for first in range(0, closed, BLOCK_ROWS):
            self._put_block(rows.slice(first, first + BLOCK_ROWS), 0)
        if closed < len(rows):
            rest = rows.slice(closed, len(rows))
            self._tail.append((self._put_block(rest, 0, closed=False), rest))
        self._thin()

    def _thin(self) -> None:
        """Fold what is over its limit."""
        limits = Limits.of(self._full_steps, self._sites)
        while found := next_fold(self._entries, self._places, limits):
            entries, level = found
            bodies = (self._db.execute("SELECT body FROM block WHERE id = ?", (entry.id,)) for entry in entries)
            rows = join([codec.decode(body.fetchone()[0]) for body in bodies])
            gone = {entry.id for entry in entries}
            self._delete(gone)
            self._entries = [entry for entry in self._entries if entry.id not in gone]
            self._put_block(fold(rows, BIN**level), level)

    def _put_block(self, block: Block, level: int, *, closed: bool = True) -> int:
        first, last = int(block.steps.min()), int((block.steps + block.width - 1).max())
        ordinal = int(block.ordinal[0])
        row_id = self._db.execute(
            "INSERT INTO block (level, open, ordinal, rows, first_step, last_step, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (level, not closed, ordinal, len(block), first, last, codec.encode(block)),
        ).lastrowid
        assert row_id is not None
        if closed:
            entry = Entry(row_id, level, ordinal, len(block), first, last)
            later = next((i for i, other in enumerate(self._entries) if other.ordinal > ordinal), len(self._entries))
            self._entries.insert(later, entry)
        return row_id

    def _delete(self, ids: Iterable[int]) -> None:
        self._db.executemany("DELETE FROM block WHERE id = ?", [(row_id,) for row_id in ids])
