"""The recorder: steps enter on the training thread, one background thread writes them, a RunRecord leaves.

On the training thread: ``put`` -> Backlog. On the writer thread, or of whoever flushes: Backlog -> Writer ->
``rank0.ndbg``, or a database in memory where there is no such file.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.errors import RunFileError
from neuraldbg.forks import tell_children
from neuraldbg.nouns import RunInfo, RunRecord
from neuraldbg.raised import let_pass, swallowing
from neuraldbg.record import schema
from neuraldbg.record.backlog import Backlog, Batch
from neuraldbg.record.budget import queue_bytes
from neuraldbg.record.codec import BlobDamaged
from neuraldbg.record.reader import load, read_run
from neuraldbg.record.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from neuraldbg.config import RecordSettings
    from neuraldbg.nouns import Event, Fact, Layout, Step

_JOIN_S = 30.0
"""How long ``close`` waits for a writer that hangs on its disk."""


class Recorder:
    """Records a run to ``folder/rank0.ndbg``, or in memory where ``folder`` is None or cannot be written.

    Nothing here raises into the training. In a forked child (a DataLoader worker) it does nothing. ``pull`` is called
    by the writer's thread before it looks for steps: whoever holds some back can put them then.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: RecordSettings,
        info: RunInfo,
        *,
        rank: int = 0,
        pull: Callable[[], None] | None = None,
    ) -> None:
        self._pull = pull
        self.path: Path | None = None
        """The run file; None while the run is kept in memory only."""
        self.dropped = 0
        """Steps that were recorded as part of a bin, because the writer did not keep up, or not at all."""
        self.cpu_s = 0.0
        """Seconds of the processor that the writer's thread has taken."""
        self.problem: str | None = None
        """Why the run is not, or not wholly, on disk: one sentence to show once."""
        self._info = info
        self._settings = settings
        self._closed = False
        self._forked = False
        """Whether this is a forked child's copy: a flag, since asking for the process id costs a system call."""
        self._backlog = Backlog(settings.queue, queue_bytes(settings))
        self._backlog.inform(info)
        self._backlog_lock = threading.Lock()
        self._db_lock = threading.RLock()
        self._unwritten: Batch | None = None
        self._db: sqlite3.Connection | None = self._open(folder, rank)
        self._writer = Writer(self._db, settings)
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="neuraldbg-writer", daemon=True)
        tell_children(self)
        self._drain()
        self._thread.start()

    def _open(self, folder: Path | None, rank: int) -> sqlite3.Connection:
        if folder is not None:
            try:
                db, self.path = schema.create_file(folder, rank)
            except Exception as error:  # noqa: BLE001 (whatever is wrong with the place, the run goes on)
                let_pass(error)
                self.problem = (
                    f"the run cannot be saved in {folder} ({_words(error)}): it is kept in memory only. "
                    "Choose another folder."
                )
            else:
                return db
        return schema.create_memory()

    def put(self, step: Step, layout: Layout, events: Sequence[Event] = ()) -> None:
        """Record a step and the events that it began or changed. Takes microseconds; keeps the arrays it is given."""
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            if not self._backlog.put(step, layout, events):
                self.dropped += 1
            hurry = self._backlog.half_full
        if hurry and not self._wake.is_set():
            self._wake.set()

    def tell(self, events: Sequence[Event]) -> None:
        """Record newer versions of events: a lasting one is given again only now and then while it lasts."""
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            self._backlog.tell(events)

    def note(self, facts: Sequence[Fact]) -> None:
        """Record facts that belong to no single step."""
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            self._backlog.note(facts)

    def update_info(self, info: RunInfo) -> None:
        """Record what is newly known about the run as a whole, such as how it ended. To be done before ``close``."""
        self._info = self._noted(info)
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            self._backlog.inform(self._info)

    def _noted(self, info: RunInfo) -> RunInfo:
        """Say in the coverage that steps were recorded coarsely: a diagnosis must not look sharper than its record."""
        if not self.dropped:
            return info
        note = f"the writer of the run file did not keep up: {self.dropped:,} steps are recorded in bins, or not at all"
        notes = [*info.coverage.get("notes", ()), note]
        return replace(info, coverage={**info.coverage, "notes": notes, "coarse": self.dropped})

    def flush(self) -> None:
        """Store all that was put so far; returns when it is stored."""
        if not self._closed and not self._forked:
            self._drain()

    def close(self) -> None:
        """Store everything and stop the writer. ``record()`` still works. Closing again does nothing."""
        if self._closed or self._forked:
            return
        self._closed = True
        self._stop = True
        self._wake.set()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            self._tell(f"the disk of {self.path} does not answer: the last steps of the run may not be saved.")
            return
        self._drain()
        with self._db_lock:
            if self.path is not None and self._db is not None:
                self._leave_file(self._db)
                self._db = None

    def record(self) -> RunRecord:
        """Return the run as recorded so far, read in the same way as a file is.

        RunFileError only if the file vanished or broke after ``close``.
        """
        if self._forked:
            return RunRecord(info=self._info)
        self.flush()
        with self._db_lock:
            if self._db is None:
                assert self.path is not None
                return read_run(self.path)
            try:
                return load(self._db, str(self.path or "the run in memory"))
            except RunFileError as error:
                if self.path is None:
                    raise
                self._fall_back(error)
                return load(self._db, "the run in memory")

    def _run(self) -> None:
        # Half of the promised time: a step that comes just after a look is written at the next.
        pause = self._settings.flush_s / 2
        while not self._stop:
            self._wake.wait(pause)
            self._wake.clear()
            if self._pull is not None and not self._stop:
                self._pull()
            self._drain()
            self.cpu_s = time.thread_time()

    def _drain(self) -> None:
        """Write what waits. Whoever calls, one at a time; a batch is given up only once it is stored."""
        with self._db_lock:
            if self._unwritten is not None:  # what an interrupt left
                self._store(self._unwritten)
            with self._backlog_lock:
                self._unwritten = self._backlog.take()
            self._store(self._unwritten)

    def _store(self, batch: Batch) -> None:
        try:
            if batch:
                self._write(batch)
        except Exception as error:
            let_pass(error)  # the batch is stored later
            self.dropped += len(batch.steps)
            self._unwritten = None
            self._tell(f"some steps could not be recorded ({type(error).__name__}: {error}).")
            # A debugger must not take the training down; in its own tests it must not hide its bugs.
            if os.environ.get("NEURALDBG_STRICT"):
                raise
        self._unwritten = None

    def _write(self, batch: Batch) -> None:
        try:
            self._writer.write(batch)
        except (sqlite3.Error, OSError, BlobDamaged) as error:
            let_pass(error)
            if self.path is None:
                raise
            self._fall_back(error)
            self._writer.write(batch)
        for misfit in self._writer.misfits[:1]:
            self._tell(f"a fact could not be recorded ({misfit}).")
            if os.environ.get("NEURALDBG_STRICT"):
                raise ValueError(misfit)

    def _fall_back(self, error: Exception) -> None:
        """Go on in memory, with all that was recorded."""
        assert self._db is not None
        where, old = self.path, self._db
        self._db, whole = schema.rescue(old)
        self._writer = Writer(self._db, self._settings)
        self._writer.write(Batch(info=self._info))
        self.path = None
        lost = "" if whole else " Part of what was recorded before could not be read back from it."
        self._tell(
            f"the run file {where} cannot be written any more ({_words(error)}): from here on the run is kept in "
            f"memory only.{lost} Free some space, or choose another folder."
        )
        _close_quietly(old)

    def _leave_file(self, db: sqlite3.Connection) -> None:
        """Make the file one that can be read anywhere: without companions, also on a read-only disk."""
        with swallowing():  # somebody may read it just now: the file is whole with its log, too
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.execute("PRAGMA journal_mode = DELETE")
        _close_quietly(db)

    def in_child(self) -> None:
        """Do nothing more in a forked child, and keep the parent's connection from ever being closed there.

        A child that closes an inherited connection can remove the parent's locks and log
        (https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_file_across_a_fork).
        """
        self._forked = True
        if self._db is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))

    def _tell(self, problem: str) -> None:
        self.problem = problem if self.problem is None else f"{self.problem} Later, {problem}"


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _close_quietly(db: sqlite3.Connection) -> None:
    with swallowing():  # it may be left because it failed
        db.close()
