"""Damaged and made-up runs from a seeded generator: the number of a mutant in, its files out.

Whatever is changed below SQLite (bytes, pages, lengths) is changed blindly. Above it, every value of every table, every
field of every fact and every number of a block's header gets values that it may not have, under right checksums.
"""

# ruff: noqa: E501, ISC002, ISC004
from __future__ import annotations

import json
import random
import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.record import codec

if TYPE_CHECKING:
    from collections.abc import Callable

FACTS = json.loads((Path(__file__).parent / "data" / "facts.json").read_text(encoding="utf-8"))
"""One or more facts of every kind, as capture wrote them in the corpus of faults: [key, value]."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30, 0.5, -0.5, 1e-320,
    1e308, -1e308, 1.5, "", "x", "0", "NaN", "Infinity", "-Infinity", "5", "\x1b[2J\x07\x1b]0;x\x07", "\u202eabc",
    "\ud800", "</script><script>alert(1)</script>", "=1+1", "fc1.weight", "mean", "../../etc/passwd", [], {}, [[]],
    [1], [None], ["x"], [1, 2, 3], [[1, 2], [3]], {"a": 1}, {"": {}}, ["NaN", "NaN"], [0.5] * 40, "a" * 70_000,
    {"kind": 5}, [{"kind": 5}], [{}],
)  # fmt: skip
TABLES = ("meta", "site", "block", "fact", "event", "histogram")
SCHEMA = (
    "DROP TABLE {table}",
    "ALTER TABLE {table} RENAME TO other",
    "ALTER TABLE {table} ADD COLUMN more TEXT",
    "ALTER TABLE {table} ADD COLUMN more TEXT GENERATED ALWAYS AS (hex(zeroblob(1000000))) VIRTUAL",
    "CREATE TABLE {table}2 AS SELECT * FROM {table}; DROP TABLE {table}; CREATE VIEW {table} AS SELECT * FROM {table}2",
    "CREATE TABLE t AS SELECT * FROM {table}; DROP TABLE {table}; CREATE VIEW {table} AS WITH RECURSIVE n(i) AS "
    "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT t.* FROM t, n",
    "CREATE VIEW more AS SELECT * FROM {table}",
    "CREATE TRIGGER more AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "CREATE INDEX more ON {table} (hex(rowid))",
    "CREATE VIRTUAL TABLE more USING fts5(x)",
    "DELETE FROM {table}",
    "DELETE FROM {table} WHERE rowid % 2",
    "PRAGMA application_id = 5",
    "PRAGMA user_version = 0",
    "PRAGMA user_version = -1",
    "PRAGMA user_version = 1",
    "PRAGMA user_version = 2",
    "PRAGMA user_version = 4",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE meta (key)' WHERE name = '{table}'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 2 WHERE name = '{table}'",
)  # fmt: skip


class Base:
    """A whole run: its run file with every kind of fact in it, and the same as a JSON document."""

    def __init__(self, file: Path) -> None:
        from neuraldbg.saved import Run

        with closing(sqlite3.connect(file, isolation_level=None)) as db:
            own = {key for (key,) in db.execute("SELECT DISTINCT key FROM fact")}
            rows = [(0, key, json.dumps(value)) for key, value in FACTS if key not in own]
            db.executemany("INSERT INTO fact (step, key, value) VALUES (?, ?, ?)", rows)
        self.file = file
        self.bytes = file.read_bytes()
        document = file.with_name("run.json")
        Run.load(file).export(document, "session", force=True)
        self.text = document.read_text(encoding="utf-8")
        self.document = json.loads(self.text)


def make(bases: list[Base], seed: int, number: int, folder: Path) -> tuple[Path, str, Base]:
    """Write one mutant into a folder; return the file to read, how it was made, and of which run."""
    draw = random.Random(f"{seed}:{number}")
    base, how = draw.choice(bases), draw.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    made = KINDS[how][1](base, draw, folder)
    return made, f"{how} of {base.file.parent.name}", base


# ---------------------------------------------------------------- below SQLite


def flipped(base: Base, draw: random.Random, folder: Path) -> Path:
    """Change a few bytes, near each other or far apart."""
    data = bytearray(base.bytes)
    start, span = draw.randrange(len(data)), draw.choice((64, 4096, len(data)))
    for _ in range(draw.choice((1, 2, 8, 64))):
        data[(start + draw.randrange(span)) % len(data)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    data[:16] = base.bytes[:16]
    return _put(folder, bytes(data))


def cut(base: Base, draw: random.Random, folder: Path) -> Path:
    """Cut the end off, or put something behind it."""
    size = draw.choice((draw.randrange(len(base.bytes)), len(base.bytes) - draw.randrange(200), 100, 512, 32_768))
    return _put(folder, base.bytes[:size] + draw.choice((b"", bytes(draw.randrange(5000)), base.bytes[:40_000])))


def paged(base: Base, draw: random.Random, folder: Path) -> Path:
    """Swap, repeat or empty pages."""
    page = 32_768
    pages = [base.bytes[at : at + page] for at in range(0, len(base.bytes), page)]
    one, other = draw.randrange(len(pages)), draw.randrange(len(pages))
    act = draw.choice(("swap", "repeat", "empty", "random"))
    if act == "swap":
        pages[one], pages[other] = pages[other], pages[one]
    elif act == "repeat":
        pages[one] = pages[other]
    else:
        pages[one] = bytes(page) if act == "empty" else draw.randbytes(page)
    if draw.random() < 0.7:
        pages[0] = base.bytes[:page]
    return _put(folder, b"".join(pages))


def logged(base: Base, draw: random.Random, folder: Path) -> Path:
    """Put a log, an index of one or a diagnosis beside it that are none."""
    made = _put(folder, base.bytes)
    log = struct.pack(">8I", 0x377F0682, 3_007_000, 32_768, 0, 1, 2, 3, 4) + base.bytes[: draw.randrange(70_000)]
    beside = {
        "rank0.ndbg-wal": draw.choice((b"", b"x", log, draw.randbytes(40_000))),
        "rank0.ndbg-shm": draw.choice((b"", draw.randbytes(32_768))),
        "diagnosis.json": draw.choice((b"", b"[]", b"[" * 100_000, b'{"verdict": [1]}', b"\xff\xfe", b"9" * 5000)),
        "crash.json": b"{",
    }
    for name in draw.sample(sorted(beside), draw.randint(1, 3)):
        made.with_name(name).write_bytes(beside[name])
    return made


# ---------------------------------------------------------------- in SQLite


def schemed(base: Base, draw: random.Random, folder: Path) -> Path:
    """Change what tables there are."""
    made = _put(folder, base.bytes)
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        try:
            db.executescript(draw.choice(SCHEMA).format(table=draw.choice(TABLES)))
        except sqlite3.Error:  # such as a table that has no rowid: then the version is another one
            db.executescript("PRAGMA user_version = 77")
    return made


def celled(base: Base, draw: random.Random, folder: Path) -> Path:
    """Put a value of any type into one column of one row, or of all of them."""
    made, table = _put(folder, base.bytes), draw.choice(TABLES)
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        value = draw.choice((None, 0, -1, 1, 5, 2**31, 2**62, -(2**63), 1.5, float("inf"), "", "x", "[]", "{}", "null",
                             '"x"', b"", b"NDBK", b"\x00" * 100, draw.randbytes(50), "\x1b[31m", "9" * 6000))  # fmt: skip
        where = "" if draw.random() < 0.2 else f" WHERE {columns[0]} = (SELECT {columns[0]} FROM {table} " \
            f"LIMIT 1 OFFSET {draw.randrange(20)} % (SELECT max(1, count(*)) FROM {table}))"  # fmt: skip
        try:
            db.execute(f"UPDATE OR IGNORE {table} SET {draw.choice(columns)} = ?{where}", (value,))
        except sqlite3.IntegrityError:  # the number of a row is an integer, whatever is written
            db.execute(f"UPDATE OR IGNORE {table} SET {columns[0]} = {draw.choice((-1, 0, 2**60))}{where}")
    return made


def facted(base: Base, draw: random.Random, folder: Path) -> Path:
    """Change one field of one fact."""
    return _json_row(base, draw, folder, "fact", "id")


def valued(base: Base, draw: random.Random, folder: Path) -> Path:
    """Change one field of what else is JSON: what was run, the layout, events."""
    table, key = draw.choice((("meta", "key"), ("meta", "key"), ("site", "row"), ("event", "id")))
    return _json_row(base, draw, folder, table, key)


def _json_row(base: Base, draw: random.Random, folder: Path, table: str, key: str) -> Path:
    made = _put(folder, base.bytes)
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        rows = db.execute(f"SELECT {key}, value FROM {table}").fetchall()
        if table == "fact":  # of every kind as often as of any other
            kinds = db.execute("SELECT id, key FROM fact").fetchall()
            kind = draw.choice(sorted({name for _, name in kinds}))
            chosen = {number for number, name in kinds if name == kind}
            rows = [row for row in rows if row[0] in chosen]
        if rows:
            number, text = draw.choice(rows)
            db.execute(
                f"UPDATE {table} SET value = ? WHERE {key} = ?", (_text(changed(json.loads(text), draw), draw), number)
            )
    return made


def blocked(base: Base, draw: random.Random, folder: Path) -> Path:
    """Change the header of a block, or a number in it, under a right checksum."""
    made = _put(folder, base.bytes)
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        number, body = draw.choice(db.execute("SELECT id, body FROM block").fetchall())
        if draw.random() < 0.5:
            size = struct.unpack_from("<I", body, 8)[0]
            header = changed(json.loads(body[12 : 12 + size]), draw)
            text = json.dumps(header).encode()
            rest = body[12 + size :]
            if draw.random() < 0.2:
                rest = rest[: draw.randrange(len(rest))] + draw.choice((b"", bytes(100)))
            packed = struct.pack("<I", draw.choice((len(text), len(text), len(text), 2**32 - 1, 0))) + text + rest
            body = b"NDBK" + struct.pack("<I", zlib.crc32(packed)) + packed
        else:
            block = codec.decode(body)
            name = draw.choice(("ordinal", "turn", "folded", "steps", "width", "stream", "time", "scalars", "mean"))
            array = getattr(block, name).copy()
            if array.size:
                whole = array.dtype.kind == "i"
                value = draw.choice((0, -1, -(2**63), 2**63 - 1, 2**60, 3) if whole else
                                    (np.nan, np.inf, -np.inf, -1.0, 1e300, 1e-300, 0.0))  # fmt: skip
                with np.errstate(over="ignore"):
                    array.reshape(-1)[draw.randrange(array.size) :: draw.choice((1, 3, 10**9))] = value
            fields = {**block.__dict__, name: array}
            if not block.binned and name == "mean":
                fields["low"] = fields["high"] = array
            body = codec.encode(type(block)(**fields))
        rows = draw.choice((None, None, 0, 5, 30_000_000))
        db.execute("UPDATE block SET body = ?, rows = ifnull(?, rows) WHERE id = ?", (body, rows, number))
    return made


def binned(base: Base, draw: random.Random, folder: Path) -> Path:
    """Change what a step's histograms unpack to, under a right checksum."""
    made = _put(folder, base.bytes)
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        step, body = draw.choice(db.execute("SELECT step, body FROM histogram").fetchall())
        data = bytearray(zlib.decompress(body[4:]))
        for _ in range(draw.choice((1, 3))):
            data[draw.randrange(len(data))] = draw.choice((0, 1, 127, 255))
        if draw.random() < 0.3:
            data = data[: draw.randrange(len(data))] + bytes(draw.choice((0, 1000, 50_000_000)))
        packed = zlib.compress(bytes(data), 1)
        body = struct.pack("<I", zlib.crc32(packed)) + packed
        db.execute("UPDATE histogram SET body = ?, step = ? WHERE step = ?",
                   (body, draw.choice((step, step, -5, 2**60)), step))  # fmt: skip
    return made


# ---------------------------------------------------------------- the JSON document


def documented(base: Base, draw: random.Random, folder: Path) -> Path:
    """Change one value of the document."""
    made = folder / "run.json"
    whole = base.document
    key = draw.choice(("run", "layout", "facts", "events", "histograms", "stats", "scalars", "steps", "recorded", ""))
    part = {**whole, key: changed(whole[key], draw)} if key else changed(whole, draw, depth=1)
    made.write_text(_text(part, draw), encoding="utf-8", errors="surrogatepass")
    return made


def rewritten(base: Base, draw: random.Random, folder: Path) -> Path:
    """Change the text of the document."""
    made, text = folder / "run.json", base.text
    at = draw.randrange(len(text))
    odd = draw.choice(
        ("", "NaN", "[" * 5000, "{}", '"', ",", "9" * 5000, "-", "\\ud800", "\x00", "1e999", '{"a":1,"a":2}')
    )
    text = text[:at] + odd + text[at + draw.choice((0, 1, 5, len(text))) :]
    made.write_bytes(draw.choice(("", "", "", "\ufeff", "[", "{")).encode() + text.encode("utf-8", "surrogatepass")
                     + draw.choice((b"", b"", b"x", b"\xff")))  # fmt: skip
    return made


KINDS: dict[str, tuple[int, Callable[[Base, random.Random, Path], Path]]] = {
    "bytes": (8, flipped),
    "length": (4, cut),
    "pages": (5, paged),
    "files beside it": (4, logged),
    "schema": (8, schemed),
    "a cell": (12, celled),
    "a fact": (28, facted),
    "a value": (14, valued),
    "a block": (12, blocked),
    "histograms": (5, binned),
    "the document": (14, documented),
    "its text": (6, rewritten),
}
"""How often each is drawn, and what makes it."""


# ---------------------------------------------------------------- values


def changed(value: Any, draw: random.Random, depth: int = 99) -> Any:
    """Return a value with one thing in it changed: another value, one missing, one more, one name, or twice."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    if inner and depth and draw.random() < 0.85:
        key, item = draw.choice(inner)
        copy = dict(value) if isinstance(value, dict) else list(value)
        act = draw.random()
        if act < 0.8:
            copy[key] = changed(item, draw, depth - 1)
        elif act < 0.9:
            del copy[key]
        elif isinstance(copy, dict):
            copy[draw.choice(("x", "", "-1", "kind", "9" * 30, "\x1b[2J"))] = copy.pop(key)
        else:
            copy = copy * draw.choice((0, 2, 50))
        return copy
    if isinstance(value, (int, float)) and not isinstance(value, bool) and draw.random() < 0.5:
        return draw.choice((-value, value + 1, value * 1_000_000, value / 3, float(value), str(value), [value]))
    return draw.choice(VALUES)


def _text(value: Any, draw: random.Random) -> str:
    text = json.dumps(value)
    return draw.choice((*[text] * 12, text.replace("}", ',"a":1,"a":2}', 1), text[:-1], text + "x"))


def _put(folder: Path, data: bytes) -> Path:
    made = folder / "rank0.ndbg"
    made.write_bytes(data)
    return made
