"""The database that a run is written to: its run file, or memory while the file cannot be written.

The reasons why the file cannot be written, and the reactions:

- Another program holds a lock on it: after five seconds the run goes on in memory, and returns when the lock is gone.
- The program closed our descriptors: the file is replaced by a copy of itself, which is opened; nothing is lost.
- The disk is full, the file was deleted or damaged: the run goes on in memory, and is saved at its end if possible.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from neuraldbg import clocks
from neuraldbg.errors import RunFileError
from neuraldbg.raised import let_pass
from neuraldbg.record import run_file, schema
from neuraldbg.record.batch_writer import Writer
from neuraldbg.record.codec import BlobDamaged
from neuraldbg.record.reader import load, read_file
from neuraldbg.record.run_file import DescriptorsLost
from neuraldbg.record.write_queue import Batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from neuraldbg.config import RecordSettings
    from neuraldbg.nouns import RunInfo, RunRecord
    from neuraldbg.record.run_file import RunFile

LOCKED_S = 5.0
"""Seconds of a lock after which the run goes on in memory; until then the batch waits."""
RETRY_S = 1.0
"""Seconds between two attempts to return from memory to a file that was locked."""
CALM_S = 1.0
"""Seconds after which a file whose descriptors were lost is opened again: a program that closes a descriptor and opens
a file, which is to get the same number, must not find it taken in between."""
_FAULTS = (sqlite3.Error, OSError, BlobDamaged)
_REOPENED = 4
"""Times in a row that a file is opened again for one batch at most."""


class Store:
    """Stores batches, and returns the record of all of them. The recorder holds a lock around every call."""

    def __init__(self, folder: Path | None, rank: int, settings: RecordSettings, info: Callable[[], RunInfo]) -> None:
        self.problem: str | None = None
        """Sentences that say why the run is not, or not wholly, on disk. None if it is."""
        self.remark: str | None = None
        """Sentence that says that the run was saved in another file than its own. None if it was not."""
        self.notes: list[str] = []
        """Sentences on faults of the file by which nothing was lost, for the coverage report."""
        self.path: Path | None = None
        """Path of the run file. None while the run is in memory only."""
        self._folder, self._rank, self._settings, self._info = folder, rank, settings, info
        self._file: RunFile | None = None
        """The file that is written. None while the run is in memory, and after ``finish``."""
        self._left: RunFile | None = None
        """The file that can no longer be written, while the run is in memory. None if there is none."""
        self._left_open = False
        """True if ``_left`` is only locked, and its connection can be used again."""
        self._reason = ""
        """Reason why ``_left`` cannot be written."""
        self._locked_since: float | None = None
        """Time when a lock was first met, monotonic clock. None if the file is not locked."""
        self._lost_since: float | None = None
        """Time when lost descriptors were first noticed, monotonic clock. None if they are not lost."""
        self._next_try = 0.0
        """Time of the next attempt to return to a locked file, monotonic clock."""
        self._db: sqlite3.Connection | None = None
        """The database that is written. None once the run is finished in a file."""
        if folder is not None:
            try:
                self._file = run_file.create(folder, rank)
            except Exception as error:  # noqa: BLE001 (whatever is wrong with the place, the run goes on)
                let_pass(error)
                self._tell(
                    f"the run cannot be saved in {folder} ({_words(error)}): it is kept in memory only. "
                    "Choose another folder."
                )
        if self._file is not None:
            self._use(self._file)
        else:
            self._use_memory(schema.create_memory())

    # ---------------------------------------------------------------- what the recorder asks

    def write(self, batch: Batch, *, at_once: bool = False) -> bool:
        """Store a batch. Return False if the file is not available now, and the batch has to be passed again.

        ``at_once`` stores it in any case. Only errors of a database in memory are raised.
        """
        # Each fault is handled and the batch tried again: a program may close our descriptors more than once.
        for _ in range(_REOPENED):
            file = self._file
            if file is None:
                break
            try:
                self._writer.write(batch)
            except (DescriptorsLost, *_FAULTS) as error:
                let_pass(error)
                if file.lost:
                    if not (at_once or self._calm()):
                        return False
                    self._reopen(file)
                elif not schema.locked(error):
                    self._fall_back(file, _words(error))
                elif at_once or self._locked_long():
                    self._go_aside(file)
                else:
                    return False
            else:
                self._locked_since = None
                return True
        if self._file is not None:
            self._fall_back(self._file, "its descriptors are closed over and over")
        self._writer.write(batch)
        return True

    @property
    def locked(self) -> bool:
        """True while another program keeps the run from its file."""
        return self._locked_since is not None

    @property
    def misfits(self) -> list[str]:
        """Error message of the first fact that was not written, in a list; [] if there is none."""
        return self._writer.misfits

    def tend(self, *, at_once: bool = False) -> None:
        """Return to the file if the run is in memory because of a lock that is gone. Tries once per RETRY_S, or now if
        ``at_once``.
        """
        due = at_once or clocks.monotonic() >= self._next_try
        if self._left is not None and self._left_open and due:
            self._next_try = clocks.monotonic() + RETRY_S
            self._return(self._left)

    def load(self) -> RunRecord:
        """Return the record of all batches. Raises RunFileError only if a finished file vanished or was damaged."""
        if self._db is None:
            assert self.path is not None
            return read_file(self.path)
        file = self._file
        if file is not None:
            try:
                file.check()
                return load(self._db, str(file.path))
            except (DescriptorsLost, RunFileError) as error:
                let_pass(error)
                if file.lost:
                    self._reopen(file)
                else:
                    self._fall_back(file, _words(error))
        return load(self._db, str(self.path or "the run in memory"))

    def finish(self) -> None:
        """Close the run file without a log, or save the run that is in memory."""
        if self._left is not None and self._left_open:
            self._return(self._left)
        for _ in range(_REOPENED):
            if self._file is None:
                break
            if self._close(self._file):
                return
        if self._left is not None:
            self._save_memory(self._left)

    def _close(self, file: RunFile) -> bool:
        """Close the file that is written. Return False if it could not be closed: it was then opened again, or the run
        moved to memory.
        """
        try:
            file.check()
            if file.in_place:
                file.finish()
                self._file, self._db = None, None
                return True
            deleted = file.deleted
            content, whole = schema.rescue(file.db)
        except DescriptorsLost:
            self._reopen(file)
            return False
        self._leave(file, content, "it was deleted" if deleted else "it was moved", whole=whole)
        if not deleted:  # it was moved together with its log, and is whole
            self._left = None
            self._tell(f"the run file {file.path} was moved while it was written: it is whole in its new place.")
        return False

    # ---------------------------------------------------------------- between the file and memory

    def _use(self, file: RunFile) -> None:
        self._file, self._left, self.path, self._db = file, None, file.path, file.db
        self._left_open, self._locked_since, self._lost_since = False, None, None
        self._writer = Writer(file.db, self._settings, file.check)

    def _use_memory(self, db: sqlite3.Connection) -> None:
        self._file, self.path, self._db = None, None, db
        self._writer = Writer(db, self._settings)

    def _reopen(self, file: RunFile) -> None:
        """Go on after our descriptors were lost: with a copy of the file under new ones, or else in memory."""
        try:
            self._use(file.reopened())
        except _FAULTS as error:
            let_pass(error)
            reason = f"its descriptors were closed, and it could not be opened again: {_words(error)}"
        else:
            self._note(
                "the program closed the descriptors of the run file, or its log was deleted: it was opened again"
            )
            return
        try:
            content, whole = file.content(), True
        except _FAULTS as error:
            let_pass(error)
            content, whole = schema.create_memory(), False
        self._leave(file, content, reason, whole=whole)

    def _fall_back(self, file: RunFile, reason: str) -> None:
        """Go on in memory with the whole run after the file failed."""
        content, whole = schema.rescue(file.db)
        self._leave(file, content, reason, whole=whole)
        if not file.lost:  # a connection that lost its descriptors is never closed
            file.close()

    def _leave(self, file: RunFile, content: sqlite3.Connection, reason: str, *, whole: bool) -> None:
        """Go on in memory with ``content``, and write the newest info of the run to it."""
        self._left, self._left_open, self._reason = file, False, reason
        self._use_memory(content)
        if not whole:
            self._tell(f"part of what was recorded before could not be read back from {file.path} ({reason}).")
        self._writer.write(Batch(info=self._info()))

    def _calm(self) -> bool:
        """Return True if descriptors were lost CALM_S ago: the program may just be closing many."""
        now = clocks.monotonic()
        if self._lost_since is None:
            self._lost_since = now
        return now - self._lost_since >= CALM_S

    def _locked_long(self) -> bool:
        now = clocks.monotonic()
        if self._locked_since is None:
            self._locked_since = now
        return now - self._locked_since > LOCKED_S

    def _go_aside(self, file: RunFile) -> None:
        """Go on in memory while another program has locked the file."""
        self._locked_long()
        content, whole = schema.rescue(file.db)
        self._leave(file, content, "it is locked by another program", whole=whole)
        self._left_open = True

    def _return(self, file: RunFile) -> None:
        """Write the run in memory to the file that was locked. It stays in memory if the lock is still there."""
        assert self._db is not None
        try:
            schema.overwrite(self._db, file.db, file.check)
        except (DescriptorsLost, sqlite3.Error) as error:
            let_pass(error)
            if file.lost:
                self._left_open = False
            elif not schema.locked(error):
                self._left_open, self._reason = False, _words(error)
                file.close()
            return
        since = self._locked_since or clocks.monotonic()
        self._use(file)
        self._note(
            f"the run file was locked by another program for {clocks.monotonic() - since:.0f} s: what was recorded "
            "meanwhile was kept in memory, and is in the file now"
        )

    def _save_memory(self, left: RunFile) -> None:
        """Save at its end a run that is in memory. Set ``remark`` to its place, or ``problem`` to the reason of
        failure.
        """
        assert self._db is not None
        assert self._folder is not None
        try:
            if not self._folder.exists() and self._folder.parent.is_dir():
                self._folder.mkdir()  # the program may have deleted the folder that it was given
            # A file that another program has locked is not replaced: that program may be reading or copying it.
            over = None if self._left_open else left
            self.path = run_file.save(self._db, self._folder, self._rank, over)
        except _FAULTS as error:
            let_pass(error)
            again = "" if _words(error) == self._reason else f" At its end it could not be saved either: {error}."
            advice = "Free some space, or choose" if _full(error, self._reason) else "Choose"
            self._tell(
                f"the run file {left.path} cannot be written any more ({self._reason}): from there on the run is kept "
                f"in memory only.{again} {advice} another folder."
            )
            return
        self._db = None
        if self.path != left.path:
            self.remark = (
                f"the run file {left.path} could not be written to its end ({self._reason}): "
                f"the whole run is saved in {self.path}."
            )
        if self._left_open and not left.lost:
            left.close()

    # ---------------------------------------------------------------- words

    def _tell(self, problem: str) -> None:
        self.problem = problem if self.problem is None else f"{self.problem} Later, {problem}"

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _full(*said: object) -> bool:
    return any(word in str(each) for each in said for word in ("full", "space", "quota", "too large"))


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
