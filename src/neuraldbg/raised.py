"""The origin of an exception: one of our own code may be swallowed, one of the program passes through.

A signal handler of the program (a time limit by SIGALRM) runs wherever Python happens to be, also inside a function of
ours, and its exception comes out of that function. The same holds for a trace function (``pdb``'s ``quit``) and for an
exception that another thread sends by ``PyThreadState_SetAsyncExc``. In a training with a time limit every few
milliseconds ``except Exception`` in our hooks had swallowed 28 of 60. All functions here cost nothing until an
exception was raised.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import os
import signal
import sys
import sysconfig
import traceback
import weakref
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_PACKAGES = frozenset({"neuraldbg", "torch", "numpy", "triton", "sympy", "rich"})
"""Installed packages that our code calls; none raises an exception class of the program's by itself."""
_STDLIB = tuple({str(Path(path)) + "/" for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))})
_SITE = ("site-packages", "dist-packages")
_RAISES = frozenset({"RAISE_VARARGS", "RERAISE"})
_PAUSES = frozenset(
    {"RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_FORWARD", "LOAD_CONST", "STORE_FAST", "POP_TOP", "NOP"}
)
"""Instructions that raise nothing themselves: Python checks there for signals and for exceptions that other threads
have sent; before 3.11 at nearly every one.
"""
_VARARGS = 0x04
_OURS = str(Path(__file__).parent) + os.sep
_ERRORS = (AssertionError, AttributeError, KeyError, NameError, UnboundLocalError)


class Told(Protocol):
    """The interface of an object that counts swallowed errors of ours."""

    def mishap(self, doing: str) -> None:
        """Count the exception being handled, which our own code raised, by the work that it ended: "reading losses"."""
        ...


_told: weakref.WeakSet[Told] = weakref.WeakSet()


def tell_mishaps(told: Told) -> None:
    """Call ``told.mishap`` for each error of ours that ``let_pass`` swallows, while ``told`` is alive."""
    _told.add(told)


def let_pass(error: BaseException, doing: str = "") -> None:
    """Re-raise the exception being handled if it is the program's. Otherwise swallow it: the caller tries something
    that may fail by rights, such as a call of a copy of the program's model. With ``doing``, the work that it ended, it
    is counted if a statement of our own code raised it.
    """
    if passes(error):
        raise  # noqa: PLE0704 (only called while it is handled)
    if doing and _made_by_us(error):
        for told in list(_told):
            told.mishap(doing)


@contextlib.contextmanager
def swallowing(doing: str = "") -> Iterator[None]:
    """Swallow an exception of the body, unless it is the program's; ``doing`` is as in ``let_pass``."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (``let_pass`` decides)
        let_pass(error, doing)


def _made_by_us(error: BaseException) -> bool:
    """Return True for an exception that a statement of our code raised, or of a class that only our errors have. (An
    exception of torch's native code appears in our frame, too, and is no error of ours.)
    """
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not last.tb_frame.f_code.co_filename.startswith(_OURS):
        return False
    return isinstance(error, _ERRORS) or _instruction(last) in _RAISES


def passes(error: BaseException) -> bool:
    """Return True if an exception that comes out of our code belongs to the program, which must never be swallowed.

    An exception of a method of the program that our code itself has called, such as ``forward`` of a copy of its model,
    is ours: the program has not made that call.
    """
    if not isinstance(error, Exception):
        return True
    handlers = _handlers()
    below: FrameType | None = None
    trace, last = error.__traceback__, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code in handlers or (below is not None and _interrupts(frame, below)):
            return True
        below, last, trace = frame, trace, trace.tb_next
    return last is not None and _sent(error, last)


def _handlers() -> set[CodeType]:
    """Return the code of the signal handlers that are set."""
    return {code for number in signal.valid_signals() for code in _codes(signal.getsignal(number))}


def _codes(handler: Any) -> Iterator[CodeType]:
    while isinstance(handler, (functools.partial, MethodType)):
        handler = handler.func if isinstance(handler, functools.partial) else handler.__func__
    if not isinstance(handler, FunctionType):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004 (an object that is called)
    if isinstance(handler, FunctionType):
        yield handler.__code__


def _interrupts(frame: FrameType, below: FrameType) -> bool:
    """Return True if Python itself has called the function of ``frame`` on top of ``below``: a signal handler gets the
    number of the signal and the interrupted frame, a trace function that frame and the name of an event.
    """
    given = _arguments(frame)
    for place, value in enumerate(given):
        if value is below:
            signalled = place > 0 and isinstance(given[place - 1], int)
            return signalled or (place + 1 < len(given) and isinstance(given[place + 1], str))
    return False


def _arguments(frame: FrameType) -> list[Any]:
    """Return the positional arguments of a frame, as far as they are still in its variables."""
    code, held = frame.f_code, frame.f_locals
    count = code.co_argcount
    found = [held[name] for name in code.co_varnames[:count] if name in held]
    if code.co_flags & _VARARGS:
        rest = held.get(code.co_varnames[count + code.co_kwonlyargcount])
        found += rest if isinstance(rest, tuple) else ()
    return found


def _sent(error: Exception, last: TracebackType) -> bool:
    """Return True if the frame where an exception appeared cannot have raised it: another thread sent it, or a signal
    handler that is written in C raised it.
    """
    instruction = _instruction(last)
    if instruction in _PAUSES:
        return True
    if _familiar(last.tb_frame):  # our code, torch or the standard library
        return not _of_ours(type(error)) or (isinstance(error, TimeoutError) and error.errno is None)
    return instruction not in _RAISES and not _of_ours(type(error))


def _instruction(trace: TracebackType) -> str:
    code = trace.tb_frame.f_code.co_code
    return dis.opname[code[trace.tb_lasti]] if 0 <= trace.tb_lasti < len(code) else ""


def _of_ours(kind: type) -> bool:
    """Return True for a class of exceptions that Python, or a package that our code calls, defines."""
    package = str(kind.__module__).partition(".")[0]
    return package == "builtins" or package in _PACKAGES or package in sys.stdlib_module_names


# -- the text of an exception -------------------------------------------------------------------------------------


def words_of(error: BaseException) -> str:
    """Format an exception as python does, without calling a method of the program's: python itself calls ``__str__``
    once, and a program may count that. A part that only such a method could format is replaced by its class name.
    """
    kind = type(error)
    args: tuple[Any, ...] = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    known = all(type(each) in _PLAIN for each in args)
    if known and not any(_has_words(base) for base in _bases(kind)):
        return "".join(traceback.format_exception_only(kind, error)).strip()
    package = _module(kind)
    name = _name(kind) if package in ("builtins", "__main__") else f"{package}.{_name(kind)}"
    told = ", ".join(str(each) if type(each) in _PLAIN else f"<{_name(type(each))}>" for each in args)
    return f"{name}: {told}" if told else name


_PLAIN = frozenset({str, int, float, bool, bytes, complex, type(None)})
_WORDS = ("__str__", "__repr__", "__getattr__", "__getattribute__", "__notes__")


def _has_words(kind: type) -> bool:
    """Return True if a class of the program's defines a method that formatting would call."""
    held = type.__dict__["__dict__"].__get__(kind)
    if not any(name in held for name in _WORDS):
        return False
    package = _module(kind).partition(".")[0]
    if package == "builtins" or package in sys.stdlib_module_names or package in _PACKAGES:
        return False
    file = getattr(sys.modules.get(package), "__file__", None)
    return not any(each in str(file) for each in _SITE)


def _bases(kind: type) -> tuple[type, ...]:
    found: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return found


def _name(kind: type) -> str:
    return str(type.__dict__["__qualname__"].__get__(kind))


def _module(kind: type) -> str:
    found = type.__dict__["__module__"].__get__(kind)
    return found if type(found) is str else ""


def _familiar(frame: FrameType) -> bool:
    """Return True if a frame belongs to this package, to the standard library or to a package that our code calls."""
    file = frame.f_code.co_filename
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if package in _PACKAGES:
        home = getattr(sys.modules.get(package), "__file__", None)
        return file.startswith("<") or (home is not None and file.startswith(str(Path(home).parent)))
    if package not in sys.stdlib_module_names:
        return False
    return file.startswith("<") or (file.startswith(_STDLIB) and not any(each in file for each in _SITE))
