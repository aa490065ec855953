"""The recorder: steps in on the training thread, written by one background thread, a RunRecord out.

On the training thread: ``put`` -> Backlog. On the writer thread, or on a thread that flushes: Backlog -> Store -> the
run file, or a database in memory if there is none.
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
from neuraldbg.record.signal_masks import without_size_signal
from neuraldbg.record.store import Store
from neuraldbg.record.write_queue import Backlog, Batch
from neuraldbg.unlisted_thread import UnlistedThread, start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from neuraldbg.config import RecordSettings
    from neuraldbg.nouns import Event, Fact, Layout, Step

_JOIN_S = 30.0
"""Seconds that ``close`` waits for a writer whose disk does not respond."""
_LOCK_END_S = 5.0
"""Seconds that ``close`` waits for another program to give up its lock on the run file."""
_MOST_PROBLEMS = 4
"""Sentences about the writer that a run keeps at most; the same sentence is kept once, if it fails at every write."""


class Recorder:
    """Records a run to ``folder/rank0.ndbg``, or in memory if ``folder`` is None or cannot be written.

    In a folder that has a run already, the file is ``rank0-2.ndbg``.

    No method raises into the training. In a forked child (a DataLoader worker) all do nothing. The writer thread calls
    ``pull`` before it takes steps: a caller that collects steps can ``put`` them then.
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
        """Number of steps that were recorded as part of a bin, because the writer did not keep up, or not at all."""
        self.cpu_s = 0.0
        """CPU time of the writer thread, seconds."""
        self._problems: list[str] = []
        self._remarks: list[str] = []
        self._info = info
        self._settings = settings
        self._closed = False
        self._forked = False
        """True in a forked child: a flag, since ``os.getpid`` costs a system call."""
        self._backlog = Backlog(settings.queue, queue_bytes(settings))
        self._backlog.inform(info)
        self._backlog_lock = threading.RLock()  # a signal handler may train or diagnose while its thread holds the lock
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
        """True if there is no writer thread: the training thread then writes when the queue is half full."""
        if self._alone:
            self._remarks.append("the thread that writes the run file could not be started: the training wrote it.")

    @property
    def path(self) -> Path | None:
        """Path of the run file. None while the run is in memory only."""
        return self._store.path

    @property
    def problem(self) -> str | None:
        """Sentences that say why the run is not, or not wholly, on disk. None if it is."""
        said = [*([self._store.problem] if self._store.problem else []), *self._problems]
        return " Later, ".join(said) or None

    @property
    def remark(self) -> str | None:
        """Sentences about an irregularity by which nothing was lost. None if there was none."""
        return " ".join([*([self._store.remark] if self._store.remark else []), *self._remarks]) or None

    def trouble(self, problem: str) -> None:
        """Add a sentence to ``problem``, once."""
        if problem not in self._problems and len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(problem)

    def put(self, step: Step, layout: Layout, events: Sequence[Event] = ()) -> None:
        """Queue a step with the events that it began or changed. Takes microseconds; the arrays are not copied."""
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

    def amend(self, index: int, scalars: Mapping[str, float], before: Mapping[str, float] | None = None) -> None:
        """Queue scalars for a step that was put before, such as a metric that the program logs after the step.
        ``before`` are those of them that the step has already, as it was put or amended.
        """
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            self._backlog.amend(index, scalars, before or {})

    def tell(self, events: Sequence[Event]) -> None:
        """Queue newer versions of events. A lasting event is passed again only now and then."""
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            self._backlog.tell(events)

    def note(self, facts: Sequence[Fact]) -> None:
        """Queue facts that belong to no single step."""
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            self._backlog.note(facts)

    def know(self, layout: Layout) -> None:
        """Queue the layers of a run without any step, which are otherwise stored with the steps."""
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            self._backlog.know(layout)

    def update_info(self, info: RunInfo) -> None:
        """Queue new information about the run as a whole, such as its outcome. Call this before ``close``."""
        self._info = self._noted(info)
        if self._closed or self._forked:
            return
        with self._backlog_lock:
            self._backlog.inform(self._info)

    def _noted(self, info: RunInfo) -> RunInfo:
        """Add to the coverage that steps were recorded in bins: a diagnosis must not look sharper than its record."""
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
        """Write the queue, and return when it is stored."""
        if not self._closed and not self._forked:
            self._drain()

    def close(self) -> None:
        """Write the queue, stop the writer and finish the file. ``record`` still works. A second call does nothing."""
        if self._closed or self._forked:
            return
        self._closed = True
        self._stop = True
        self._wake.set()
        if not self._alone and not self._thread.ended_within(_JOIN_S):
            self.trouble(f"the disk of {self.path} does not answer: the last steps of the run may not be saved.")
            return
        # The lock of another program may go soon: then the run ends in its own file, not in one under another name.
        until = clocks.monotonic() + _LOCK_END_S
        self._drain(last=True)
        while self._store.locked and clocks.monotonic() < until:
            clocks.sleep(0.1)
            self._drain(last=True)
        self._drain(at_once=True)
        with self._db_lock, without_size_signal():
            self._store.finish()

    def record(self) -> RunRecord:
        """Return the run as recorded so far, read by the same code as a file.

        Raises RunFileError only if the file vanished or was damaged after ``close``.
        """
        if self._forked:
            return RunRecord(info=self._info)
        if not self._closed:
            self._drain(at_once=True)
        with self._db_lock, without_size_signal():
            return self._store.load()

    def _run(self) -> None:
        # Half of ``flush_s``: a step that is put just after one turn is written at the next.
        pause = self._settings.flush_s / 2
        try:
            while not self._stop:
                self._wake.wait(pause)
                self._wake.clear()
                self._turn()
                self.cpu_s = clocks.thread_time()
        except BaseException as error:  # noqa: BLE001 (the only caller left is the program's sys.unraisablehook)
            self._caught("the thread that writes the run file ended, the training writes it from there on", error)
        finally:
            self._alone = not self._stop  # whatever ended the thread early, the training writes from now on

    def _turn(self) -> None:
        """Pull collected steps, and write the queue. An error is noted, and the next turn tries again."""
        try:
            if self._pull is not None and not self._stop:
                self._pull()
        except Exception as error:  # noqa: BLE001 (told, and raised under our own tests)
            let_pass(error)
            self._caught("steps that were held back could not be fetched", error)
        self._drain()

    def _drain(self, *, at_once: bool = False, last: bool = False) -> None:
        """Write the queue, one thread at a time. A batch is kept until it is stored.

        ``at_once`` stores it in memory if the file is not available now; ``last`` tries to return from memory.
        """
        with self._db_lock, without_size_signal():
            self._tend(last=last)
            if self._unwritten is not None:  # a batch that an interrupt left, or that waits for a lock
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
        """Note an error of ours. It is raised only under our own tests: a debugger must not end the training."""
        self.trouble(f"{what} ({type(error).__name__}: {error}).")
        if os.environ.get("NEURALDBG_STRICT") and isinstance(error, Exception):
            raise error

    def in_child(self) -> None:
        """Turn the recorder off in a forked child. Its connection is never closed there (see run_file.py)."""
        self._forked = True
