"""The recorder: steps enter on the training thread, one background thread writes them, a RunRecord leaves.

On the training thread: ``put`` -> Backlog. On the writer thread, or of whoever flushes: Backlog -> Store -> the run
file, or a database in memory where there is no such file.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg import clocks
from neuraldbg.forks import tell_children
from neuraldbg.nouns import RunInfo, RunRecord
from neuraldbg.raised import let_pass
from neuraldbg.record.budget import queue_bytes
from neuraldbg.record.signal_masks import start_thread, without_size_signal
from neuraldbg.record.store import Store
from neuraldbg.record.write_queue import Backlog, Batch
from neuraldbg.unlisted_thread import UnlistedThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from neuraldbg.config import RecordSettings
    from neuraldbg.nouns import Event, Fact, Layout, Step

_JOIN_S = 30.0
"""Seconds that ``close`` waits for a writer that hangs on its disk."""
_LOCK_END_S = 5.0
"""Seconds that ``close`` waits for another program to give up its lock on the run file."""
_MOST_PROBLEMS = 4
"""Different sentences of one run about its writer: a fault that comes back at every write is said once."""


class Recorder:
    """Records a run to ``folder/rank0.ndbg``, or in memory where ``folder`` is None or cannot be written.

    A folder that has a run already gets a second file beside it, ``rank0-2.ndbg``.

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
        self.dropped = 0
        """Steps that were recorded as part of a bin, because the writer did not keep up, or not at all."""
        self.cpu_s = 0.0
        """Seconds of the processor that the writer's thread has taken."""
        self._problems: list[str] = []
        self._remarks: list[str] = []
        self._info = info
        self._settings = settings
        self._closed = False
        self._forked = False
        """True in a forked child's copy: a flag, since asking for the process id costs a system call."""
        self._backlog = Backlog(settings.queue, queue_bytes(settings))
        self._backlog.inform(info)
        self._backlog_lock = threading.RLock()  # a handler of signals may train, or ask, while this thread holds it
        self._db_lock = threading.RLock()
        self._unwritten: Batch | None = None
        tell_children(self)
        with without_size_signal():
            self._store = Store(folder, rank, settings, lambda: self._info)
        self._wake = threading.Event()
        self._stop = False
        self._drain()
        self._thread = UnlistedThread(self._run, "neuraldbg-writer")
        self._alone = not start_thread(self._thread)
        """True if there is no writer's thread: then the training's own writes, when much waits."""
        if self._alone:
            self._remarks.append("the thread that writes the run file could not be started: the training wrote it.")

    @property
    def path(self) -> Path | None:
        """The run file; None while the run is kept in memory only."""
        return self._store.path

    @property
    def problem(self) -> str | None:
        """Sentences on why the run is not, or not wholly, on disk; None if it is."""
        said = [*([self._store.problem] if self._store.problem else []), *self._problems]
        return " Later, ".join(said) or None

    @property
    def remark(self) -> str | None:
        """Sentences on an oddity that cost nothing of the run; None if there was none."""
        return " ".join([*([self._store.remark] if self._store.remark else []), *self._remarks]) or None

    def trouble(self, problem: str) -> None:
        """Add a sentence to ``problem``, once."""
        if problem not in self._problems and len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(problem)

    def put(self, step: Step, layout: Layout, events: Sequence[Event] = ()) -> None:
        """Record a step and the events that it began or changed. Takes microseconds; keeps the arrays it is given."""
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            if not self._backlog.put(step, layout, events):
                self.dropped += 1
            hurry = self._backlog.half_full
        if hurry and self._alone:
            self._drain()
        elif hurry and not self._wake.is_set():
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
        notes = list(self._store.notes)
        coverage = dict(info.coverage)
        if self.dropped:
            steps = f"{self.dropped:,} steps are recorded in bins, or not at all"
            notes.append(f"the writer of the run file did not keep up: {steps}")
            coverage["coarse"] = self.dropped
        if not notes:
            return info
        return replace(info, coverage={**coverage, "notes": [*info.coverage.get("notes", ()), *notes]})

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
        if not self._alone and not self._thread.ended_within(_JOIN_S):
            self.trouble(f"the disk of {self.path} does not answer: the last steps of the run may not be saved.")
            return
        until = clocks.monotonic() + _LOCK_END_S
        self._drain(last=True)
        while self._store.locked and clocks.monotonic() < until:
            clocks.sleep(0.1)
            self._drain(last=True)
        self._drain(at_once=True)
        with self._db_lock, without_size_signal():
            self._store.finish()

    def record(self) -> RunRecord:
        """Return the run as recorded so far, read in the same way as a file is.

        RunFileError only if the file vanished or broke after ``close``.
        """
        if self._forked:
            return RunRecord(info=self._info)
        if not self._closed:
            self._drain(at_once=True)
        with self._db_lock, without_size_signal():
            return self._store.load()

    def _run(self) -> None:
        # Half of the promised time: a step that comes just after a look is written at the next.
        pause = self._settings.flush_s / 2
        try:
            while not self._stop:
                self._wake.wait(pause)
                self._wake.clear()
                self._turn()
                self.cpu_s = clocks.thread_time()
        except BaseException as error:  # noqa: BLE001 (above is the program's sys.unraisablehook alone)
            self._caught("the thread that writes the run file ended, the training writes it from there on", error)
        finally:
            self._alone = not self._stop  # whatever ended the thread early, the training writes from now on

    def _turn(self) -> None:
        """Fetch what others hold back, and write what waits. A fault is told, and the next turn tries again."""
        try:
            if self._pull is not None and not self._stop:
                self._pull()
        except Exception as error:  # noqa: BLE001 (told, and raised under our own tests)
            let_pass(error)
            self._caught("steps that were held back could not be fetched", error)
        self._drain()

    def _drain(self, *, at_once: bool = False, last: bool = False) -> None:
        """Write what waits. Whoever calls, one at a time; a batch is given up only once it is stored.

        ``at_once`` stores it in memory where the file cannot be had at the moment; ``last`` tries to return from there.
        """
        with self._db_lock, without_size_signal():
            self._tend(last=last)
            if self._unwritten is not None:  # what an interrupt left, or a lock keeps
                self._write(self._unwritten, at_once=at_once)
            if self._unwritten is None:
                with self._backlog_lock:
                    self._unwritten = self._backlog.take()
                self._write(self._unwritten, at_once=at_once)

    def _tend(self, *, last: bool) -> None:
        try:
            self._store.tend(at_once=last)
        except Exception as error:  # noqa: BLE001 (as above)
            let_pass(error)
            self._caught("the run file could not be written again", error)

    def _write(self, batch: Batch, *, at_once: bool) -> None:
        try:
            if batch and not self._store.write(batch, at_once=at_once):
                return
        except Exception as error:  # noqa: BLE001 (as above)
            let_pass(error)  # the batch is stored later
            self.dropped += len(batch.steps)
            self._unwritten = None
            self._caught("some steps could not be recorded", error)
        self._unwritten = None
        for misfit in self._store.misfits[:1]:
            self._caught("a fact could not be recorded", ValueError(misfit))

    def _caught(self, what: str, error: BaseException) -> None:
        """Tell of an error of ours: a debugger must not take the training down; in its own tests it must not hide."""
        self.trouble(f"{what} ({type(error).__name__}: {error}).")
        if os.environ.get("NEURALDBG_STRICT") and isinstance(error, Exception):
            raise error

    def in_child(self) -> None:
        """Do nothing more in a forked child. Its connection is never closed there (see run_file.py)."""
        self._forked = True
