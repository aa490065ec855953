"""The parts of a run that were read so far: an open database in, its RunRecord out, decoding only what is new.

A block with the same id, place in time, number of rows and size has not changed: the writer replaces blocks, and never
edits them. So new parts are found by comparing lists of blocks, facts and events, which are short. The first reading of
a run reads everything.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.nouns import STATS, FactKey, Layout, RunInfo, RunRecord
from neuraldbg.record import codec, guarded_database, histograms, schema, validation
from neuraldbg.record.history import check_rows, history_of
from neuraldbg.record.row_block import UNSEEN

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

    from neuraldbg.nouns import Event, Fact, History, Site

    Key = tuple[str | int, ...]

_BLOCKS = "id, {part}, level, open, ordinal, rows, first_step, last_step, length(body)"
"""Columns that identify a block. An id alone does not: SQLite reuses the largest one after its row is deleted."""
_LAYOUT = ("layers", "edges", "called")


_PER_BYTE, _FREE = 64, 16 << 20
"""Bytes of memory allowed for the rows of blocks: for each byte in the file, and for any file. A constant column is
stored once, but in a real run at least time and loss differ from row to row."""


class Reading:
    """One run as far as it was read, for use by one thread at a time.

    ``own`` is True for a database that this process writes: the limits for files from anybody do not apply to it.
    """

    def __init__(self, *, own: bool = False) -> None:
        self._own = own
        self._forget()

    def _forget(self) -> None:
        self._meta: dict[str, str] = {}
        self._sites: dict[int, Site] = {}
        self._blobs: dict[Key, codec.Blob] = {}
        self._facts: dict[int, Fact | None] = {}
        self._events: dict[int, tuple[str, Event]] = {}
        self._passed: dict[str, str] = {}
        """Facts of another version that are left out: the missing field by key of the fact."""
        self._record: RunRecord | None = None

    def record(self, db: sqlite3.Connection) -> RunRecord:
        """Return the record in the database now; the same object as last time if nothing has changed.

        The caller holds a transaction, so that all tables are of one moment. On damage, errors of the database and of
        the decoders pass through, and the next call reads everything again.
        """
        try:
            self._record = self._read(db)
        except BaseException:
            self._forget()
            raise
        return self._record

    def _read(self, db: sqlite3.Connection) -> RunRecord:
        meta = dict(db.execute("SELECT key, value FROM meta"))
        if _identity(meta) != _identity(self._meta):
            self._forget()  # another run than before
        # Each part returns the old object if it has not changed: the comparison at the end is by identity.
        old = self._record or RunRecord()
        layout = self._layout(db, meta, old.layout)
        history, steps = self._history(db, meta, layout, old)
        events = self._read_events(db)
        passed = dict(self._passed)
        facts = self._read_facts(db)
        if meta.get("info") == self._meta.get("info") and passed == self._passed:
            info = old.info
        else:
            info = schema.noted(schema.info_of(validation.parsed(meta["info"])), self._passed)
        self._meta = meta
        parts: dict[str, Any] = {
            "info": info,
            "layout": layout,
            "history": history,
            "facts": facts,
            "events": events,
            "steps": steps,
            "histograms": histograms.load(db, old.histograms),
        }
        same = all(getattr(old, name) is part for name, part in parts.items())
        return old if self._record is not None and same else RunRecord(**parts)

    def _layout(self, db: sqlite3.Connection, meta: dict[str, str], old: Layout) -> Layout:
        last = max(self._sites, default=-1)
        # The dtype of a site that was written before it was read is written later.
        blank = min((row for row, site in self._sites.items() if not site.dtype), default=last + 1)
        texts = db.execute("SELECT row, value FROM site WHERE row >= ? ORDER BY row", (blank,)).fetchall()
        found = {row: schema.site_of(validation.parsed(text)) for row, text in texts}
        new = {row: site for row, site in found.items() if self._sites.get(row) != site}
        if not new and self._record is not None and all(meta.get(k) == self._meta.get(k) for k in _LAYOUT):
            return old
        self._sites |= new
        if list(self._sites) != list(range(len(self._sites))):
            raise ValueError("the rows of the table 'site' are not numbered from 0")
        return Layout(
            layers=schema.layers_of(validation.parsed(meta.get("layers", "[]"))),
            sites=tuple(self._sites.values()),
            edges=schema.edges_of(validation.parsed(meta.get("edges", "[]"))),
            called=schema.called_of(validation.parsed(meta.get("called", "[]"))),
        )

    def _history(
        self, db: sqlite3.Connection, meta: dict[str, str], layout: Layout, old: RunRecord
    ) -> tuple[History, int]:
        stats = validation.texts(validation.parsed(meta["stats"]), "meta.stats")
        # A block of version 1 holds both scalars and tables, and is treated as one of scalars.
        parted = db.execute("PRAGMA user_version").fetchone()[0] >= schema.PARTED
        columns = _BLOCKS.format(part="part" if parted else f"'{schema.ROWS}'")
        keys: list[Key] = db.execute(f"SELECT {columns} FROM block ORDER BY ordinal").fetchall()  # noqa: S608 (constants)
        if self._record is not None and len(layout.sites) == len(old.layout.sites) and keys == list(self._blobs):
            return old.history, old.steps
        sites = None if self._own else len(layout.sites)
        with nullcontext() if self._own else guarded_database.bodies(db):
            self._blobs = {key: self._blobs.get(key) or _blob(db, key, stats, sites) for key in keys}
        if not self._own:
            _check_room(self._blobs.values(), sum(int(key[-1]) for key in keys))
        parts: dict[Any, list[codec.Blob]] = {schema.ROWS: [], schema.TABLES: []}
        for key, blob in self._blobs.items():
            parts[key[1]].append(blob)
        history, steps = history_of(parts[schema.ROWS], parts[schema.TABLES], len(layout.sites))
        if not self._own:
            check_rows(history)
            validation.step(steps, "history.folded")
        return history, steps

    def _read_facts(self, db: sqlite3.Connection) -> tuple[Fact, ...]:
        last = next(reversed(self._facts), 0)
        new = db.execute("SELECT id, step, key, value FROM fact WHERE id > ? ORDER BY id", (last,)).fetchall()
        for row_id, step, key, text in new:
            self._facts[row_id] = self._fact(step, key, text)
        (count,) = db.execute("SELECT count(*) FROM fact").fetchone()
        if count != len(self._facts):  # the writer has deleted some of a kind that had too many
            kept = {row_id for (row_id,) in db.execute("SELECT id FROM fact")}
            self._facts = {row_id: fact for row_id, fact in self._facts.items() if row_id in kept}
        elif not new and self._record is not None:
            return self._record.facts
        return tuple(fact for fact in self._facts.values() if fact is not None)

    def _fact(self, step: Any, key: Any, text: Any) -> Fact | None:
        """Return a fact, None for one of another version that lacks a field."""
        try:
            return schema.fact_of(step, key, validation.parsed(text))
        except validation.Lacking as error:
            self._passed.setdefault(key, str(error))
            return None

    def _read_events(self, db: sqlite3.Connection) -> tuple[Event, ...]:
        rows = db.execute("SELECT id, value FROM event ORDER BY first_step, id").fetchall()
        if self._record is not None and rows == [(row_id, text) for row_id, (text, _) in self._events.items()]:
            return self._record.events
        known = self._events
        self._events = {
            row_id: known[row_id]
            if row_id in known and known[row_id][0] == text
            else (text, schema.event_of(validation.parsed(text)))
            for row_id, text in rows
        }
        return tuple(event for _, event in self._events.values())


def scalars_of(db: sqlite3.Connection) -> RunRecord:
    """Return the record of a run with its info, scalars and number of steps alone, without reading tables; of a run
    with several optimizers also with the lines of its code, which name their losses.
    """
    meta = dict(db.execute("SELECT key, value FROM meta WHERE key IN ('info', 'stats')"))
    parted = db.execute("PRAGMA user_version").fetchone()[0] >= schema.PARTED
    where = f"WHERE part = '{schema.ROWS}'" if parted else ""
    with guarded_database.bodies(db):
        blobs = [codec.opened(body) for (body,) in db.execute(f"SELECT body FROM block {where}")]  # noqa: S608
    _check_room(blobs, sum(blob.nbytes for blob in blobs))
    if any(blob.old for blob in blobs):  # blocks of version 1 hold tables too, and are decoded as a whole
        stats = validation.texts(validation.parsed(meta["stats"]), "meta.stats")
        blobs = [_renewed(blob, stats) if blob.old else blob for blob in blobs]
    history, steps = history_of(blobs, [], 0)
    check_rows(history)
    info = schema.info_of(validation.parsed(meta["info"])) if "info" in meta else RunInfo()
    found = RunRecord(info=info, history=history, steps=validation.step(steps, "steps"))
    return replace(found, facts=_lines_of_code(db)) if len(found.streams) > 1 else found


def _lines_of_code(db: sqlite3.Connection) -> tuple[Fact, ...]:
    """Return the newest PLACES fact; none if there is none that this version can read."""
    newest = "SELECT step, key, value FROM fact WHERE key = ? ORDER BY id DESC LIMIT 1"
    with suppress(validation.Lacking):
        return tuple(
            schema.fact_of(step, key, validation.parsed(text))
            for step, key, text in db.execute(newest, (FactKey.PLACES.value,))
        )
    return ()


def _identity(meta: dict[str, str]) -> tuple[object, ...]:
    """Return values that never change within a run: its names of statistics, and the time of its start."""
    info = validation.mapping(validation.parsed(meta["info"]), "meta.info") if "info" in meta else {}
    return meta.get("stats"), info.get("started")


def _check_room(blobs: Collection[codec.Blob], size: int) -> None:
    """Raise ValueError for blocks whose rows take far more memory than their ``size`` bytes in the file justify."""
    rows = sum(blob.length * 8 * (9 + blob.scalars * (1 + blob.binned)) for blob in blobs)
    tables = sum(blob.length * blob.sites * blob.stats * 4 * (3 if blob.binned else 1) for blob in blobs)
    if rows > _FREE + _PER_BYTE * size or tables > 4 * _FREE + _PER_BYTE * size:
        raise ValueError(f"blocks of {size:,} bytes claim {rows + tables:,} bytes of rows")


def _blob(db: sqlite3.Connection, key: Key, stats: Sequence[str], sites: int | None) -> codec.Blob:
    """Read a block without decoding it. Raises ValueError if it contradicts its row, or has too many sites."""
    row_id, rows = key[0], int(key[5])
    if sites is not None:
        guarded_database.check_body(int(key[-1]), rows, sites)
    (body,) = db.execute("SELECT body FROM block WHERE id = ?", (row_id,)).fetchone()
    blob = codec.opened(body)
    if blob.sites and blob.stats != len(stats):
        raise ValueError(f"a block has {blob.stats} statistics, and meta.stats names {len(stats)}")
    if sites is not None and (blob.sites > sites or blob.length != rows):
        said = f"{blob.length:,} rows of {blob.sites:,} sites"
        raise ValueError(f"a block has {said}, where {rows:,} rows of {sites:,} sites were announced")
    return _renewed(blob, stats) if blob.old or tuple(stats) != STATS else blob


def _renewed(blob: codec.Blob, stats: Sequence[str]) -> codec.Blob:
    """Reorder the tables of another version by our names of statistics. Statistics that it did not know are ``UNSEEN``:
    0, NaN for moments.
    """
    block = blob.block()
    laid: dict[str, Any] = {}
    for name in ("mean", "low", "high"):
        old = getattr(block, name)
        laid[name] = np.tile(UNSEEN, (*old.shape[:2], 1))
        for k, stat in enumerate(STATS):
            if stat in stats:
                laid[name][:, :, k] = old[:, :, stats.index(stat)]
    if not block.binned:
        laid["low"] = laid["high"] = laid["mean"]
    return codec.opened(codec.encode(replace(block, **laid)))
