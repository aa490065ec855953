"""Limits and checks of an open database that may come from anybody: reading it runs no code of its author's.

SQLite runs the schema of a file: a view in the place of a table may be an endless query, a generated column calls
functions, an index may be on an expression. So only tables whose SQL is exactly ours are read. Rows are counted, and
blobs measured, before one is fetched: a large number in a header costs its author nothing.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from neuraldbg.record import schema
from neuraldbg.record.codec import MOST_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TEXT_BYTES = 16 << 20
"""Bytes of one JSON text at most."""
BODY_BYTES = 256 << 20
"""Bytes of one block at most: 16 rows of the tables of a model of 40,000 sites, as bins, are 110 MiB."""
MOST = {"meta": 64, "site": 1 << 18, "block": 1 << 18, "fact": 1 << 18, "event": 1 << 18, "histogram": 1 << 14}
"""Rows of each table at most. The writer keeps 4,096 facts of a kind; a model of 5,000 modules has 40,000 sites."""
_ROWS = 1 << 24
"""Rows of time at most."""
_OBJECTS = 64
_OPS = 50_000
"""Instructions of SQLite's virtual machine between two checks of their number."""
_START, _PER_BYTE = 20_000_000, 4
"""Instructions allowed for any file, and for each of its bytes: a row of ten bytes takes about 25."""
_LIMITS = {
    "SQLITE_LIMIT_LENGTH": TEXT_BYTES,
    "SQLITE_LIMIT_SQL_LENGTH": 100_000,
    "SQLITE_LIMIT_COLUMN": 100,
    "SQLITE_LIMIT_EXPR_DEPTH": 100,
    "SQLITE_LIMIT_COMPOUND_SELECT": 4,
    "SQLITE_LIMIT_FUNCTION_ARG": 8,
    "SQLITE_LIMIT_ATTACHED": 0,
    "SQLITE_LIMIT_TRIGGER_DEPTH": 1,
}
_COMMENT, _SPACE = re.compile(r"--[^\n]*"), re.compile(r"\s+")
_RECOVERED = re.compile(r'CREATE TABLE "?lost_and_found(_\d+)?"? ?\([^()]*\)')
"""The table that `sqlite3 FILE .recover`, which our messages advise, creates for rows that belong to no other table."""


class Unsafe(ValueError):
    """Raised for a schema, or for an amount of data, that our writer never produces."""


def harden(db: sqlite3.Connection, size: int) -> None:
    """Limit a connection to a file of ``size`` bytes. Call this before reading from the file."""
    spent, most = 0, _START + _PER_BYTE * size

    def look() -> bool:
        nonlocal spent
        spent += _OPS
        return spent > most

    db.set_progress_handler(look, _OPS)
    _limit(db, _LIMITS)
    defensive = getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE", None)
    if defensive is not None:  # Python 3.12
        db.setconfig(defensive, True)  # type: ignore[attr-defined,unused-ignore]
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
        db.execute(f"PRAGMA {pragma}")


def _limit(db: sqlite3.Connection, limits: dict[str, int]) -> None:
    if hasattr(db, "setlimit"):  # Python 3.11; before, the size of the file is the limit of what is in it
        for name, most in limits.items():
            db.setlimit(getattr(sqlite3, name), most)


def check_schema(db: sqlite3.Connection) -> None:
    """Raise Unsafe unless the database holds the tables and indices that we create, and nothing else."""
    found: set[str] = set()
    listed = db.execute(f"SELECT type, name, sql FROM sqlite_master LIMIT {_OBJECTS}").fetchall()  # noqa: S608 (a constant)
    if len(listed) == _OBJECTS:
        raise Unsafe(f"it holds {_OBJECTS} tables or more")
    for kind, name, sql in listed:
        if kind == "index" and sql is None:
            continue  # created by SQLite for a key
        if not isinstance(sql, str) or ((kind, _plain(sql)) not in _KNOWN and not _RECOVERED.fullmatch(_plain(sql))):
            said = f"{str(sql)[:60]!r}" if name in schema.SQL_TABLES else f"the {kind} {str(name)[:60]!r}"
            raise Unsafe(f"it holds {said}, which no run file does")
        found.add(str(name))
    version = db.execute("PRAGMA user_version").fetchone()[0]
    wanted = schema.SQL_TABLES if version >= schema.HISTOGRAMS else schema.SQL_TABLES[:-1]
    if lacking := [name for name in wanted if name not in found]:
        raise Unsafe(f"no such table: {lacking[0]}")


def has_table(db: sqlite3.Connection, name: str) -> bool:
    """Return True if there is an ordinary table of this name, created by exactly our SQL."""
    row = db.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    return row is not None and isinstance(row[1], str) and (row[0], _plain(row[1])) in _KNOWN


def check_sizes(db: sqlite3.Connection, *, parted: bool) -> None:
    """Raise Unsafe for more rows than the writer keeps, or for bodies that are no blobs or larger than possible."""
    tables = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table, most in MOST.items():
        if table not in tables:
            continue
        counted = f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {most + 1})"  # noqa: S608 (constants)
        if db.execute(counted).fetchone()[0] > most:
            raise Unsafe(f"the table {table!r} has more than {most:,} rows")
    # A column of SQLite takes values of any type, whatever its declaration says.
    whole = "level", "open", "ordinal", "rows", "first_step", "last_step"
    wrong = " OR ".join([*(f"typeof({name}) <> 'integer'" for name in whole), "typeof(body) <> 'blob'"])
    wrong += f" OR part NOT IN ('{schema.ROWS}', '{schema.TABLES}')" if parted else ""
    if db.execute(f"SELECT 1 FROM block WHERE {wrong} LIMIT 1").fetchone():  # noqa: S608 (constants)
        raise Unsafe("a row of the table 'block' has values of other types")
    # SQLite stores the length of a blob in front of it: no blob is read here.
    largest, rows, total = db.execute(
        "SELECT ifnull(max(length(body)), 0), ifnull(max(rows), 0), total(rows) FROM block"
    ).fetchone()
    _check_bodies("block", db, largest, BODY_BYTES)
    if rows > MOST_ROWS or total > _ROWS:
        raise Unsafe(f"block.rows claims {max(rows, int(total)):,} rows")
    if "histogram" in tables:
        if db.execute("SELECT 1 FROM histogram WHERE typeof(body) <> 'blob' LIMIT 1").fetchone():
            raise Unsafe("histogram.body is no blob")
        _check_bodies("histogram", db, db.execute("SELECT ifnull(max(length(body)), 0) FROM histogram").fetchone()[0],
                      TEXT_BYTES)  # fmt: skip


@contextmanager
def bodies(db: sqlite3.Connection) -> Iterator[None]:
    """Raise SQLite's length limit to that of blocks, whose sizes were checked, for the body of the ``with``."""
    _limit(db, {"SQLITE_LIMIT_LENGTH": BODY_BYTES + TEXT_BYTES})
    try:
        yield
    finally:
        _limit(db, {"SQLITE_LIMIT_LENGTH": TEXT_BYTES})


def check_body(length: int, rows: int, sites: int) -> None:
    """Raise Unsafe for a block of more bytes than its rows, with all sites and 1,024 scalars, could need."""
    most = (1 << 20) + rows * (sites * 256 + (1 << 15))
    if length > most:
        raise Unsafe(f"block.body has {length:,} bytes for {rows:,} rows of {sites:,} sites")


def _check_bodies(table: str, db: sqlite3.Connection, largest: int, most: int) -> None:
    if largest > most:
        raise Unsafe(f"{table}.body has {largest:,} bytes, where {most:,} is the most")
    pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    total = db.execute(f"SELECT total(length(body)) FROM {table}").fetchone()[0]  # noqa: S608 (a constant)
    if total > pages * size:
        raise Unsafe(f"{table}.body has {int(total):,} bytes in all, in a file of {pages * size:,}")


def _plain(sql: str) -> str:
    """Return a statement without comments, on one line."""
    return _SPACE.sub(" ", _COMMENT.sub("", sql)).replace("( ", "(").replace(" )", ")").strip()


def _known(statements: Iterable[str]) -> frozenset[tuple[str, str]]:
    made = [_plain(statement) for statement in statements]
    return frozenset((sql.split()[1].lower(), sql) for sql in made if sql.startswith("CREATE "))


_KNOWN = _known(_COMMENT.sub("", schema.CREATE + schema.OLDER).split(";"))
