"""Processes that a program spawns to train in (``torch.multiprocessing.spawn``): each gets a session of its own.

The function that the program hands to ``spawn`` is wrapped by a picklable object, which starts a session in the new
process before it calls the function. Forked processes are left alone: they hold a copy of the session's own state.
"""

from __future__ import annotations

import sys
import uuid
from functools import wraps
from typing import TYPE_CHECKING, Any

from neuraldbg.ranks import Rank, take_place
from neuraldbg.runner.script import working_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from neuraldbg.runner.script import Program

_MODULE = "torch.multiprocessing.spawn"
_HANDED_ON = ("overhead", "probes", "profile")
"""Options of the session that spawned processes get, too."""


class Spawns:
    """The processes that a program has spawned."""

    def __init__(self) -> None:
        self.count = 0
        """Number of processes of the newest call; 0 if there was none."""
        self._replaced: list[tuple[Any, Any, Any]] = []

    def replace(self, owner: Any, ours: Any, theirs: Any) -> None:
        """Put our ``start_processes`` into a module."""
        owner.start_processes = ours
        self._replaced.append((owner, ours, theirs))

    def restore(self) -> None:
        """Put the program's functions back, unless somebody else has replaced ours."""
        while self._replaced:
            owner, ours, theirs = self._replaced.pop()
            if getattr(owner, "start_processes", None) is ours:
                owner.start_processes = theirs


class Watched:
    """A function to be called in a spawned process, under a session."""

    def __init__(
        self, function: Callable[..., Any], folder: str, world: int, job: str, told: Mapping[str, Any]
    ) -> None:
        self.function, self.folder, self.world, self.job, self.told = function, folder, world, job, dict(told)

    def __call__(self, rank: int, *args: Any) -> Any:
        """Call the function as its process would have done without us."""
        take_place(Rank(rank, self.world, rank, self.world, self.job))
        session = self._session()
        if session is None:
            return self.function(rank, *args)
        error: BaseException | None = None
        try:
            return self.function(rank, *args)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._stop(session, error)

    def _session(self) -> Any:
        """Return a session that has started; None if it cannot: the program runs without it."""
        try:
            from neuraldbg.session import NeuralDbg  # noqa: PLC0415 (in the new process alone)

            session = NeuralDbg(discover=True, out=self.folder, **self.told)
            session.start()
        except Exception as error:  # noqa: BLE001 (a debugger must not break what it watches)
            sys.stderr.write(f"neuraldbg: a spawned process is not watched: {type(error).__name__}: {error}\n")
            return None
        return session

    def _stop(self, session: Any, error: BaseException | None) -> None:
        """Save the run. A process that has not trained, as one that prepares data, leaves no file."""
        from neuraldbg.record import RunName  # noqa: PLC0415 (as above)
        from neuraldbg.runner.ending import Ending  # noqa: PLC0415 (as above)

        try:
            session.stop(Ending(error).outcome(working_folder()))
            file, name = session.file, RunName.of(session.file) if session.file is not None else None
            if error is None and not session.steps and name is not None:
                file.unlink()
                file.with_name(name.beside("diagnosis")).unlink(missing_ok=True)
        except Exception as failed:  # noqa: BLE001 (as above)
            sys.stderr.write(f"neuraldbg: a spawned process was not saved: {type(failed).__name__}: {failed}\n")


def watch_spawned(folder: Path | None, program: Program, options: Mapping[str, Any]) -> Spawns:
    """Have the processes that the program spawns from now on watched, with run files in the same folder."""
    spawns = Spawns()
    module = sys.modules.get(_MODULE)
    started: Any = getattr(module, "start_processes", None)
    if folder is None or module is None or not callable(started):
        return spawns
    told = {name: options[name] for name in _HANDED_ON if name in options}
    told |= {"script": program.target, "argv": program.argv}

    @wraps(started)
    def start_processes(
        fn: Callable[..., Any], args: Any = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
        start_method: str = "spawn", **more: Any,
    ) -> Any:  # fmt: skip
        if nprocs > 1 and start_method != "fork":
            spawns.count = nprocs
            fn = Watched(fn, str(folder), nprocs, uuid.uuid4().hex, told)
        return started(fn, args, nprocs, join, daemon, start_method, **more)

    for owner in (module, sys.modules["torch.multiprocessing"]):
        if getattr(owner, "start_processes", None) is started:
            spawns.replace(owner, start_processes, started)
    return spawns
