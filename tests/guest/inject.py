"""Puts a fault into a function of ours, in a process that has not begun its training.

A function is known by its place, ``capture/layers/layer_hook.py:42 read``. Its code is replaced, so that the fault is
there whoever holds the function; that of a function inside another stands among the constants of the outer one.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pkgutil
import sys
import threading
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STAGES = ("capture", "record", "detect")
_MARK = "the fault"
_functions: dict[str, list[types.FunctionType]] = {}
_inner: dict[str, tuple[str, tuple[int, ...]]] = {}
"""Place of a function inside another -> place of the outermost one, and the way there through constants."""
_root = ""


def index() -> None:
    """Find all functions; to be called once, before the processes are forked."""
    global _root  # noqa: PLW0603
    import neuraldbg

    _root = str(Path(neuraldbg.__file__).parent) + os.sep
    for stage in STAGES:
        package = importlib.import_module(f"neuraldbg.{stage}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):  # of another kind of device
                importlib.import_module(found.name)
    for one in gc.get_objects():
        if type(one) is types.FunctionType and (place := place_of(one.__code__)) is not None:
            _functions.setdefault(place, []).append(one)
    for place, functions in _functions.items():
        for way, code in _inside(functions[0].__code__, ()):
            _inner.setdefault(place_of(code) or "", (place, way))
    for place in _functions:
        _inner.pop(place, None)


def place_of(code: types.CodeType) -> str | None:
    """Return where a function of these stages stands, None for any other and for what is no function."""
    name = code.co_filename
    if not name.startswith(_root) or not name[len(_root) :].startswith(STAGES) or code.co_name.startswith("<"):
        return None
    return f"{name[len(_root) :]}:{code.co_firstlineno} {code.co_name}"


def _inside(code: types.CodeType, way: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], types.CodeType]]:
    for i, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType) and place_of(constant) is not None:
            yield (*way, i), constant
            yield from _inside(constant, (*way, i))


# ---------------------------------------------------------------- what a child does before its program


def observe(path: str) -> None:
    """Write all functions that exist and those that are called to a file, when the process ends."""
    called: set[types.CodeType] = set()

    def profile(frame: types.FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    def write() -> None:
        sys.setprofile(None)
        places = sorted({place for code in called if (place := place_of(code)) is not None})
        Path(path).write_text("\n".join(places), "utf-8")

    atexit.register(write)
    threading.setprofile(profile)
    sys.setprofile(profile)


def places() -> list[str]:
    """Return all places that a fault can be put into.

    Left out are functions that take the place of one of torch's: they call the ``original``, so a fault of theirs and
    one of the program cannot be told apart. All that they call besides is here. So is what the guard is made of.
    """
    found = []
    for place, functions in _functions.items():
        found.append((place, functions[0].__code__))
        found += [(place_of(code) or "", code) for _, code in _inside(functions[0].__code__, ())]
    return sorted({place for place, code in found if not _stands_in(code) and code.co_name != "tally"})


def _stands_in(code: types.CodeType) -> bool:
    return "original" in (*code.co_freevars, *code.co_varnames[: code.co_argcount])


def write_places(path: str) -> None:
    """Write all places to a file."""
    Path(path).write_text("\n".join(places()), "utf-8")


def faults(folder: str, kind: str, *places: str) -> None:
    """Put a fault into each of these functions. Files in the folder say of each whether it was called, and whether its
    exception came to a tally.
    """
    os.mkdir(folder)
    for number, place in enumerate(places):
        fault(place, kind, f"{folder}/fired-{number}")
    from neuraldbg.capture.guest.guard import Tally

    caught = Tally.caught

    def noted(tally: Tally, doing: str) -> None:
        error = sys.exc_info()[1]
        while error is not None:
            for number, place in enumerate(places):
                if str(error) == _message(place):
                    Path(f"{folder}/told-{number}").touch()
            error = error.__cause__ or error.__context__
        caught(tally, doing)

    Tally.caught = noted


def _message(place: str) -> str:
    return f"injected into {place}"


def fault(place: str, kind: str, path: str) -> None:
    """Put a fault into a function: the name of an exception to raise, or ``None`` to return; the file says that it
    was called.
    """
    fired = False

    def fire(*_: object, **__: object) -> None:
        nonlocal fired
        if not fired:
            fired = True
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        if kind != "None":
            raise {"RuntimeError": RuntimeError, "MemoryError": MemoryError}[kind](_message(place))

    # What it raises, a function of ours has raised.
    fire.__code__ = fire.__code__.replace(co_filename=_root + place.partition(":")[0])
    if place in _functions:
        for function in _functions[place]:
            function.__code__ = _faulty(function.__code__, fire)
        return
    outer, way = _inner[place]
    for function in _functions[outer]:
        function.__code__ = _changed(function.__code__, way, fire)


def _faulty(code: types.CodeType, fire: Callable[..., None]) -> types.CodeType:
    """Return code that calls the fault, whatever it is called with, and closes over the same variables."""
    free = ", ".join(code.co_freevars)
    text = f"def outer({free}):\n def inner(*args, **kwargs):\n"
    text += f"  if 0: return ({free},)\n" if free else ""
    text += f"  return {_MARK!r}()\n return inner\n"
    names: dict[str, Any] = {}
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(text, names)
    inner = names["outer"](*code.co_freevars).__code__
    return inner.replace(
        co_consts=tuple(fire if constant == _MARK else constant for constant in inner.co_consts),
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
        co_name=code.co_name,
    )


def _changed(code: types.CodeType, way: tuple[int, ...], fire: Callable[..., None]) -> types.CodeType:
    if not way:
        return _faulty(code, fire)
    constants = list(code.co_consts)
    constants[way[0]] = _changed(constants[way[0]], way[1:], fire)
    return code.replace(co_consts=tuple(constants))
