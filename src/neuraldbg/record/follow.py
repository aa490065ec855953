"""A run file that grows: each ``poll`` reads what is new, and ``record`` is what ``read_run`` would return.

Between two polls nothing is held open: at its end the writer wants the file for itself for a moment. A file that is
not there yet, that is replaced, damaged or deleted is a state of the Follower (``problem``), never an exception.
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
"""Of a run file that changed since then nobody asks whether it is still written."""
SETTLED_S = 1.0
"""A time of change older than this will be another one at the next change: file systems count in ticks, some in
seconds."""
_LOCK, _ALIVE = "hhqqi", 128

Look = tuple[tuple[int, ...], ...]


class Follower:
    """Reads one run file over and over. To be used by one thread; what it hands out may go to others."""

    def __init__(self, file: Path, record: RunRecord | None = None) -> None:
        self.file = file
        self.record = record or RunRecord()
        """As of the last poll that could read the file; until then what it was begun with."""
        self.problem = ""
        """Why the last poll could not, "" while it could or there was never a file."""
        self._reading = Reading()
        self._looked: Look | None = None
        """How the file looked when it was last read; None while that is worth nothing."""
        self._identity: tuple[int, ...] = ()

    def poll(self) -> bool:
        """Read what is new; return whether ``record`` or ``problem`` changed."""
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
        """Read it; return whether that need not be tried again until the file changes."""
        try:
            self.record, self.problem = read_file(self.file, self._reading), ""
        except RunFileError as error:
            self.problem = str(error)
            return isinstance(error, (RunDamaged, RunTooNew))
        return True


def look(file: Path) -> Look:
    """Return what changes whenever the run file or its log does; () where there is no such file."""
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
    """Return the seconds since a run file changed that looked so."""
    return clocks.now() - max((part[-1] for part in seen), default=0) / 1e9


def killed(file: Path) -> bool:
    """Return True if nobody writes a run file any more that has no end; False for one that changed a moment ago."""
    seen = look(file)
    return bool(seen) and silence(seen) > SILENT_S and abandoned(file)


def abandoned(file: Path) -> bool:
    """Return True if the process that wrote a run file that has no end is gone; False where that cannot be known.

    A connection to a database with a log holds a lock as long as it lives, and a killed process holds none
    (https://sqlite.org/walformat.html#wal_locks: byte 128 of the shared memory). To be asked only of a file that has
    been silent: closing the shared memory here drops what locks this process itself has on it.
    """
    if sys.platform != "linux" or written_here(file):  # the layout of the question differs elsewhere
        return False
    try:
        with Path(f"{file}-shm").open("rb+") as shared:
            asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, _ALIVE, 1, 0)
            return bool(struct.unpack(_LOCK, fcntl.fcntl(shared, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK)
    except FileNotFoundError:
        return True
    except OSError:
        return False
