"""The run file that is written: its creation, SQLite's descriptors on it, and its closing.

A program may close descriptors that are not its own (``os.closerange``, the start of a daemon), and open files that get
their numbers. SQLite would write its pages there. So the device and inode of each descriptor are compared with those of
the file before SQLite uses them. A connection that lost its descriptors is never closed, since that would close files
of the program: it is left alone for the rest of the process, and the file is replaced by a copy of itself.

Between the comparison and the last write of SQLite's COMMIT lie some milliseconds in which another thread of the
program could do the same: that gap cannot be closed from Python.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import secrets
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuraldbg.raised import let_pass, swallowing
from neuraldbg.record import schema
from neuraldbg.record.run_names import RunName, free_names

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

_PARTS = ("", "-wal", "-shm")
"""Suffixes of the files that SQLite holds open."""
_hold, _let_go = ctypes.pythonapi.Py_IncRef, ctypes.pythonapi.Py_DecRef
"""Reference counting functions of CPython, looked up at import: an audit hook of the program may refuse that later."""
_SPARE = 16 << 20
"""Bytes left free on a disk when a run is copied: the program has files of its own to save."""
_MOST_DESCRIPTORS = 4096
_FIRST = 512

Identity = tuple[int, int]
"""Device and inode."""


_WRITTEN: set[Identity] = set()
"""Run files that this process writes."""


class DescriptorsLost(Exception):
    """Raised if the program closed descriptors of the run file, whose numbers may be other files now, or if its log was
    deleted.
    """


def written_here(path: Path) -> bool:
    """Return True if this process writes the run file: opening and closing it other than by SQLite drops its locks.

    See https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_.
    """
    try:
        return _identity(path.stat()) in _WRITTEN
    except OSError as error:
        let_pass(error)
        return False


@contextmanager
def low_numbers_taken() -> Iterator[None]:
    """Occupy low descriptor numbers, so that SQLite gets high ones and the program's own are the same as without us.

    A program that closed standard input may rely on its next file being number 0, and one that closes "3 to 20" leaves
    ours alone. (SQLite itself, given the number of a standard stream, would put /dev/null there for good.)
    """
    taken: list[int] = []
    with swallowing("making room for descriptors"):  # if there are no more, SQLite takes any number that is free
        while not taken or taken[-1] < _first_number():
            taken.append(os.open(os.devnull, os.O_RDONLY))
    try:
        yield
    finally:
        for number in taken:
            os.close(number)


def _first_number() -> int:
    """Return the lowest number for our descriptors: 512, or half of the limit, which is 1,024 on most systems."""
    if resource is None:
        return 0
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _FIRST if limit == resource.RLIM_INFINITY else min(_FIRST, limit // 2)


class RunFile:
    """A run file that is open for writing, with the identities of SQLite's descriptors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = _identity(path.stat())
        _WRITTEN.add(self._identity)
        self._mapping = _mapped(path)
        self.db = schema.open_file(path)
        # One reference too many, so that only `close` closes these: not the garbage collector, nor the end of the
        # interpreter, nor a forked child
        # (https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_file_across_a_fork).
        for each in (self.db, self._mapping):
            _hold(ctypes.py_object(each))
        self._held = _descriptors([path.with_name(path.name + part) for part in _PARTS])

    def check(self) -> None:
        """Raise DescriptorsLost unless all descriptors still belong to the run file. Costs a few calls of ``fstat``."""
        deleted: list[Identity] = []
        for number, identity in self._held:
            try:
                found = os.fstat(number)
            except OSError as error:
                let_pass(error)
                raise DescriptorsLost(f"descriptor {number} of {self.path} was closed") from error
            if _identity(found) != identity:
                raise DescriptorsLost(f"descriptor {number} is not that of {self.path} any more")
            if not found.st_nlink:
                deleted.append(identity)
        # A process loses its locks on a file when it closes any descriptor of that file, for instance because the
        # program copies the run. Then another program takes itself for the last user of the database, checkpoints the
        # log and deletes it while we write there. (If the file is deleted, too, our writes can still be read.)
        if deleted and self._identity not in deleted:
            raise DescriptorsLost(f"the log was deleted: that of {self.path}")

    @property
    def lost(self) -> bool:
        """True if SQLite's descriptors no longer belong to the run file."""
        try:
            self.check()
        except DescriptorsLost:
            return True
        return False

    @property
    def deleted(self) -> bool:
        """True if the file is in no folder any more (its link count is 0)."""
        return bool(self._held) and os.fstat(self._held[0][0]).st_nlink == 0

    @property
    def in_place(self) -> bool:
        """True if the path still refers to this file, which was not deleted, moved, or replaced."""
        try:
            return _identity(self.path.stat()) == self._identity
        except OSError as error:
            let_pass(error)
            return False

    @low_numbers_taken()
    def finish(self) -> None:
        """Checkpoint and delete the log, so that the file alone can be copied and read, and close it. On
        DescriptorsLost it stays open.

        Call this only while the file is in its place: SQLite deletes the log by name, even if it is another file's.
        """
        self.check()
        with swallowing():  # another process may be reading: with its log the file is whole, too
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.check()
            if self.db.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete":
                # SQLite has closed the log and the shared memory.
                self._held = tuple(each for each in self._held if each[1] == self._identity)
        self.check()
        self.close()

    def close(self) -> None:
        """Close the connection without a checkpoint. Call ``check`` first."""
        with swallowing():  # the connection may be closed because it failed
            self.db.close()
        if self._mapping is not None:
            self._mapping.close()
        _WRITTEN.discard(self._identity)
        for each in (self.db, self._mapping):
            _let_go(ctypes.py_object(each))

    @low_numbers_taken()
    def reopened(self) -> RunFile:
        """Open the run file again after its descriptors were lost. Raises OSError or sqlite3.Error if that fails.

        The file is replaced by a copy: within a process SQLite shares its state of a file, lost descriptors included,
        among all connections to the same inode.
        """
        if not self.in_place:
            raise FileNotFoundError(errno.ENOENT, "the run file is not there any more", str(self.path))
        fresh = _hidden(self.path.parent)
        try:
            _copied(self.path, fresh)
            schema.settle(fresh)
            _put_in_place(fresh, self.path)
        finally:
            _remove(fresh)
        return RunFile(self.path)

    @low_numbers_taken()
    def content(self) -> sqlite3.Connection:
        """Copy the file to a database in memory without using its descriptors. Raises OSError or sqlite3.Error."""
        if not self.in_place:
            raise FileNotFoundError(errno.ENOENT, "the run file is not there any more", str(self.path))
        fresh = Path(tempfile.mkdtemp(prefix="neuraldbg-")) / self.path.name
        try:
            _copied(self.path, fresh)
            return schema.settle(fresh, to_memory=True)
        finally:
            shutil.rmtree(fresh.parent, ignore_errors=True)


@low_numbers_taken()
def create(folder: Path, rank: int) -> RunFile:
    """Create a run file under a free name, and open it. Raises OSError or sqlite3.Error if that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    return RunFile(_published(folder, rank, schema.new_file))


@low_numbers_taken()
def save(source: sqlite3.Connection, folder: Path, rank: int, over: RunFile | None = None) -> Path:
    """Write a database in memory as a finished run file: in the place of ``over``, or under a free name. Returns its
    path; raises OSError or sqlite3.Error if that fails.
    """
    size = _one(source, "PRAGMA page_count") * _one(source, "PRAGMA page_size")
    if shutil.disk_usage(folder).free < size + _SPARE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    def written(fresh: Path) -> None:
        schema.write_copy(source, fresh)

    if over is None or not over.in_place:
        return _published(folder, rank, written)
    fresh = _hidden(folder)
    try:
        written(fresh)
        _put_in_place(fresh, over.path)
    finally:
        _remove(fresh)
    return over.path


def _published(folder: Path, rank: int, write: Callable[[Path], None]) -> Path:
    """Write a file under a hidden name, then rename it: a reader must never find a file without its tables."""
    fresh = _hidden(folder)
    try:
        write(fresh)
        for path in free_names(folder, rank):
            try:
                _named(fresh, path)
            except FileExistsError:
                continue  # another process was faster
            return path
    finally:
        _remove(fresh)
    raise AssertionError("there is always another name")


def _named(fresh: Path, path: Path) -> None:
    """Give a file a name. Raises FileExistsError if it is taken."""
    try:
        os.link(fresh, path)
    except FileExistsError:
        raise
    except OSError as error:
        let_pass(error)
        # The file system has no hard links: an empty file reserves the name until the whole one replaces it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        fresh.replace(path)


def _put_in_place(fresh: Path, path: Path) -> None:
    """Replace a run file by a whole one, then delete its old log. A reader between the two finds the same content."""
    fresh.replace(path)
    for part in _PARTS[1:]:
        path.with_name(path.name + part).unlink(missing_ok=True)


def _copied(path: Path, fresh: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    shutil.copyfile(path, fresh)
    if log.exists():
        shutil.copyfile(log, fresh.with_name(f"{fresh.name}-wal"))


def _hidden(folder: Path) -> Path:
    return folder / f".{RunName()}.{secrets.token_hex(8)}.new"


def _remove(fresh: Path) -> None:
    with swallowing():  # a fault of the place is reported by the caller
        for part in (*_PARTS, "-journal"):
            fresh.with_name(fresh.name + part).unlink(missing_ok=True)


def _identity(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino


def _mapped(path: Path) -> mmap.mmap | None:
    """Map a file into memory, so that no other file gets its inode while SQLite remembers it with lost descriptors.

    Within a process SQLite shares its state of a file among all connections to the inode: a database that the program
    made later was "locked". A mapping holds the inode without a descriptor. It is never read.
    """
    kept: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
    try:
        with path.open("rb") as opened:  # before SQLite has any lock: closing a descriptor drops the locks of the file
            return mmap.mmap(opened.fileno(), 1, access=mmap.ACCESS_READ, **kept)
    except (OSError, ValueError) as error:  # a file system without mappings
        let_pass(error)
        return None


def _descriptors(files: list[Path]) -> tuple[tuple[int, Identity], ...]:
    """Return number and identity of this process's descriptors on new files, which only SQLite has opened yet."""
    if sys.platform == "win32":  # SQLite has handles there, which ``os.close`` does not close
        return ()
    wanted = set()
    for file in files:
        with swallowing():
            wanted.add(_identity(file.stat()))
    found = []
    for number in _numbers():
        with swallowing():
            identity = _identity(os.fstat(number))
            if identity in wanted:
                found.append((number, identity))
    return tuple(found)


def _numbers() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with swallowing():
            return [int(entry.name) for entry in Path(folder).iterdir()]
    if resource is None:
        return []
    return list(range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MOST_DESCRIPTORS)))


def _one(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
