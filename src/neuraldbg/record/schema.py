"""The run file: one SQLite database a rank. Its tables, how one is opened for writing, and our values as its JSON.

Tables: ``meta`` (info, layers, edges, ... as JSON by name), ``site`` (one row a site, in row order), ``block`` (blobs
of rows of time, see codec.py), ``fact`` and ``event`` (one JSON row each), ``histogram`` (one blob a step). JSON in
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
# 3  2026-11  histogram
PARTED = 2
"""The version of the run file from which on a block holds either scalars or tables."""
HISTOGRAMS = 3
"""The version of the run file from which on it has histograms."""
_PAGE = 32_768
"""Bytes. A run is read back in half of the time that pages of 8 KiB take: its tables span hundreds of those."""
_LOG = 8 << 20
"""Bytes of the log (WAL) from which on it is moved into the file."""
_BUSY_MS = 100
"""How long a write waits for the lock of another program: it is tried again soon, and the training may be waiting."""
_BACKUP_S = 5.0
_LOCKED = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED; sqlite3 names them from Python 3.11 on
_text = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
"""Of json as it is when this is loaded: the program may replace what stands in it."""
APPLICATION_ID = 0x4E444247  # "NDBG", so that `file` and we know the database for ours
ROWS, TABLES = "rows", "tables"
SQL_TABLES = ("meta", "site", "block", "fact", "event", "histogram")
"""The last one since version 3."""

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
    """Write a database with its tables and without rows."""
    db = connect(path)
    try:
        db.executescript(CREATE)
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        db.close()


def open_file(path: Path) -> sqlite3.Connection:
    """Open a run file for writing, with all descriptors that SQLite will ever have on it.

    Nothing is written to it but by COMMIT: a cache that spilled would write in the middle of a transaction.
    """
    db = connect(path)
    # NORMAL syncs at checkpoints only: a killed process loses nothing, a power cut the last moments.
    db.executescript(
        "PRAGMA synchronous = NORMAL; PRAGMA cache_spill = OFF; PRAGMA temp_store = MEMORY; "
        f"PRAGMA wal_autocheckpoint = {_LOG // _PAGE}; PRAGMA journal_size_limit = {2 * _LOG};"
        f"PRAGMA busy_timeout = {_BUSY_MS};"
    )
    # A first write opens the log, and for a moment the folder and /dev/urandom.
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return db


def create_memory() -> sqlite3.Connection:
    """Make the same database in memory."""
    db = connect(":memory:")
    db.executescript(CREATE)
    return db


def connect(place: Path | str) -> sqlite3.Connection:
    """Open a database. The recorder hands it between threads under its own lock, and begins transactions itself."""
    return sqlite3.connect(str(place), timeout=5.0, isolation_level=None, check_same_thread=False)


def settle(path: Path, *, to_memory: bool = False) -> sqlite3.Connection:
    """Move the log of a database into it, and look whether it is whole; sqlite3.Error if it is not.

    Returns a copy in memory, or the connection, closed.
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
    """Write a database to a new file, which needs no log to be read."""
    db = connect(path)
    try:
        backup(source, db)
        db.execute("PRAGMA journal_mode = DELETE")
    finally:
        db.close()


def overwrite(source: sqlite3.Connection, target: sqlite3.Connection, check: Callable[[], None]) -> None:
    """Make a database hold the rows of another, in one transaction; sqlite3.Error if it cannot take them."""
    check()
    target.execute("BEGIN IMMEDIATE")
    with committed(target, check):
        for table in SQL_TABLES:
            target.execute(f"DELETE FROM {table}")  # noqa: S608 (a name from the tuple above)
            for row in source.execute(f"SELECT * FROM {table}"):  # noqa: S608
                target.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)  # noqa: S608


@contextmanager
def committed(db: sqlite3.Connection, check: Callable[[], None]) -> Iterator[None]:
    """Commit what the body does in a transaction that was begun, or roll it back where the body raises.

    Where ``check`` raises neither is done, since both would use the descriptors; its error is raised in place of any
    other, but for one that is not an Exception, such as an interrupt.
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
    """Copy a database; sqlite3.OperationalError if it stays locked: sqlite3's own ``backup`` would try for ever."""
    until = clocks.monotonic() + _BACKUP_S

    def progress(status: int, remaining: int, total: int) -> None:
        del remaining, total
        if status in _LOCKED and clocks.monotonic() > until:
            raise sqlite3.OperationalError("database is locked")

    source.backup(target, progress=progress, sleep=0.05)


def locked(error: BaseException) -> bool:
    """Return True if another program holds a lock on the database, and all is well otherwise."""
    code = getattr(error, "sqlite_errorcode", None)  # from Python 3.11 on
    if code is not None:
        return code & 0xFF in _LOCKED
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def rescue(db: sqlite3.Connection) -> tuple[sqlite3.Connection, bool]:
    """Copy a database that can no longer be written to memory; the second value is whether all of it came along."""
    try:
        copy = create_memory()
        backup(db, copy)
        if copy.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
            return copy, True
    except sqlite3.Error:
        pass  # The file itself is broken: take what can still be read, row by row.
    copy = create_memory()
    for table in SQL_TABLES:
        try:
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608 (a name from the tuple above)
                copy.execute(f"INSERT OR REPLACE INTO {table} VALUES ({','.join('?' * len(row))})", row)  # noqa: S608
        except sqlite3.Error:
            continue
    return copy, False


def dumps(value: Any) -> str:
    """Return strict JSON text."""
    return _text(jsonable(value))


_OUTCOME: dict[str, Check] = {
    "kind": validation.outcome_kind, "message": validation.message, "where": validation.text
}  # fmt: skip
_INFO: dict[str, Check] = {
    "script": validation.text,
    "argv": validation.texts,
    "started": validation.moment,
    "models": validation.texts,
    "optimizers": validation.texts,
    "versions": validation.texts_by_name,
    "device": validation.text,
    "coverage": validation.coverage,
    "outcome": lambda value, _: validation.built(Outcome, _OUTCOME, value),
    "seed": validation.perhaps(validation.whole),
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
    """Read what was run from the value of its JSON. This and those below raise ValueError for what is not ours."""
    return validation.built(RunInfo, _INFO, raw)


def site_of(raw: Any) -> Site:
    """Read a site."""
    return validation.built(Site, _SITE, raw)


def layers_of(raw: Any) -> tuple[Layer, ...]:
    """Read the layers of a layout."""
    return tuple(validation.built(Layer, _LAYER, one) for one in validation.items(raw, "layers"))


def edges_of(raw: Any) -> tuple[Edge, ...]:
    """Read the edges of a layout."""
    return tuple(validation.built(Edge, _EDGE, one) for one in validation.items(raw, "edges"))


def called_of(raw: Any) -> frozenset[str]:
    """Read the paths of the layers that were called."""
    return frozenset(validation.texts(raw, "called"))


def event_of(raw: Any) -> Event:
    """Read an event."""
    event = validation.built(Event, _EVENT, raw)
    if event.last_step < event.first_step:
        raise ValueError(f"an event ends at step {event.last_step}, before it begins at {event.first_step}")
    return event


def fact_of(step: Any, key: Any, value: Any) -> Fact:
    """Read a fact; checked.Lacking for one of another version."""
    name = validation.text(key, "Fact.key")
    return Fact(validation.step(step, "Fact.step"), name, fitting(name, value))


def noted(info: RunInfo, passed: Mapping[str, str]) -> RunInfo:
    """Say in the coverage which facts were passed over."""
    if not passed:
        return info
    said = [f"what another version wrote of {key!r} is left out: {why}" for key, why in passed.items()]
    return replace(info, coverage={**info.coverage, "notes": [*info.coverage.get("notes", ()), *said]})
