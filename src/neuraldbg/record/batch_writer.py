"""The writing of batches to a database: each in one transaction, so that the file is always consistent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.nouns import jsonable
from neuraldbg.record import histograms, schema
from neuraldbg.record.budget import histogram_bytes, scalar_limits, table_limits
from neuraldbg.record.fact_shapes import fitting
from neuraldbg.record.retention import place_of
from neuraldbg.record.stored_part import Lane

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from neuraldbg.config import RecordSettings
    from neuraldbg.nouns import Event, Fact, Layout
    from neuraldbg.record.write_queue import Batch

MAX_FACTS = 4096
"""Facts of one kind that are kept. Above that, the oldest quarter stays, and the newest facts."""


class Writer:
    """Writes to one database. After an error its state is read from there again, so a batch may be written again."""

    def __init__(
        self, db: sqlite3.Connection, settings: RecordSettings, check: Callable[[], None] = lambda: None
    ) -> None:
        self._db = db
        self._check = check
        """Called before the database is used; raises if that is not safe."""
        self._settings = settings
        self._whole = False
        """True if the fields below mirror the database."""
        self._layout: Layout | None = None
        self._sites = 0
        self._rows, self._tables = Lane(db, schema.ROWS), Lane(db, schema.TABLES)
        self._places: set[int] = set()
        self.misfits: list[str] = []
        """Error message of the first fact that was not written, in a list; [] if there is none."""

    def write(self, batch: Batch) -> None:
        """Store a batch as a whole or not at all. Raises sqlite3.Error, or the error of ``check``."""
        self._check()
        if not self._whole:
            self._reload()
        self._whole = False
        self._db.execute("BEGIN IMMEDIATE")
        with schema.committed(self._db, self._check):
            if batch.info is not None:
                self._put_meta("info", schema.dumps(batch.info))
            if batch.layout is not None:
                self._put_layout(batch.layout)
            if batch.events:
                self._put_events(batch.events.values())
            if batch.facts:
                self._put_facts(batch.facts)
            rows, tables = batch.blocks()
            self._rows.put(rows, scalar_limits(self._settings), self._places)
            self._rows.amend(batch.late)
            self._tables.put(tables, table_limits(self._settings, self._sites), self._places)
            histograms.store(self._db, batch.histograms, histogram_bytes(self._settings))
        self._whole = True

    def _reload(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._layout = None
        self._sites = self._db.execute("SELECT count(*) FROM site").fetchone()[0]
        self._rows.reload()
        self._tables.reload()
        self._places = {place_of(step) for (step,) in self._db.execute("SELECT DISTINCT first_step FROM event")}

    def _put_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _put_layout(self, layout: Layout) -> None:
        old, self._layout = self._layout, layout
        if layout is old:
            return
        # The dtype of a site is known once it is read, which may be after the site was written.
        written = old.sites if old is not None else ()
        fresh = [
            (row, schema.dumps(site))
            for row, site in enumerate(layout.sites)
            if row >= len(written) or (site is not written[row] and site != written[row])
        ]
        self._db.executemany("INSERT OR REPLACE INTO site VALUES (?, ?)", fresh)
        self._sites = len(layout.sites)
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
        # FactKey is an enum of str: its value is the text itself, not the result of ``str``.
        rows = [
            (fact.step, key, schema.dumps(value))
            for fact in facts
            if self._fits(key := str.__str__(fact.key), value := jsonable(fact.value))
        ]
        self._db.executemany("INSERT INTO fact (step, key, value) VALUES (?, ?, ?)", rows)
        for key in {row[1] for row in rows}:
            self._bound_facts(key)

    def _fits(self, key: str, value: Any) -> bool:
        """Return True if our readers will accept the fact. Any other is not written, since it is an error of ours."""
        try:
            fitting(key, value)
        except ValueError as error:
            self.misfits = self.misfits or [str(error)]
            return False
        return True

    def _bound_facts(self, key: str) -> None:
        (count,) = self._db.execute("SELECT count(*) FROM fact WHERE key = ?", (key,)).fetchone()
        if count > MAX_FACTS:
            self._db.execute(
                "DELETE FROM fact WHERE id IN (SELECT id FROM fact WHERE key = ? ORDER BY id LIMIT ? OFFSET ?)",
                (key, MAX_FACTS // 2, MAX_FACTS // 4),
            )
