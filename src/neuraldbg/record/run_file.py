"""The run file that is written: how it is made, the descriptors that SQLite holds on it, and how it is closed.

A program may close descriptors that are not its own (``os.closerange``, a daemon's start), and open files that take
their numbers. SQLite would write its pages there. So the device and inode of each descriptor are compared with those of
the file before SQLite is made to use them. A connection that lost them is never closed, since closing it would close
files of the program: it is left alone for the rest of the process, and the file goes on as a copy of its own.

Between the comparison and the last write of SQLite's COMMIT lie some milliseconds in which another thread of the
program could do all this: that gap cannot be closed from Python.
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
"""Files that SQLite holds open, by what their names end in."""
_hold, _let_go = ctypes.pythonapi.Py_IncRef, ctypes.pythonapi.Py_DecRef
"""Looked up once: an audit hook of the program may refuse that later."""
_SPARE = 16 << 20
"""Bytes that are left free on a disk when a run is copied: the program has files of its own to save."""
_MOST_DESCRIPTORS = 4096
_FIRST = 512

Identity = tuple[int, int]
"""Device and inode."""


_WRITTEN: set[Identity] = set()
"""Files that this process writes."""


class DescriptorsLost(Exception):
    """The program closed descriptors of the run file: their numbers are those of other files. Or its log is gone."""


def written_here(path: Path) -> bool:
    """Return True if this process writes a run file: to open it but by SQLite, and close it, gives up the locks on it.

    See https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_.
    """
    try:
        return _identity(path.stat()) in _WRITTEN
    except OSError as error:
        let_pass(error)
        return False


@contextmanager
def low_numbers_taken() -> Iterator[None]:
    """Have SQLite's descriptors get high numbers: what the program opens later has the numbers that it would have had.

    A program that closed standard input may count on its next file being number 0, and one that closes "3 to 20"
    leaves ours alone. (SQLite itself, given the number of a standard stream, would put /dev/null there for good.)
    """
    taken: list[int] = []
    with swallowing("making room for descriptors"):  # no more to be had: then they are where there is room
        while not taken or taken[-1] < _first_number():
            taken.append(os.open(os.devnull, os.O_RDONLY))
    try:
        yield
    finally:
        for number in taken:
            os.close(number)


def _first_number() -> int:
    """Return the number from which on descriptors of ours may be: half of what there are, which is 1,024 mostly."""
    if resource is None:
        return 0
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _FIRST if limit == resource.RLIM_INFINITY else min(_FIRST, limit // 2)


class RunFile:
    """A run file that is open for writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = _identity(path.stat())
        _WRITTEN.add(self._identity)
        self._mapping = _mapped(path)
        self.db = schema.open_file(path)
        # Nobody but `close` closes these: not the garbage collector, nor the end of the interpreter, nor a forked
        # child (https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_file_across_a_fork).
        for each in (self.db, self._mapping):
            _hold(ctypes.py_object(each))
        self._held = _descriptors([path.with_name(path.name + part) for part in _PARTS])

    def check(self) -> None:
        """Raise DescriptorsLost unless all descriptors still are those of the run file: a few calls of fstat."""
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
        # The locks of a process on a file are gone when it closes any descriptor of that file: the program may copy the
        # run, say. Then another program can take itself for the last one that uses the database, move the log into it,
        # and delete the log while we write there. (Where the file is deleted, too, what we write can still be read.)
        if deleted and self._identity not in deleted:
            raise DescriptorsLost(f"somebody deleted the log of {self.path}")

    @property
    def lost(self) -> bool:
        """True if SQLite's descriptors are not those of the run file any more."""
        try:
            self.check()
        except DescriptorsLost:
            return True
        return False

    @property
    def deleted(self) -> bool:
        """True if no folder has the file any more."""
        return bool(self._held) and os.fstat(self._held[0][0]).st_nlink == 0

    @property
    def in_place(self) -> bool:
        """True if the path still leads to this file: it was not deleted, moved, or replaced."""
        try:
            return _identity(self.path.stat()) == self._identity
        except OSError as error:
            let_pass(error)
            return False

    @low_numbers_taken()
    def finish(self) -> None:
        """Make it a file that can be read anywhere, without companions, and close it. DescriptorsLost leaves it open.

        To be called only while it is in its place: SQLite deletes the log by its name, whosever log that is.
        """
        self.check()
        with swallowing():  # somebody may read it just now: the file is whole with its log, too
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.check()
            if self.db.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete":
                # The log and what belongs to it are closed.
                self._held = tuple(each for each in self._held if each[1] == self._identity)
        self.check()
        self.close()

    def close(self) -> None:
        """Close it as it is. Only after a check."""
        with swallowing():  # it may be left because it failed
            self.db.close()
        if self._mapping is not None:
            self._mapping.close()
        _WRITTEN.discard(self._identity)
        for each in (self.db, self._mapping):
            _let_go(ctypes.py_object(each))

    @low_numbers_taken()
    def reopened(self) -> RunFile:
        """Open the run file again after its descriptors were lost; OSError or sqlite3.Error if that fails.

        It is a copy in the file's place: within a process SQLite shares what it knows of a file, the lost descriptors
        among it, among all connections to the same inode.
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
        """Return what the file holds as a database in memory, without using its descriptors; OSError, sqlite3.Error."""
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
    """Make a new run file under a name that is free, and open it; OSError or sqlite3.Error if that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    return RunFile(_published(folder, rank, schema.new_file))


@low_numbers_taken()
def save(source: sqlite3.Connection, folder: Path, rank: int, over: RunFile | None = None) -> Path:
    """Write a database in memory as a finished run file; in the place of ``over``, or under a name that is free."""
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
    """Write a file under a hidden name and give it its own: a reader must never meet a file without its tables."""
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
    """Give a file a name; FileExistsError if it is taken."""
    try:
        os.link(fresh, path)
    except FileExistsError:
        raise
    except OSError as error:
        let_pass(error)
        # A file system without links: an empty file holds the name until the whole one is in its place.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        fresh.replace(path)


def _put_in_place(fresh: Path, path: Path) -> None:
    """Put a whole file in the place of an old one. The old log, read with it before it is gone, says nothing else."""
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
    with swallowing():  # whatever is wrong with the place has been said, or is being said
        for part in (*_PARTS, "-journal"):
            fresh.with_name(fresh.name + part).unlink(missing_ok=True)


def _identity(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino


def _mapped(path: Path) -> mmap.mmap | None:
    """Map a file, so that its inode is not given to another one while SQLite knows it as that of lost descriptors.

    Within a process SQLite shares what it knows of a file among all connections to its inode: a database that the
    program makes later was "locked". A mapping holds the inode without the descriptor. Nobody reads from it.
    """
    kept: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
    try:
        with path.open("rb") as opened:  # before SQLite has any lock: to close a descriptor gives up those of the file
            return mmap.mmap(opened.fileno(), 1, access=mmap.ACCESS_READ, **kept)
    except (OSError, ValueError) as error:  # a file system without mappings
        let_pass(error)
        return None


def _descriptors(files: list[Path]) -> tuple[tuple[int, Identity], ...]:
    """Find the descriptors that this process has on new files, which nobody else has opened yet."""
    if sys.platform == "win32":  # SQLite has handles there, which no os.close can reach
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
