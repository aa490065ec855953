"""The feed of the dashboard: a run file, a run folder or a folder of runs, read as they grow and diagnosed repeatedly.

Two threads do all the work, one that reads and one that diagnoses and compares; the page gets their last results. Only
the runs that the page requested last are followed; of the others only info and scalars are read. Those that ended
without a diagnosis, since they were killed, are judged once. No file outside of the folder that the user named is read,
whatever links are in it.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from neuraldbg.dashboard.feed import Entry, Moment
from neuraldbg.dashboard.run_entry import Judged, entry_of, judged_before
from neuraldbg.dashboard.run_pairs import Pair
from neuraldbg.errors import RunFileError, RunNotFound
from neuraldbg.explain import diagnose
from neuraldbg.nouns import Diagnosis, RunInfo
from neuraldbg.record.follow import Follower, killed, look
from neuraldbg.record.reader import read_file, read_scalars
from neuraldbg.record.run_names import RunName, run_files, run_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.record.follow import Look

FOLLOWED = 4
"""Runs that are followed at once at most; each may take as much memory as its run file."""
COMPARED = 4
"""Comparisons that are kept at most."""
FIRST_S = 0.5
"""Seconds that the first request for a run waits for its first reading, and that for two runs for their comparison."""
SCAN_S = 2.0
"""Seconds between two scans of the folder."""
GLANCES_S = 0.25
"""Seconds of a scan for runs that changed; the rest are read in the next scan."""
SHARE = 5
"""Times as long as it worked that a thread rests: it takes a sixth of a core at most."""
UNREAD = Diagnosis("inconclusive", "The run is being read")
WAITS = Diagnosis("inconclusive", "The run waits for its first training step")


@dataclass
class _Known:
    """A run file that was found in the folder, with its state."""

    file: Path
    key: str
    label: str
    refused: str = ""
    """Sentence that says why the file must not be read; "" if it may."""
    failed: str = ""
    """Sentence on an internal error in the last reading; "" if there was none."""
    look: Look = ()
    """State of the file when its entry was last read (see ``follow.look``)."""
    entry: Entry | None = None
    """Entry of the run. None before the first reading."""
    judged: Judged = field(default_factory=Judged)
    """Verdict that this process found while the run was not followed; empty if there is none."""
    judged_at: Look | None = None
    """State of the file at that diagnosis. None if there was none."""


@dataclass
class _Followed:
    """A run that the page requested, and that is read as it grows."""

    follower: Follower
    moment: Moment
    ready: threading.Event = field(default_factory=threading.Event)
    """Set once the run was diagnosed, there is nothing to diagnose, or a request has waited for FIRST_S."""
    due: float = 0.0
    """Monotonic time before which the run is not diagnosed again."""
    judged: object = None
    """Record of the newest diagnosis. None before the first."""
    row: tuple[Moment, Entry] | None = None
    """Newest entry, with the moment that it was made of. None before the first."""


class RunFeed:
    """A Feed of a run file, a run folder, or a folder of runs.

    ``begins`` is True for a run folder that is about to be created. Raises RunNotFound if there is no such file or
    folder otherwise. A folder may be empty: its first run is shown as soon as it begins.
    """

    def __init__(self, path: Path, *, pace_s: float = 0.5, begins: bool = False) -> None:
        self._path = path.resolve()
        self._pace_s = pace_s
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._followed: dict[str, _Followed] = {}
        """Followed runs by key, the last requested at the end."""
        self._pairs: dict[tuple[str, str], Pair] = {}
        """Compared pairs by their keys, the last requested at the end."""
        self._versions = itertools.count(1)
        self._spare = 0.0
        """Monotonic time before which no run that is not followed is judged."""
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._unjudged = threading.Event()
        if not begins:
            self._check()
        self._begins = begins
        self._scan()
        self._threads = [
            threading.Thread(target=work, name=f"neuraldbg-{name}", daemon=True)
            for name, work in (("reads", self._read_on), ("judges", self._judge_on))
        ]

    def start(self) -> None:
        """Start the threads, which read the newest run first."""
        newest = next(iter(self.runs()), None)
        if newest is not None:
            self._follow(newest.key)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads, and wait for their end."""
        self._stop.set()
        self._wake.set()
        self._unjudged.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def runs(self) -> tuple[Entry, ...]:
        """Return the runs, newest first."""
        with self._lock:
            entries = [self._entry(known) for known in self._known.values() if known.entry or known.refused]
        return tuple(sorted(entries, key=lambda entry: -entry.started))

    def moment(self, key: str) -> Moment:
        """Return a run as it was last read. Raises KeyError for a key that is not in ``runs``."""
        followed = self._follow(key)
        followed.ready.wait(FIRST_S)
        followed.ready.set()
        return followed.moment

    def key_of(self, file: str) -> str:
        """Return the key of the run in a file of the folder that is shown."""
        path = self._path / file
        return _text(_key(self._path.name, RunName.of(path) or RunName(), path))

    def compare(self, key: str, other: str) -> Comparison | None:
        """Return the last comparison of two runs, None before the first. Raises KeyError as ``moment`` does."""
        self._follow(other)
        self._follow(key)
        with self._lock:
            pair = self._pairs.pop((key, other), None) or Pair((key, other))
            self._pairs[key, other] = pair
            while len(self._pairs) > COMPARED:
                del self._pairs[next(iter(self._pairs))]
            entries = [self._entry(self._known[name]) for name in (key, other)]
        pair.wanted = True
        pair.refuse(entries)
        self._unjudged.set()
        if pair.comparison is None:
            pair.ready.wait(FIRST_S)
            pair.ready.set()
        return pair.comparison

    # ------------------------------------------------------------ finding runs

    @property
    def following(self) -> int:
        """Number of runs that are followed."""
        with self._lock:
            return len(self._followed)

    def _check(self) -> None:
        if not self._path.exists():
            hint = "Name a run folder or a folder of runs; `neuraldbg run train.py` records one."
            raise RunNotFound(f"there is no run at {self._path}: no such file or folder. {hint}")

    def _scan(self) -> None:
        """Find runs, and read the entries of those that changed."""
        try:
            found = {known.key: known for known in self._find()}
        except OSError:
            return  # the folder cannot be listed now: known runs stay, and each shows its own problem
        with self._lock:
            for key in self._known.keys() - found.keys():
                if key in self._followed:
                    self._known[key].refused = "The run was deleted: what is shown was read before."
                else:
                    del self._known[key]
            for key, known in found.items():
                old = self._known.setdefault(key, known)
                old.refused, old.label = known.refused, known.label
            waiting = list(self._known.values())
        # New runs first, then the newest: a folder of many runs takes several scans.
        until = time.monotonic() + GLANCES_S
        for known in sorted(waiting, key=lambda known: (known.entry is not None, -_changed(known.file))):
            if not known.refused and (known.entry is None or known.key not in self._followed):
                self._glance(known)
            if time.monotonic() > until:
                return

    def _find(self) -> Iterator[_Known]:
        root = self._path
        if root.is_file():
            named = root.parent.name if root.name == str(RunName()) else root.name
            yield _Known(root, _text(named), _text(named))
            return
        folders = run_folders(root) if root.is_dir() else []
        if not folders and self._begins:
            yield _Known(root / "rank0.ndbg", _text(root.name), _text(root.name))
        for folder in folders:
            base = root.name if folder == root else folder.relative_to(root).as_posix()
            files = run_files(folder)
            several = len({name.rank for name in files}) > 1
            for name, file in files.items():
                label = f"{base} rank {name.rank}" if several else base
                label += f" ({name.number})" if name.number > 1 else ""
                key = _key(base, name, file)
                yield _Known(file, _text(key), _text(label), _refusal(file, root))

    def _glance(self, known: _Known) -> None:
        entry, now = Entry(known.key, known.label, 0, "running"), look(known.file)
        if known.entry is not None and now == known.look:
            return
        if now:
            try:
                entry = entry_of(entry, read_scalars(known.file), judged_before(known.file, self._path))
            except RunFileError as error:
                entry = replace(entry, state="unreadable", problem=str(error))
            except Exception as error:  # noqa: BLE001 (an error with one run must not hide the others)
                entry = replace(entry, state="unreadable", problem=_internal(error))
        known.refused = _refusal(known.file, self._path)  # checked again: a link may have replaced the file meanwhile
        if not known.refused:
            known.look, known.entry = now, entry

    def _entry(self, known: _Known) -> Entry:
        """Return the newest entry of a run; of a followed one, that of its last reading."""
        entry, followed = known.entry or Entry(known.key, known.label, 0, ""), self._followed.get(known.key)
        if known.refused or known.failed:
            return replace(entry, state="unreadable", problem=known.refused or known.failed)
        if followed is not None:
            moment, problem = followed.moment, followed.follower.problem
            if _begun(moment):
                entry = _row(followed, moment, entry)
            if problem:
                return replace(entry, state="unreadable", problem=problem)
        if not entry.verdict and known.judged_at == known.look:
            found = known.judged
            entry = replace(entry, verdict=found.verdict, cause=found.cause, confidence=found.confidence)
        return replace(entry, state="killed") if entry.state == "running" and killed(known.file) else entry

    # ------------------------------------------------------------ reading

    def _follow(self, key: str) -> _Followed:
        with self._lock:
            known = self._known[key]
            followed = self._followed.pop(key, None)
            if followed is None:
                follower = Follower(known.file)
                followed = _Followed(follower, Moment(follower.record, UNREAD, next(self._versions), 0))
                self._wake.set()
            self._followed[key] = followed
            while len(self._followed) > FOLLOWED:
                del self._followed[next(iter(self._followed))]
        return followed

    def _latest(self) -> list[tuple[_Known, _Followed]]:
        """Return the followed runs, the last requested first."""
        with self._lock:
            return [(self._known[key], followed) for key, followed in reversed(self._followed.items())]

    def _read_on(self) -> None:
        scan = 0.0
        while not self._stop.is_set():
            begin = time.monotonic()
            self._wake.clear()
            for known, followed in self._latest():
                try:
                    self._read(known, followed)
                except Exception as error:  # noqa: BLE001 (the other runs must still be read)
                    known.failed = _internal(error)
                    followed.ready.set()
            if time.monotonic() >= scan:
                # Errors with a run are caught for each run; if the folder cannot be searched now, known runs stay.
                with suppress(Exception):
                    self._scan()
                scan = time.monotonic() + SCAN_S
                self._unjudged.set()  # a run may have been killed, or have come there without a diagnosis
            self._wake.wait(max(self._pace_s, SHARE * (time.monotonic() - begin)))

    def _read(self, known: _Known, followed: _Followed) -> None:
        """Read the new part of a run."""
        known.refused = known.refused or _refusal(known.file, self._path)
        if not known.refused:
            news = followed.follower.poll()
            # Checked again: a link may have replaced the file meanwhile, and was then read.
            known.refused = _refusal(known.file, self._path)
            if known.refused:  # the new reading is dropped, or it would be shown when the link is gone
                followed.follower = Follower(known.file, followed.moment.record)
            elif news:
                self._tell(followed, record=followed.follower.record)
        known.failed = ""
        if known.refused or followed.follower.problem or not _begun(followed.moment):
            followed.ready.set()

    def _tell(self, followed: _Followed, **change: object) -> None:
        with self._lock:
            followed.moment = replace(followed.moment, version=next(self._versions), **change)  # type: ignore[arg-type]
        self._unjudged.set()

    # ------------------------------------------------------------ judging

    def _judge_on(self) -> None:
        while not self._stop.is_set():
            self._unjudged.clear()
            # A first diagnosis or comparison is due at time 0; the sort is stable, so diagnoses come first.
            waiting = sorted([*self._unjudged_runs(), *self._uncompared_pairs()], key=itemgetter(0))
            waiting = waiting or list(self._never_judged())
            if not waiting:
                self._unjudged.wait()
                continue
            due, work = waiting[0]
            if (pause := due - time.monotonic()) > 0:
                self._unjudged.wait(pause)
            else:
                work()

    def _unjudged_runs(self) -> Iterator[tuple[float, Callable[[], None]]]:
        """Yield due time and function for the diagnosis of each run that changed."""
        for _, followed in self._latest():
            if followed.moment.record is not followed.judged and _begun(followed.moment):
                yield followed.due, partial(self._judge, followed)

    def _never_judged(self) -> Iterator[tuple[float, Callable[[], None]]]:
        """Yield due time and function for the diagnosis of one run that ended without one, and that is not followed."""
        with self._lock:
            ended = [
                known
                for known in self._known.values()
                if known.entry is not None
                and not (known.refused or known.failed or known.entry.problem or known.entry.verdict)
                and known.key not in self._followed
                and known.judged_at != known.look
            ]
        for known in ended:
            if known.entry is not None and (known.entry.state != "running" or killed(known.file)):
                yield self._spare, partial(self._judge_unfollowed, known)
                return

    def _judge_unfollowed(self, known: _Known) -> None:
        begin, seen, found = time.monotonic(), known.look, Judged("inconclusive")
        try:
            record = read_file(known.file)
            if not _refusal(known.file, self._path):  # checked again: a link may have replaced the file meanwhile
                found = Judged.of(diagnose(record))
        except Exception:  # noqa: BLE001 (of a strange file: the other runs must still be judged)
            found = Judged("inconclusive")
        known.judged, known.judged_at = found, seen
        self._spare = time.monotonic() + max(self._pace_s, SHARE * (time.monotonic() - begin))

    def _uncompared_pairs(self) -> Iterator[tuple[float, Callable[[], None]]]:
        """Yield due time and function for the comparison of each pair with a run that changed."""
        with self._lock:
            pairs = [
                (pair, [self._known[key].label for key in pair.keys], [self._followed[key] for key in pair.keys])
                for pair in self._pairs.values()
                if pair.wanted and all(key in self._followed for key in pair.keys)
            ]
        for pair, names, (one, other) in pairs:
            judged = one.judged is not None and other.judged is not None
            if judged and pair.versions != (one.moment.version, other.moment.version):
                yield pair.due, partial(self._compare, pair, names, one.moment, other.moment)

    def _judge(self, followed: _Followed) -> None:
        record, begin = followed.moment.record, time.monotonic()
        try:
            early = record.steps == 0 and record.info.outcome.kind == "running"
            diagnosis = WAITS if early else diagnose(record)
        except Exception as error:  # noqa: BLE001 (of a strange record; the other runs must still be diagnosed)
            diagnosis = Diagnosis("inconclusive", f"The run could not be judged ({type(error).__name__}: {error})")
        took = time.monotonic() - begin
        followed.judged, followed.due = record, time.monotonic() + max(self._pace_s, SHARE * took)
        self._tell(followed, diagnosis=diagnosis, judged=record.steps)
        followed.ready.set()

    def _compare(self, pair: Pair, names: list[str], one: Moment, other: Moment) -> None:
        begin = time.monotonic()
        pair.make(one, other, (names[0], names[1]))
        pair.due = time.monotonic() + max(self._pace_s, SHARE * (time.monotonic() - begin))


def _key(base: str, name: RunName, file: Path) -> str:
    return base if name.first else f"{base}/{file.name}"


def _begun(moment: Moment) -> bool:
    """Return True if there is anything to diagnose."""
    return moment.record.info != RunInfo() or moment.record.steps > 0


def _row(followed: _Followed, moment: Moment, entry: Entry) -> Entry:
    """Return the entry of a followed run, made once for each of its moments."""
    if followed.row is None or followed.row[0] is not moment:
        judged = Judged(entry.verdict, entry.cause, entry.confidence)
        judged = judged if moment.diagnosis is UNREAD else Judged.of(moment.diagnosis)
        followed.row = moment, entry_of(entry, moment.record, judged)
    return followed.row[1]


def _internal(error: Exception) -> str:
    """Return a sentence for an error of ours, which is not the fault of the file."""
    return f"It was not read for an internal error of NeuralDBG ({type(error).__name__}: {error})"


def _refusal(file: Path, root: Path) -> str:
    """Return the reason why a run file must not be read; "" if it may. Links in a folder may come from anybody."""
    try:
        inside = file.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):  # missing, or a cycle of links
        return "It is a link that leads nowhere." if file.is_symlink() else ""
    if not inside:
        return "It is a link that leads out of the folder that was named: open its target by its own name."
    return "" if file.is_file() else "It is no file."


def _changed(file: Path) -> float:
    with suppress(OSError):
        return file.stat().st_mtime
    return 0.0


def _text(name: str) -> str:
    """Return a file's name with bytes that are no UTF-8 escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
