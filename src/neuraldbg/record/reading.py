"""What has been read of a run: an open database in, its RunRecord out, and what was read before is not read again.

A block never changes under its number of rows and its place in time: the writer puts others in its stead. So what is
new is found by comparing lists of blocks, facts and events, which are short. The first reading of a run reads all.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.nouns import STATS, Layout, RunInfo, RunRecord
from neuraldbg.record import codec, histograms, schema
from neuraldbg.record.block import UNSEEN
from neuraldbg.record.history import history_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from neuraldbg.nouns import Event, Fact, History, Site

    Key = tuple[str | int, ...]

_BLOCKS = "id, {part}, level, open, ordinal, rows, first_step, last_step, length(body)"
"""What tells one block from another: a number is given again when the newest block has gone."""
FIRST_PARTED = 2
"""The version of the run file from which on a block holds either scalars or tables."""
_LAYOUT = ("layers", "edges", "called")


class Reading:
    """One run as far as it was read. To be used by one thread at a time."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._meta: dict[str, str] = {}
        self._sites: dict[int, Site] = {}
        self._blobs: dict[Key, codec.Blob] = {}
        self._facts: dict[int, Fact] = {}
        self._events: dict[int, tuple[str, Event]] = {}
        self._record: RunRecord | None = None

    def record(self, db: sqlite3.Connection) -> RunRecord:
        """Return the record as it is in the database now; the very one of last time if nothing has changed.

        The caller holds a transaction, so that all of it is of one moment. Raises what damage makes the database and
        the decoders raise; all is read again then.
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
        old = self._record or RunRecord()
        layout = self._layout(db, meta, old.layout)
        history, steps = self._history(db, meta, layout, old)
        facts = self._read_facts(db)
        events = self._read_events(db)
        info = old.info if meta.get("info") == self._meta.get("info") else schema.info_from(meta["info"])
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
        new = db.execute("SELECT row, value FROM site WHERE row > ? ORDER BY row", (last,)).fetchall()
        if not new and self._record is not None and all(meta.get(k) == self._meta.get(k) for k in _LAYOUT):
            return old
        self._sites |= {row: schema.site_from(text) for row, text in new}
        return Layout(
            layers=schema.layers_from(meta.get("layers", "[]")),
            sites=tuple(self._sites.values()),
            edges=schema.edges_from(meta.get("edges", "[]")),
            called=schema.called_from(meta.get("called", "[]")),
        )

    def _history(
        self, db: sqlite3.Connection, meta: dict[str, str], layout: Layout, old: RunRecord
    ) -> tuple[History, int]:
        stats = json.loads(meta["stats"])
        # A block of version 1 holds scalars and tables both: it counts as scalars.
        parted = db.execute("PRAGMA user_version").fetchone()[0] >= FIRST_PARTED
        columns = _BLOCKS.format(part="part" if parted else f"'{schema.ROWS}'")
        keys: list[Key] = db.execute(f"SELECT {columns} FROM block ORDER BY ordinal").fetchall()  # noqa: S608 (constants)
        if self._record is not None and len(layout.sites) == len(old.layout.sites) and keys == list(self._blobs):
            return old.history, old.steps
        self._blobs = {key: self._blobs.get(key) or _blob(db, key[0], stats) for key in keys}
        parts: dict[Any, list[codec.Blob]] = {schema.ROWS: [], schema.TABLES: []}
        for key, blob in self._blobs.items():
            parts[key[1]].append(blob)
        return history_of(parts[schema.ROWS], parts[schema.TABLES], len(layout.sites))

    def _read_facts(self, db: sqlite3.Connection) -> tuple[Fact, ...]:
        last = next(reversed(self._facts), 0)
        new = db.execute("SELECT id, step, key, value FROM fact WHERE id > ? ORDER BY id", (last,)).fetchall()
        self._facts |= {row_id: schema.fact_from(step, key, text) for row_id, step, key, text in new}
        (count,) = db.execute("SELECT count(*) FROM fact").fetchone()
        if count != len(self._facts):  # of one kind of fact there were too many
            kept = {row_id for (row_id,) in db.execute("SELECT id FROM fact")}
            self._facts = {row_id: fact for row_id, fact in self._facts.items() if row_id in kept}
        elif not new and self._record is not None:
            return self._record.facts
        return tuple(self._facts.values())

    def _read_events(self, db: sqlite3.Connection) -> tuple[Event, ...]:
        rows = db.execute("SELECT id, value FROM event ORDER BY first_step, id").fetchall()
        if self._record is not None and rows == [(row_id, text) for row_id, (text, _) in self._events.items()]:
            return self._record.events
        known = self._events
        self._events = {
            row_id: known[row_id] if row_id in known and known[row_id][0] == text else (text, schema.event_from(text))
            for row_id, text in rows
        }
        return tuple(event for _, event in self._events.values())


def stands(db: sqlite3.Connection) -> tuple[RunInfo, int]:
    """Return what the run is, and how many steps it has."""
    row = db.execute("SELECT value FROM meta WHERE key = 'info'").fetchone()
    parted = db.execute("PRAGMA user_version").fetchone()[0] >= FIRST_PARTED
    where = f"WHERE part = '{schema.ROWS}'" if parted else ""
    blobs = (codec.opened(body) for (body,) in db.execute(f"SELECT body FROM block {where}"))  # noqa: S608 (constants)
    steps = sum(int((blob.block() if blob.old else blob.rows()).folded.sum()) for blob in blobs)
    return schema.info_from(row[0]) if row else RunInfo(), steps


def _identity(meta: dict[str, str]) -> tuple[object, ...]:
    """What is the same as long as a run is: its names for statistics, and when it began."""
    return meta.get("stats"), json.loads(meta["info"]).get("started") if "info" in meta else None


def _blob(db: sqlite3.Connection, row_id: object, stats: Sequence[str]) -> codec.Blob:
    """Read a block, which stays packed."""
    (body,) = db.execute("SELECT body FROM block WHERE id = ?", (row_id,)).fetchone()
    blob = codec.opened(body)
    return _renewed(blob, stats) if blob.old or tuple(stats) != STATS else blob


def _renewed(blob: codec.Blob, stats: Sequence[str]) -> codec.Blob:
    """Lay the tables of another version out by our names; a statistic that it did not know is 0."""
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
