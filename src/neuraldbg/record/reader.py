"""The reading of a run file, or of a database in memory, as a RunRecord.

Also reads a file that is being written, one that a killed process left, and one on a read-only disk.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from neuraldbg.errors import RunDamaged, RunFileError, RunTooNew
from neuraldbg.raised import let_pass
from neuraldbg.record import guarded_database, schema, validation
from neuraldbg.record.incremental_reader import Reading, scalars_of
from neuraldbg.record.run_file import written_here
from neuraldbg.record.run_names import find_run
from neuraldbg.record.session_file import read_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.nouns import RunRecord
T = TypeVar("T")
_MAGIC = b"SQLite format 3\x00"
_DAMAGE = (sqlite3.Error, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
           ValueError, struct.error)  # fmt: skip
"""Errors that damaged or foreign bytes cause in the decoders: a checksum can be right and everything else wrong."""


def read_run(path: str | Path, rank: int | None = None) -> RunRecord:
    """Read a run: a run folder, a folder above it that holds a single run, a ``.ndbg`` file, or an exported ``.json``.

    Raises RunNotFound, RunDamaged or RunTooNew, whose messages say what to do, or RunFileError if the file cannot be
    opened. The file may still be written, or left by a killed process.
    """
    return read_file(find_run(Path(path), rank))


def read_file(file: Path, reading: Reading | None = None) -> RunRecord:
    """Read a run file, decoding only what ``reading`` does not have yet. Raises the errors of ``read_run``."""
    if is_session(file):
        return read_session(file)
    return _read(file, (reading or Reading(own=False)).record)


def _read(file: Path, take: Callable[[sqlite3.Connection], T]) -> T:
    _check_head(file)
    try:
        with _opened(file) as db:
            return _at_once(db, str(file), take, own=False)
    except sqlite3.Error as error:
        raise _damaged(str(file), error) from error
    except RunFileError:
        raise
    except OSError as error:
        raise RunFileError(f"{file} cannot be read: {error.strerror or error}.") from error


def read_scalars(file: Path) -> RunRecord:
    """Read the info and the scalars of a run, without layout, tables and events: enough for a list of runs. Of a run
    with several optimizers its lines of code are read, too, which name their losses.

    Raises the errors of ``read_run``.
    """
    return read_session(file) if is_session(file) else _read(file, scalars_of)


def is_session(file: Path) -> bool:
    """Return True if a file is an exported JSON document, by its suffix or its first character."""
    if file.suffix == ".json":
        return True
    return file.suffix != ".ndbg" and not written_here(file) and _head(file, 64).lstrip().startswith(b"{")


def _head(file: Path, most: int) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(most)
    except OSError as error:
        raise RunFileError(f"{file} cannot be read: {error.strerror or error}.") from error


def _check_head(file: Path) -> None:
    if written_here(file):
        return
    head = _head(file, len(_MAGIC))
    if not head:
        raise RunDamaged(f"{file} is empty: the run ended before anything was recorded, or the copy failed.")
    if head != _MAGIC:
        raise RunDamaged(f"{file} is no NeuralDBG run file. Name the run's folder or its rank0.ndbg.")


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    uri, size = file.absolute().as_uri(), _size(file)
    try:
        db = _probed(f"{uri}?mode=ro", size)
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise RunFileError(f"{file} is locked by another process: try again.") from error
        log = Path(f"{file}-wal")
        if not log.exists() or log.stat().st_size == 0:
            # On a read-only disk SQLite cannot create -wal and -shm. Without a log to read, it does not need them.
            db = _probed(f"{uri}?immutable=1", size)
        else:
            with (
                tempfile.TemporaryDirectory(prefix="neuraldbg-") as folder,
                closing(_copied(file, log, folder, error)) as copy,
            ):
                yield copy
            return
    with closing(db):
        yield db


def _probed(uri: str, size: int) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None)
    try:
        guarded_database.harden(db, size)
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _copied(file: Path, log: Path, folder: str, error: sqlite3.Error) -> sqlite3.Connection:
    try:
        copy = Path(shutil.copy(file, folder))
        shutil.copy(log, folder)
    except OSError as failure:
        raise RunFileError(f"{file} cannot be opened in place ({error}) nor copied: {failure}.") from failure
    return _probed(copy.as_uri(), _size(copy))


def load(db: sqlite3.Connection, name: str) -> RunRecord:
    """Read the record from a database of our own in one transaction; ``name`` is for messages."""
    return _at_once(db, name, Reading(own=True).record, own=True)


def _at_once(db: sqlite3.Connection, name: str, take: Callable[[sqlite3.Connection], T], *, own: bool) -> T:
    try:
        db.execute("BEGIN")
        try:
            version = _check_version(db, name)
            if not own:
                guarded_database.check_schema(db)
                guarded_database.check_sizes(db, parted=version >= schema.PARTED)
            return take(db)
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
    except _DAMAGE as error:
        let_pass(error)
        raise _damaged(name, error) from error


def _check_version(db: sqlite3.Connection, name: str) -> int:
    if db.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise RunDamaged(f"{name} is an SQLite file, but not a NeuralDBG run file.")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version < 1:
        raise RunDamaged(f"{name} names version {version} of the run file, which there never was.")
    if version > schema.SCHEMA_VERSION:
        raise RunTooNew(
            f"{name} was written by {_author(db)} in version {version} of the run file; this NeuralDBG reads up to "
            f"version {schema.SCHEMA_VERSION}. Read it with that version, or a later one."
        )
    return int(version)


def _author(db: sqlite3.Connection) -> str:
    try:
        if guarded_database.has_table(db, "meta"):  # not a view of that name, which could be an endless query
            (text,) = db.execute("SELECT value FROM meta WHERE key = 'info'").fetchone()
            return f"NeuralDBG {validation.text(validation.parsed(text)['versions']['neuraldbg'], '')[:40]}"
    except (sqlite3.Error, ValueError, KeyError, TypeError, RecursionError):
        pass  # a later version may write it in another way
    return "a later NeuralDBG"


def _size(file: Path) -> int:
    """Return the bytes of a run file and its log."""
    return sum(part.stat().st_size for part in (file, Path(f"{file}-wal")) if part.exists())


def _damaged(name: str, error: Exception) -> RunDamaged:
    return RunDamaged(
        f"{name} is damaged ({_said(error)}). If it was copied, copy it again together with the files that end in -wal "
        f"and -shm; else save what can be saved with: sqlite3 {name} .recover"
    )


def _said(error: Exception) -> str:
    """Return the error's message, reworded where SQLite reports one of the limits that we set."""
    text = validation.cut(str(error) or type(error).__name__)
    return {"interrupted": "its tables have no end", "string or blob too big": _TOO_LONG}.get(text, text)


_TOO_LONG = f"a value in a table is longer than {guarded_database.TEXT_BYTES:,} bytes"
