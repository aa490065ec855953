"""The ending of a program, and the steps to end this process in the same way as without us."""

from __future__ import annotations

import builtins
import contextlib
import linecache
import os
import signal
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuraldbg.errors import EndedByHand, TrainingHalted
from neuraldbg.raised import words_of
from neuraldbg.runner.termination import end_at_exit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType, TracebackType

    from neuraldbg.nouns import Outcome

_PACKAGES = f"{os.sep}site-packages{os.sep}"
"""Part of the path of packages of the user's account, or of another environment on the path."""
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep


@dataclass(frozen=True)
class Ending:
    """The end of a program: by itself, by an exception or by a signal."""

    error: BaseException | None = None
    """Exception of the program's top level, without frames of ours in its traceback. None if there was none."""
    signal: int = 0
    """Number of the signal that is about to end the program, 0 for none."""
    frame: FrameType | None = None
    """Frame of the program that the signal interrupted. None if there was no signal."""

    @property
    def interrupted(self) -> bool:
        """True if the error is KeyboardInterrupt itself, and no subclass of the program's."""
        return type(self.error) is KeyboardInterrupt

    def outcome(self, home: Path | None) -> Outcome:
        """Return the ending as the noun of the run file; paths are shown relative to the folder ``home``."""
        from neuraldbg.nouns import Outcome  # noqa: PLC0415 (imports numpy, which is the program's to import first)

        if self.signal:
            name = signal.Signals(self.signal).name
            return Outcome("interrupted", f"ended by {name}", *_innermost(_stack(self.frame), home))
        try:
            return Outcome(*self._told(home))
        except Exception:  # noqa: BLE001 (the attributes of an exception may be anything)
            return Outcome("raised", type(self.error).__name__)

    def _told(self, home: Path | None) -> tuple[str, ...]:
        """Return kind, message, place and source line of the outcome."""
        error = self.error
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            return "completed", "", ""
        where, text = _users_line(error, home)
        if isinstance(error, KeyboardInterrupt):
            return "interrupted", "interrupted from the keyboard", where, text
        if isinstance(error, EndedByHand):
            return "interrupted", error.reason, where
        if type(error).__name__ == "BdbQuit":  # ``quit`` at a breakpoint() of the program's own
            return "interrupted", "ended in the debugger", where
        if isinstance(error, TrainingHalted):
            return "halted", str(error), where
        return "raised", words_of(error), where, text

    def announce(self) -> int:
        """Print the error to standard error as python does, by the program's own excepthook, and return the status.

        The status of a SystemExit is its own; that of Ctrl-C is 130, though the process then ends by
        ``die_interrupted``.
        """
        error = self.error
        if error is None:
            return 0
        # In the order of python itself: flush, set ``sys.last_*``, call the hook, and report a hook that fails.
        _flush()
        if isinstance(error, SystemExit):
            return _exit_status(error)
        if isinstance(error, EndedByHand):  # a traceback would tell the person what they did
            return 1
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        if sys.version_info >= (3, 12):
            sys.last_exc = error
        try:
            hook = sys.excepthook
        except AttributeError:
            sys.stderr.write("sys.excepthook is missing\n")
            hook = sys.__excepthook__
        try:
            hook(type(error), error, error.__traceback__)
        except SystemExit as leaving:
            return _exit_status(leaving)
        except BaseException as broken:  # noqa: BLE001 (as python: a broken hook is reported, then the error itself)
            _complain("Error in sys.excepthook:", without_our_frames(broken))
            _complain("\nOriginal exception was:", error)
        return 130 if self.interrupted else 1


def die_interrupted() -> None:
    """End by SIGINT as python does after an unhandled KeyboardInterrupt: exit handlers run, then the signal kills.

    Shells and job runners stop a loop or a queue only if the program really died of the signal. Without native code a
    KeyboardInterrupt is raised to the interpreter, which does the same; the hook is silenced, since the error was
    printed already.
    """
    if end_at_exit(signal.SIGINT):
        raise SystemExit(130)
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt


def without_our_frames(error: BaseException) -> BaseException:
    """Remove frames of this package, and of python's import machinery before the first user frame, from an exception's
    traceback and those of its causes, contexts and group members.
    """
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        _TRACEBACK.__set__(one, _users_frames(_TRACEBACK.__get__(one)))
        links = [_CAUSE.__get__(one), _CONTEXT.__get__(one)]
        if _GROUP is not None and isinstance(one, _GROUP):
            links += _GROUP.exceptions.__get__(one)
        waiting += [link for link in links if link is not None]
    return error


# The descriptors of BaseException itself, which a class of the program's may override.
_TRACEBACK, _CAUSE, _CONTEXT = (BaseException.__dict__[f"__{name}__"] for name in ("traceback", "cause", "context"))
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", None)  # from Python 3.11 on


def _users_frames(trace: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_OURS) and (kept or not file.startswith("<frozen ")):
            kept.append(trace)
        trace = trace.tb_next
    following: TracebackType | None = None
    for one in reversed(kept):
        one.tb_next = following
        following = one
    return following


def _users_line(error: BaseException, home: Path | None) -> tuple[str, str]:
    """Return file and line of the innermost frame of the user's own code, and its source; "" if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    found = _innermost(frames, home)
    if not found[0] and isinstance(error, SyntaxError) and error.filename:
        return _innermost([(error.filename, error.lineno or 0)], home)
    return found


def _stack(frame: FrameType | None) -> list[tuple[str, int]]:
    """Return file and line of the program's frames on the stack of ``frame``, outermost first."""
    files = [(one.f_code.co_filename, line) for one, line in traceback.walk_stack(frame)][::-1]
    return [(file, line) for file, line in files if not file.startswith(_OURS)]


def _innermost(frames: Iterable[tuple[str, int]], home: Path | None) -> tuple[str, str]:
    """Return the last of ``frames`` that is the user's own code, as text, and its source line; "" if there is none."""
    libraries = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    own = [(file, line) for file, line in frames if not (file.startswith(("<", *libraries)) or _PACKAGES in file)]
    if not own:
        return "", ""
    file, line = own[-1]
    path = Path(file)
    shown = path.relative_to(home) if home is not None and path.is_relative_to(home) else path
    return f"{shown}:{line}", linecache.getline(file, line).strip()[:160]


def _exit_status(error: SystemExit) -> int:
    """Return the status of a SystemExit. Print a code that is no status, as python does, ignoring errors."""
    try:
        code: object = error.code
    except BaseException:  # noqa: BLE001 (a property of the program's)
        code = error
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    for text in (code, "\n"):
        with contextlib.suppress(BaseException):
            sys.stderr.write(str(text))
    _flush()
    return 1


def _complain(headline: str, error: BaseException) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{headline}\n")
        sys.__excepthook__(type(error), error, error.__traceback__)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 (replaced, broken or closed by the program)
            continue
