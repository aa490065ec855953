"""Run files that ask for more than they are: refused by the name of the field, within a second and 100 MB.

Each is read by a process of its own that may take no more; what it takes beyond a whole run is measured there.
"""

# ruff: noqa: E501, PTH123
from __future__ import annotations

import json
import os
import re
import resource
import sqlite3
import struct
import zlib
from contextlib import closing

import pytest
from tests.record.known_steps import INFO, event, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.errors import RunDamaged
from neuraldbg.nouns import STATS
from neuraldbg.record import Recorder, guarded_database, read_run
from neuraldbg.record.reader import read_scalars
from neuraldbg.saved import Run

MB = 1 << 20
ROOM = 100 * MB
RECURSIVE = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    recorder = Recorder(folder, RecordSettings(), INFO)
    for i in range(20):
        recorder.put(step(i, binned=i in (0, 5)), layout(), (event(i),) if i == 10 else ())
    recorder.close()
    Run.load(folder).export(folder / "run.json", "session")
    return folder / "rank0.ndbg"


def attacked(whole, tmp_path, attack):
    """Return a copy of a run file after some SQL, or a function, was let loose on it."""
    file = tmp_path / "rank0.ndbg"
    file.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        attack(db) if callable(attack) else db.executescript(attack)
    return file


def refused(whole, file):
    """Read a file in a child with 100 MB to spare; return what was said of it."""
    read_run(whole)
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(sending, json.dumps(tried(file)).encode())
        finally:
            os._exit(0)
    os.close(sending)
    with open(receiving, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    said, seconds, grown = json.loads(told)
    assert seconds < 2, "for two readings"
    assert grown < ROOM
    for line in said:
        assert len(line) < 700
        assert line.isprintable()
    assert said[0] != READ
    return said[0]


READ = "it was read"


def tried(file):
    """Return what is said of a file that is read in whole and in its scalars, and what that takes: seconds and bytes.

    Resident memory also grows by what a forked child touches of the libraries that its parent has mapped. That stays, and
    is no memory that reading takes.
    """
    before, mapped = resource.getrusage(resource.RUSAGE_SELF), of_files()
    with open("/proc/self/statm") as pages:
        room = int(pages.read().split()[0]) * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    said = []
    for read in (read_run, read_scalars):
        try:
            read(file)
            said.append(READ)
        except RunDamaged as error:
            said.append(str(error))
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return said, seconds, (after.ru_maxrss - before.ru_maxrss) * 1024 - max(0, of_files() - mapped)


def of_files():
    """Return the bytes of mapped files that are in this process's memory now."""
    with open("/proc/self/status") as status:
        return int(re.search(r"RssFile:\s+(\d+) kB", status.read()).group(1)) * 1024


def blob(header, rest=b"", **more):
    """Return a block under a right checksum."""
    text = json.dumps({"layout": 2, "names": [], "binned": False, "sites": [0, len(STATS)], **header, **more}).encode()
    body = struct.pack("<I", len(text)) + text + rest
    return b"NDBK" + struct.pack("<I", zlib.crc32(body)) + body


def one_block(body, rows=20):
    def put(db):
        db.execute("DELETE FROM block WHERE part = 'tables'")
        db.execute("UPDATE block SET body = ?, rows = ?", (body, rows))

    return put


def repeated(body, rows, times):
    def put(db):
        db.execute("DELETE FROM block")
        values = [("rows", 0, 0, i * rows, rows, 0, 1, body) for i in range(times)]
        names = "part, level, open, ordinal, rows, first_step, last_step, body"
        db.execute("BEGIN")
        db.executemany(f"INSERT INTO block ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        db.execute("COMMIT")

    return put


def many(table, values, count):
    """Return SQL that fills a table."""
    return f"{RECURSIVE} INSERT INTO {table} SELECT {values} FROM n LIMIT {count}"


def bomb(db):
    """Histograms of 4 sites that unpack to 110 MB."""
    packed = zlib.compress(bytes(110 * MB), 9)
    db.execute("UPDATE histogram SET body = ?", (struct.pack("<I", zlib.crc32(packed)) + packed,))


def text(key, value):
    return lambda db: db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))


STILL = 1000
COLUMNS, PACKED = 8, 65
"""Of a block's rows: seven whole numbers and the time; and the bytes of a row in which nothing varies."""
ATTACKS = {
    "a view": ("DROP TABLE site; CREATE VIEW site AS SELECT 0 AS row, '{}' AS value", "CREATE VIEW site AS"),
    "a view without an end": (
        f"DROP TABLE fact; CREATE VIEW fact AS {RECURSIVE} SELECT i AS id, 0 AS step, 'a' AS key, '{{}}' AS value FROM n",
        "CREATE VIEW fact",
    ),
    "a view for the names": (f"DROP TABLE meta; CREATE VIEW meta AS {RECURSIVE} SELECT 'x' AS key, i AS value FROM n",
                             "CREATE VIEW meta"),
    "one more view": ("CREATE VIEW more AS SELECT 1", "the view 'more'"),
    "a trigger": ("CREATE TRIGGER t AFTER INSERT ON fact BEGIN DELETE FROM fact; END", "the trigger 't'"),
    "a virtual table": ("CREATE VIRTUAL TABLE t USING fts5(a)", "the table 't'"),
    "a computed column": (
        "ALTER TABLE fact ADD COLUMN more GENERATED ALWAYS AS (hex(zeroblob(100000000))) VIRTUAL", "CREATE TABLE fact"
    ),
    "an index on an expression": ("CREATE INDEX i ON fact (hex(value))", "the index 'i'"),
    "a name that steers": ('CREATE TABLE "\x1b[2J\x07" (a)', r"the table '\\x1b"),
    "a hundred tables": ("".join(f"CREATE TABLE t{i} (a);" for i in range(100)), "64 tables or more"),
    "30,000,000 rows in 440 bytes": (
        one_block(blob({"arrays": [["rows", "<u8", [30_000_000, COLUMNS], PACKED]]}, bytes(PACKED)), 30_000_000),
        r"block.rows claims 30,000,000 rows|30,000,000 rows of 'rows'",
    ),
    "30,000,000 rows behind a row that says 20": (
        one_block(blob({"arrays": [["rows", "<u8", [30_000_000, COLUMNS], PACKED]]}, bytes(PACKED))), "shape|30,000,000 rows"
    ),
    "rows that stand still": (
        repeated(blob({"arrays": [["rows", "<u8", [STILL, COLUMNS], PACKED]]}, bytes(PACKED)), STILL, 5000), "bytes of rows"
    ),
    "2,000,000,000 sites": (
        one_block(blob({"sites": [2 * 10**9, len(STATS)], "arrays": [["rows", "<u8", [20, COLUMNS], PACKED]]}, bytes(PACKED))),
        "2,000,000,000 sites",
    ),
    "a number of sites of 400 digits": (
        one_block(blob({"sites": [10**399, len(STATS)], "arrays": [["rows", "<u8", [20, COLUMNS], PACKED]]}, bytes(PACKED))), "sites"
    ),
    "arrays of nothing": (one_block(blob({"arrays": [["rows", "<u8", [0, 10**15], 0]] * 5})), "rows"),
    "a header without an end": (one_block(b"NDBK" + struct.pack("<I", zlib.crc32(b"\xff" * 8)) + b"\xff" * 8), "header"),
    "a header that is deep": (one_block(blob({"arrays": [["rows", "<u8", [20, COLUMNS], PACKED]]}, bytes(PACKED), names=json.loads("[" * 900 + "]" * 900))), "names"),
    "a blob of 280 MB": ("UPDATE block SET body = zeroblob(280000000) WHERE id = 1", r"block.body has 280,000,000 bytes"),
    "a blob of 90 MB": ("UPDATE block SET body = zeroblob(90000000) WHERE id = 1", r"for 20 rows of 4 sites"),
    "a text of 110 MB": ("UPDATE meta SET value = CAST(zeroblob(110000000) AS TEXT) WHERE key = 'info'", "longer than"),
    "a fact of 60 MB": ("UPDATE fact SET value = CAST(zeroblob(60000000) AS TEXT)", "longer than"),
    "histograms of 110 MB": ("UPDATE histogram SET body = zeroblob(110000000)", "histogram.body has"),
    "histograms that unpack to 110 MB": (bomb, "histograms"),
    "300,000 facts": (many("fact", "NULL, 0, 'a', '{}'", 300_000), "'fact' has more than"),
    "300,000 sites": (many("site", "i + 100, '{}'", 300_000), "'site' has more than"),
    "300,000 events": (many("event", "NULL, 'a', 'b', 'c', i, '{}'", 300_000), "'event' has more than"),
    "300,000 blocks": (many("block", "NULL, 'rows', 0, 0, i, 1, 0, 0, x'00'", 300_000), "'block' has more than"),
    "names by the thousand": (many("meta", "'a' || i, ''", 1000), "'meta' has more than"),
    "sites that are not numbered": ("UPDATE site SET row = row + 1000000000000", "'site' are not numbered"),
    "deep JSON": (text("info", "[" * 5_000_000), "values"),
    "lists of nothing": (text("info", '{"coverage":{"a":[' + ",".join(["[]"] * 3_000_000) + "]}}"), "values"),
    "an integer of a million digits": (text("info", '{"seed": ' + "9" * 1_000_000 + "}"), "digits"),
    "a name of 10 MB": (text("layers", json.dumps([{"path": "a" * 10_000_000, "type": "", "model": "", "leaf": True}])),
                        "Layer.path has 10,000,000 characters"),
    "a key that is there twice": (text("info", '{"seed": 1, "seed": 2}'), "'seed' twice"),
    "NaN": (text("info", '{"started": NaN}'), "NaN is not JSON"),
    "version 0": ("PRAGMA user_version = 0", "version 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_what_asks_for_too_much_is_refused_at_once(whole, tmp_path, name):
    attack, said = ATTACKS[name]
    file = attacked(whole, tmp_path, attack)
    try:
        assert re.search(said, refused(whole, file))
    finally:
        file.unlink()


DOCUMENTS = {
    "deep": ("[" * 20_000_000, "no '{'"),
    "deep inside": ('{"schema": "neuraldbg.run/1", "run": ' + "[" * 20_000_000, "RecursionError|values"),
    "long": ('{"schema": "neuraldbg.run/1", "run": "' + "a" * 30_000_000, "Unterminated|whole run"),
    "wide": ('{"schema": "neuraldbg.run/1", "run": [' + "[]," * 8_000_000, "holds"),
    "spaces": (" " * 30_000_000, "no '{'"),
    "one number": ("9" * 50_000_000, "no '{'"),
    "a number inside": ('{"schema": "neuraldbg.run/1", "recorded": ' + "9" * 3_000_000 + "}", "digit|int"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_that_asks_for_too_much_is_refused_at_once(whole, tmp_path, name):
    text, said = DOCUMENTS[name]
    file = tmp_path / "run.json"
    file.write_text(text)
    try:
        assert re.search(said, refused(whole, file))
    finally:
        file.unlink()


def test_what_is_fetched_was_measured_before(whole):
    """The limits are on a connection before it reads the schema, and off it again for nothing but blocks."""
    lengths = []
    with closing(sqlite3.connect(whole)) as db:
        guarded_database.harden(db, whole.stat().st_size)
        if hasattr(db, "getlimit"):  # Python 3.11
            lengths.append(db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH))
            with guarded_database.bodies(db):
                lengths.append(db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH))
            lengths.append(db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH))
            assert lengths[0] == lengths[2] == guarded_database.TEXT_BYTES < lengths[1]
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            db.execute(f"{RECURSIVE} SELECT count(*) FROM n").fetchone()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            db.execute("DELETE FROM fact")
