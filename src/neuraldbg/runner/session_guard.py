"""The session over a program: started when the program imports torch, stopped when the program ends.

The session is a guest: an error of it becomes a line in ``problems``, never an error of the program.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from neuraldbg.raised import passes, words_of
from neuraldbg.runner.import_hook import when_imported
from neuraldbg.runner.script import working_folder
from neuraldbg.runner.spawned import watch_spawned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import FrameType

    from neuraldbg.nouns import Diagnosis, Event, Outcome, RunRecord, Step
    from neuraldbg.nouns.profile import Profile
    from neuraldbg.runner.ending import Ending
    from neuraldbg.runner.script import Program
    from neuraldbg.runner.shadowed_modules import Shadowed
    from neuraldbg.runner.spawned import Spawns

    OnStep = Callable[[Step, tuple[Event, ...]], None]


class Session(Protocol):
    """The interface of a session, as the command line uses it."""

    @property
    def file(self) -> Path | None:
        """Path of the run file. None if nothing could be written."""

    @property
    def problem(self) -> str | None:
        """Sentence that says why the run, or a part of it, could not be written. None if it was."""

    @property
    def remark(self) -> str | None:
        """Sentence about an irregularity by which nothing was lost. None if there was none."""

    def start(self) -> object:
        """Attach to the program."""

    def stop(self, outcome: Outcome) -> object:
        """Detach, and write the rest of the run."""

    def diagnose(self) -> Diagnosis:
        """Return the diagnosis of the run."""

    def profile(self) -> Profile:
        """Return the profile of the run."""

    def record(self) -> RunRecord:
        """Return everything that was recorded, as arrays over time."""

    def busy(self, frame: FrameType | None) -> bool:
        """Return True if code of the session runs in a frame, or in one that called it."""


class MakeSession(Protocol):
    """The type of functions that build a session; the default is ``torch_session``."""

    def __call__(
        self, *, out: Path | None, script: str, argv: tuple[str, ...], on_step: OnStep | None, **options: Any
    ) -> Session:
        """Return a session that has not started. ``options`` are keywords of NeuralDbg."""


class NothingToWatch(Exception):
    """Raised instead of beginning a session in which nothing can happen."""


def torch_session(
    *, out: Path | None, script: str, argv: tuple[str, ...], on_step: OnStep | None, **options: Any
) -> Session:
    """Return a NeuralDbg session, which finds models, optimizers, losses and steps by itself. Raises NothingToWatch if
    the program has not imported torch: importing it now would take longer than most such programs.
    """
    if "torch" not in sys.modules:
        raise NothingToWatch
    # Not from the package, which suspends Python's collector meanwhile: the collection that all these imports have made
    # due would fall into the first steps.
    from neuraldbg.session import NeuralDbg  # noqa: PLC0415 (imports torch)

    session: Session = NeuralDbg(discover=True, out=out, script=script, argv=argv, on_step=on_step, **options)
    return session


class Watch:
    """One program under one session, with the problems of the session."""

    def __init__(
        self,
        program: Program,
        folder: Path | None,
        on_step: OnStep | None,
        make_session: MakeSession = torch_session,
        *,
        options: Mapping[str, Any] | None = None,
        shadowed: Shadowed | None = None,
    ) -> None:
        self.program = program
        self.folder = folder
        self.on_step = on_step
        self.make_session = functools.partial(make_session, **(options or {}))
        self.present: Callable[[], AbstractContextManager[None]] = nullcontext if shadowed is None else shadowed.present
        """Returns a context in which imports find our modules, even if the program's folder has modules of the same
        names."""
        self.session: Session | None = None
        self.options: Mapping[str, Any] = options or {}
        self.spawns: Spawns | None = None
        """The processes that the program spawns to train in; None before the session has started."""
        self.problems: list[str] = []
        self.unwatched = False
        """True if the program ended without importing torch: there is no session, run file or diagnosis."""
        self.home = working_folder()
        self._process = os.getpid()
        self._starting = False

    def arm(self) -> None:
        """Start the session as soon as the program has imported torch."""
        self._disarm = when_imported("torch", self._start)

    @property
    def ours(self) -> bool:
        """False in a child that the program forked: its ending is not that of the run."""
        return os.getpid() == self._process

    def busy(self, frame: FrameType | None) -> bool:
        """Return True if code of the session runs in a frame: it must not be stopped then."""
        return self._starting or (self.session is not None and self.session.busy(frame))

    @property
    def file(self) -> Path | None:
        """Path of the run file. None if there is none."""
        return self.session.file if self.session is not None else None

    def finish(self, ending: Ending) -> Diagnosis | None:
        """Stop the session, and return the diagnosis; None if that failed (see ``problems``)."""
        self._disarm()
        # Without torch, or with a broken one, the session cannot start: each case has a sentence of its own.
        if self.session is None and not self.problems and _half_imported("torch"):  # a second try would fail
            self.problems.append("the import of torch did not finish: nothing was recorded")
        if self.session is None and not self.problems and working_folder() is None:
            # In a deleted working directory oneMKL ends a process that imports torch.
            self.problems.append("the working directory was deleted: nothing was recorded")
        if self.session is None and not self.problems:
            self._start()
        if self.session is None:
            return None
        if self.spawns is not None:
            self.spawns.restore()
        try:
            with self.present():
                self.session.stop(ending.outcome(self.home))
                diagnosis = self.session.diagnose()
                self._ask_how_it_was_saved(self.session)
        except Exception as error:  # noqa: BLE001 (the program must end in its own way)
            self._fail("the diagnosis failed", error)
            return None
        return diagnosis

    def _ask_how_it_was_saved(self, session: Session) -> None:
        if session.problem:
            much = "was not saved" if session.file is None else "was not wholly saved"
            self.problems.append(f"the run {much}: {session.problem}")
        if session.remark:
            self.problems.append(session.remark)

    def _start(self) -> None:
        self._starting = True
        try:
            with self.present():
                session = self.make_session(
                    out=self.folder, script=self.program.target, argv=self.program.argv, on_step=self.on_step
                )
                session.start()
        except NothingToWatch:
            self.unwatched = True
        except BaseException as error:  # we run inside the program's `import torch`
            if not isinstance(error, Exception) or passes(error):  # Ctrl-C, or a time limit of the program's
                self.problems.append("watching was interrupted as it began: nothing was recorded")
                raise
            self._fail("watching could not start, the program runs without it", error)
        else:
            self.session = session
            self.spawns = watch_spawned(self.folder, self.program, self.options)
        finally:
            self._starting = False

    def _fail(self, what: str, error: Exception) -> None:
        # Not `extract_tb`, which opens the files: the program may have replaced functions that it calls.
        place = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)][-1:]
        where = "".join(f" ({file.replace(os.sep, '/').rpartition('/')[2]}:{line})" for file, line in place)
        try:
            words = words_of(error)
        except Exception:  # noqa: BLE001 (likewise)
            words = type(error).__name__
        self.problems.append(f"{what}: {words}{where}")


def _half_imported(package: str) -> bool:
    """Return True if the import of a package was interrupted or failed, which leaves parts of it in ``sys.modules``."""
    return package not in sys.modules and any(name.startswith(f"{package}.") for name in list(sys.modules))
