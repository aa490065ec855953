"""A reader of a run file that grows: each ``poll`` reads what is new; ``record`` equals the result of ``read_run``.

Between two polls no connection is open: at the end of a run the writer needs the file for itself for a moment. A file
that does not exist yet, or is replaced, damaged or deleted, is a state of the Follower (``problem``), never an
exception.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

from neuraldbg import clocks
from neuraldbg.errors import RunDamaged, RunFileError, RunTooNew
from neuraldbg.nouns import RunRecord
from neuraldbg.record.incremental_reader import Reading
from neuraldbg.record.reader import read_file
from neuraldbg.record.run_file import written_here

if sys.platform == "linux":
    import fcntl

SILENT_S = 5.0
"""Seconds since the last change of a run file, up to which it is taken as still being written."""
SETTLED_S = 1.0
"""Age in seconds from which a modification time is certain to differ after the next change: file systems store these
times in ticks, some in whole seconds."""
_LOCK, _ALIVE = "hhqqi", 128

Look = tuple[tuple[int, ...], ...]


class Follower:
    """Reads one run file again and again, on one thread; its records may be used on others."""

    def __init__(self, file: Path, record: RunRecord | None = None) -> None:
        self.file = file
        self.record = record or RunRecord()
        """The record of the last poll that could read the file; until then the one passed in, or an empty one."""
        self.problem = ""
        """Reason why the last poll could not read the file; "" if it could, or if there was never a file."""
        self._reading = Reading()
        self._looked: Look | None = None
        """State of the file at its last reading (see ``look``). None if the next poll must read in any case."""
        self._identity: tuple[int, ...] = ()

    def poll(self) -> bool:
        """Read the new part of the file. Return True if ``record`` or ``problem`` changed."""
        before = self.record, self.problem
        seen = look(self.file)
        if seen and seen == self._looked:
            return False
        settled = silence(seen) > SETTLED_S
        identity = seen[0][:2] if seen else ()
        if identity != self._identity:  # deleted, or another file in its place
            self._reading, self._identity = Reading(), identity
        if seen:
            self._looked = seen if self._read() and settled else None
        elif self.record.steps or self.record.layout.layers:
            self.problem, self._looked = f"{self.file} is not there any more: what is shown was read before.", None
        return self.record is not before[0] or self.problem != before[1]

    def _read(self) -> bool:
        """Read the file. Return True if another try is useless until the file changes."""
        try:
            self.record, self.problem = read_file(self.file, self._reading), ""
        except RunFileError as error:
            self.problem = str(error)
            return isinstance(error, (RunDamaged, RunTooNew))
        return True


def look(file: Path) -> Look:
    """Return the state of a run file and its log: for each, device, inode, size and time of the last change in
    nanoseconds; () if there is no such file.
    """
    found = []
    for part in (file, Path(f"{file}-wal")):
        try:
            stat = part.stat()
        except OSError:
            if part is file:
                return ()
            continue
        found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def silence(seen: Look) -> float:
    """Return the seconds since the last change of a run file in the state ``seen``."""
    return clocks.now() - max((part[-1] for part in seen), default=0) / 1e9


def killed(file: Path) -> bool:
    """Return True if no process writes an unfinished run file any more; False if it changed a moment ago."""
    seen = look(file)
    return bool(seen) and silence(seen) > SILENT_S and abandoned(file)


def abandoned(file: Path) -> bool:
    """Return True if the process that wrote an unfinished run file is gone; False if that cannot be determined.

    A connection to a database in WAL mode holds a lock as long as it is open, and a killed process holds none
    (https://sqlite.org/walformat.html#wal_locks: byte 128 of the shared memory). Call this only for a file that has not
    changed for a while: closing the shared memory here drops the locks that this process itself has on it.
    """
    if sys.platform != "linux" or written_here(file):  # elsewhere ``struct flock`` has another layout
        return False
    try:
        with Path(f"{file}-shm").open("rb+") as shared:
            asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, _ALIVE, 1, 0)
            return bool(struct.unpack(_LOCK, fcntl.fcntl(shared, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK)
    except FileNotFoundError:
        return True
    except OSError:
        return False
