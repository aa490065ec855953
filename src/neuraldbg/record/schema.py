"""The schema of a run file, one SQLite database per rank: its tables, its opening for writing, and our values as JSON.

Tables: ``meta`` (info, layers, edges, ... as JSON by name), ``site`` (one row per site, in row order), ``block`` (blobs
of rows of time, see codec.py), ``fact`` and ``event`` (JSON, one row each), ``histogram`` (one blob per step). JSON in
the file is strict.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neuraldbg import clocks
from neuraldbg.nouns import STATS, Edge, Event, Fact, Layer, Outcome, RunInfo, Site, jsonable
from neuraldbg.record import validation
from neuraldbg.record.fact_shapes import fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from neuraldbg.record.validation import Check

SCHEMA_VERSION = 3
# 1  2026-11  first version: meta, site, block, fact, event
# 2  2026-11  blocks hold either scalars or tables (block.part), by columns; the statistics "under" and "over"
# 3  2026-11  histogram; the statistics "dead_rows" and "dead_since"
PARTED = 2
"""First version of the run file in which a block holds either scalars or tables."""
HISTOGRAMS = 3
"""First version of the run file with histograms."""
_PAGE = 32_768
"""Bytes of a page. A run is read in half of the time that pages of 8 KiB take: its tables span hundreds of those."""
_LOG = 8 << 20
"""Bytes of the log (WAL) from which it is checkpointed into the file."""
_BUSY_MS = 100
"""Milliseconds that a write waits for the lock of another program: it is retried soon, and training may be waiting."""
_BACKUP_S = 5.0
_LOCKED = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED; sqlite3 names them from Python 3.11 on
_text = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
"""The encoder of ``json`` at import: the program may replace functions of ``json``."""
APPLICATION_ID = 0x4E444247  # "NDBG", by which `file` and our readers recognise a run file
ROWS, TABLES = "rows", "tables"
SQL_TABLES = ("meta", "site", "block", "fact", "event", "histogram")
"""Tables of a run file; the last one since version 3."""

CREATE = f"""
PRAGMA page_size = {_PAGE};
PRAGMA synchronous = OFF;
BEGIN;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE site (row INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE block (
    id INTEGER PRIMARY KEY,
    part TEXT NOT NULL,          -- 'rows': steps and their scalars; 'tables': those steps whose sites were read
    level INTEGER NOT NULL,      -- rows are bins of 16**level steps
    open INTEGER NOT NULL,       -- 1: will be merged with those that follow
    ordinal INTEGER NOT NULL,    -- steps recorded before its first
    rows INTEGER NOT NULL,
    first_step INTEGER NOT NULL,
    last_step INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE fact (id INTEGER PRIMARY KEY, step INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL);
CREATE INDEX fact_key ON fact (key, id);
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    layer TEXT NOT NULL,
    site TEXT NOT NULL,
    first_step INTEGER NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (kind, layer, site, first_step)
);
CREATE TABLE histogram (step INTEGER PRIMARY KEY, body BLOB NOT NULL);  -- see histograms.py
INSERT INTO meta VALUES ('stats', '{json.dumps(STATS)}');
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""  # noqa: S608 (only constants are put in)
OLDER = re.sub(r" +part .*\n", "", CREATE)
"""The tables as older versions of the run file have them: version 1 had no parts of blocks."""


def new_file(path: Path) -> None:
    """Create a database with our tables and no rows."""
    db = connect(path)
    try:
        db.executescript(CREATE)
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        db.close()


def open_file(path: Path) -> sqlite3.Connection:
    """Open a run file for writing, together with all descriptors that SQLite will ever have on it.

    Only COMMIT writes to it: a cache that spills would write in the middle of a transaction.
    """
    db = connect(path)
    # NORMAL syncs at checkpoints only: a killed process loses nothing, a power cut the last transactions.
    db.executescript(
        "PRAGMA synchronous = NORMAL; PRAGMA cache_spill = OFF; PRAGMA temp_store = MEMORY; "
        f"PRAGMA wal_autocheckpoint = {_LOG // _PAGE}; PRAGMA journal_size_limit = {2 * _LOG};"
        f"PRAGMA busy_timeout = {_BUSY_MS};"
    )
    # The first write opens the log, and for a moment the folder and /dev/urandom: that has to happen here.
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return db


def create_memory() -> sqlite3.Connection:
    """Create the same database in memory."""
    db = connect(":memory:")
    db.executescript(CREATE)
    return db


def connect(place: Path | str) -> sqlite3.Connection:
    """Open a database in autocommit mode for several threads: the recorder has its own lock and transactions."""
    return sqlite3.connect(str(place), timeout=5.0, isolation_level=None, check_same_thread=False)


def settle(path: Path, *, to_memory: bool = False) -> sqlite3.Connection:
    """Checkpoint the log of a database, and check its integrity. Raises sqlite3.Error if it is damaged.

    Returns a copy in memory, or the closed connection.
    """
    db = connect(path)
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if (said := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(said)
        if to_memory:
            copy = create_memory()
            backup(db, copy)
            return copy
    finally:
        db.close()
    return db


def write_copy(source: sqlite3.Connection, path: Path) -> None:
    """Copy a database to a new file without a log."""
    db = connect(path)
    try:
        backup(source, db)
        db.execute("PRAGMA journal_mode = DELETE")
    finally:
        db.close()


def overwrite(source: sqlite3.Connection, target: sqlite3.Connection, check: Callable[[], None]) -> None:
    """Replace the rows of a database by those of another in one transaction. Raises sqlite3.Error if that fails."""
    check()
    target.execute("BEGIN IMMEDIATE")
    with committed(target, check):
        for table in SQL_TABLES:
            target.execute(f"DELETE FROM {table}")  # noqa: S608 (a name from the tuple above)
            for row in source.execute(f"SELECT * FROM {table}"):  # noqa: S608
                target.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)  # noqa: S608


@contextmanager
def committed(db: sqlite3.Connection, check: Callable[[], None]) -> Iterator[None]:
    """Commit the transaction that the caller has begun after the body, or roll it back if the body raises.

    If ``check`` raises, neither is done, since both would use the descriptors. Its error replaces any other, except one
    that is not an Exception, such as an interrupt.
    """
    try:
        yield
        check()
        db.execute("COMMIT")
    except BaseException as error:
        try:
            check()
        except Exception as lost:
            if isinstance(error, Exception):
                raise lost from error
        else:
            if db.in_transaction:
                db.execute("ROLLBACK")
        raise


def backup(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy a database. Raises sqlite3.OperationalError if it stays locked: ``backup`` itself retries for ever."""
    until = clocks.monotonic() + _BACKUP_S

    def progress(status: int, remaining: int, total: int) -> None:
        del remaining, total
        if status in _LOCKED and clocks.monotonic() > until:
            raise sqlite3.OperationalError("database is locked")

    source.backup(target, progress=progress, sleep=0.05)


def locked(error: BaseException) -> bool:
    """Return True if an error says that another program holds a lock on the database."""
    code = getattr(error, "sqlite_errorcode", None)  # from Python 3.11 on
    if code is not None:
        return code & 0xFF in _LOCKED
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def rescue(db: sqlite3.Connection) -> tuple[sqlite3.Connection, bool]:
    """Copy a database that can no longer be written into memory. Return the copy, and True if it is complete."""
    try:
        copy = create_memory()
        backup(db, copy)
        if copy.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
            return copy, True
    except sqlite3.Error:
        pass  # the file itself is damaged: the rows that can still be read are copied one by one
    copy = create_memory()
    for table in SQL_TABLES:
        try:
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608 (a name from the tuple above)
                copy.execute(f"INSERT OR REPLACE INTO {table} VALUES ({','.join('?' * len(row))})", row)  # noqa: S608
        except sqlite3.Error:
            continue
    return copy, False


def dumps(value: Any) -> str:
    """Encode a value as strict JSON."""
    return _text(jsonable(value))


_OUTCOME: dict[str, Check] = {
    "kind": validation.outcome_kind, "message": validation.message, "where": validation.text,
    "text": validation.text,
}  # fmt: skip
_INFO: dict[str, Check] = {
    "script": validation.text,
    "argv": validation.texts,
    "started": validation.moment,
    "ended": validation.moment,
    "models": validation.texts,
    "optimizers": validation.texts,
    "versions": validation.texts_by_name,
    "device": validation.text,
    "coverage": validation.coverage,
    "outcome": lambda value, _: validation.built(Outcome, _OUTCOME, value),
    "seed": validation.perhaps(validation.whole),
    "note": validation.text,
    "job": validation.job,
}
_SITE: dict[str, Check] = {
    "kind": validation.text,
    "module": validation.text,
    "call": validation.count,
    "name": validation.text,
    "dtype": validation.text,
}
_LAYER: dict[str, Check] = {
    "path": validation.text,
    "type": validation.text,
    "model": validation.text,
    "leaf": validation.flag,
    "params": validation.texts,
    "settings": validation.named(validation.any_of(validation.flag, validation.real, validation.text)),
}
_EDGE: dict[str, Check] = {"source": validation.text, "target": validation.text, "ops": validation.texts}
_EVENT: dict[str, Check] = {
    "kind": validation.text,
    "transition": validation.text,
    "first_step": validation.step,
    "last_step": validation.step,
    "layer": validation.perhaps(validation.text),
    "site": validation.text,
    "confidence": validation.share,
    "details": validation.of({}, {"affected": validation.each(validation.text)}),
}


def info_of(raw: Any) -> RunInfo:
    """Check and build the info of a run from its JSON value. All such functions here raise ValueError."""
    return validation.built(RunInfo, _INFO, raw)


def site_of(raw: Any) -> Site:
    """Check and build a site."""
    return validation.built(Site, _SITE, raw)


def layers_of(raw: Any) -> tuple[Layer, ...]:
    """Check and build the layers of a layout."""
    return tuple(validation.built(Layer, _LAYER, one) for one in validation.items(raw, "layers"))


def edges_of(raw: Any) -> tuple[Edge, ...]:
    """Check and build the edges of a layout."""
    return tuple(validation.built(Edge, _EDGE, one) for one in validation.items(raw, "edges"))


def called_of(raw: Any) -> frozenset[str]:
    """Check the paths of the layers that were called."""
    return frozenset(validation.texts(raw, "called"))


def event_of(raw: Any) -> Event:
    """Check and build an event."""
    event = validation.built(Event, _EVENT, raw)
    if event.last_step < event.first_step:
        raise ValueError(f"an event ends at step {event.last_step}, before it begins at {event.first_step}")
    return event


def fact_of(step: Any, key: Any, value: Any) -> Fact:
    """Check and build a fact. Raises ``validation.Lacking`` for one of another version."""
    name = validation.text(key, "Fact.key")
    return Fact(validation.step(step, "Fact.step"), name, fitting(name, value))


def noted(info: RunInfo, passed: Mapping[str, str]) -> RunInfo:
    """Add to the coverage the kinds of facts that were left out, ``passed``: the missing field by key."""
    if not passed:
        return info
    said = [f"what another version wrote of {key!r} is left out: {why}" for key, why in passed.items()]
    return replace(info, coverage={**info.coverage, "notes": [*info.coverage.get("notes", ()), *said]})
