"""A run file that grows: each ``poll`` reads what is new, and ``record`` is what ``read_run`` would return.

Between two polls nothing is held open: at its end the writer wants the file for itself for a moment. A file that is
not there yet, that is replaced, damaged or deleted is a state of the Follower (``problem``), never an exception.
"""

from __future__ import annotations

import time
from pathlib import Path

from neuraldbg.errors import RunDamaged, RunFileError, RunTooNew
from neuraldbg.nouns import RunRecord
from neuraldbg.record.reader import read_file
from neuraldbg.record.reading import Reading

SETTLED_S = 1.0
"""A time of change older than this will be another one at the next change: file systems count in ticks, some in
seconds."""

_Look = tuple[tuple[int, ...], ...]


class Follower:
    """Reads one run file over and over. To be used by one thread; what it hands out may go to others."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.record = RunRecord()
        """As of the last poll that could read the file."""
        self.problem = ""
        """Why the last poll could not, "" while it could or there was never a file."""
        self._reading = Reading()
        self._looked: _Look | None = None
        """How the file looked when it was last read; None while that is worth nothing."""
        self._identity: tuple[int, ...] = ()

    def poll(self) -> bool:
        """Read what is new; return whether ``record`` or ``problem`` changed."""
        before = self.record, self.problem
        look = _look(self.file)
        if look and look == self._looked:
            return False
        settled = time.time() - max((part[-1] for part in look), default=0) / 1e9 > SETTLED_S
        identity = look[0][:2] if look else ()
        if identity != self._identity:  # deleted, or another file in its place
            self._reading, self._identity = Reading(), identity
        if look:
            self._looked = look if self._read() and settled else None
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


def _look(file: Path) -> _Look:
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
