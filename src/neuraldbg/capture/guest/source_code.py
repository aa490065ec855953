"""The code of the user's functions that a training step uses, found by name from those that run now.

Nothing of the program is run: functions are looked up in the dictionaries of modules and classes.
"""

from __future__ import annotations

import linecache
import sys
from itertools import islice
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader

from neuraldbg.capture.guest.frame_variables import variables_of
from neuraldbg.capture.guest.program_objects import attributes, bases, is_a, members, package_of
from neuraldbg.capture.guest.user_code import Place, foreign

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from types import FrameType

_DEPTH, _FRAMES = 2, 200
"""Calls from the running function to one whose code is read, and frames that are searched for it."""
_CALLERS = 6
"""Running functions of the user's whose code is read: the one that trains, and those that called it."""
_FUNCTIONS, _LINES, _LONGEST = 24, 400, 160
"""Largest numbers of functions and of lines that are read, and of characters of a line."""
_NAMES = 400
"""Largest number of names of one function that are looked up."""
_PARTS = 32
"""Largest number of parts of a data loader that are opened: datasets, transforms, samplers."""
_SAMPLES = ("__getitem__", "__getitems__", "__iter__", "__call__", "forward")
"""Methods by which a dataset, a transform, a sampler or a collate function makes a batch."""
_LOADERS = (DataLoader,)
_NO_PARTS = (type, ModuleType, Tensor)
_NOT_OWN = (None, "builtins", "torch.nn.modules.module")
"""Modules of the classes that nearly every object derives from."""


def step_code(seen: set[CodeType]) -> dict[str, list[Place]]:
    """Return the lines of the user's functions that run now, the innermost first, and of those that they name.

    The keys are "code of F" for the innermost function and those that it names, and "code above F" for those that
    called it, and the others that they name. Comments and blank lines are left out. ``seen`` holds the functions that
    were returned before, and grows: a function that is given to a running one later is found then.
    """
    if len(seen) >= _FUNCTIONS:
        return {}
    found: dict[str, list[Place]] = {}
    lines = 0
    frames = _own_frames(sys._getframe(1))  # noqa: SLF001
    for number, code in [(number, code) for number, frame in enumerate(frames) for code in _named(frame)]:
        if code in seen:
            continue
        if len(seen) >= _FUNCTIONS or lines >= _LINES:
            break
        seen.add(code)
        read = _lines(code)[: _LINES - lines]
        lines += len(read)
        if read:
            found.setdefault(f"code {'above' if number else 'of'} {_name(code)}", []).extend(read)
    return found


def _name(code: CodeType) -> str:
    """Return the name of a function, with that of its class where Python knows it (from 3.11 on)."""
    if code.co_name == "<module>":
        return "the script"
    return str(getattr(code, "co_qualname", code.co_name)).rpartition("<locals>.")[2]


def _own_frames(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of the user's functions, the innermost first."""
    found: list[FrameType] = []
    for _ in range(_FRAMES):
        if frame is None or len(found) == _CALLERS:
            break
        if not foreign(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


def _named(frame: FrameType) -> Iterator[CodeType]:
    """Yield the running code, and that of the user's functions which it names, those nearest to it first."""
    yield frame.f_code
    local = {} if frame.f_code.co_name == "<module>" else dict(variables_of(frame))
    level = list(_functions(frame.f_code, frame.f_globals, local))
    del local  # the variables may be large, and a generator waits
    known = {frame.f_code}
    for _ in range(_DEPTH):
        following: list[FunctionType] = []
        for function in level:
            if function.__code__ in known:
                continue
            known.add(function.__code__)
            yield function.__code__
            following += _functions(function.__code__, function.__globals__, {})
        level = following


def _functions(code: CodeType, scope: dict[str, object], local: dict[str, object]) -> Iterator[FunctionType]:
    """Yield the user's functions that a code names: globals, locals, and methods of objects and classes among them."""
    names = dict.fromkeys(name for one in _nested(code) for name in (*one.co_names, *one.co_varnames, *one.co_freevars))
    wanted = [*list(names)[:_NAMES], "forward"]
    for name in list(names)[:_NAMES]:
        value = local.get(name, scope.get(name))
        if type(value) is FunctionType:  # of a class that has a __class__ of its own isinstance would run code
            if not foreign(value.__code__.co_filename):
                yield value
            continue
        kind: Any = value if issubclass(type(value), type) else type(value)
        yield from _methods(kind, wanted)
        if kind is type(value):
            yield from _of_data(value, names)


def _methods(kind: type, wanted: Iterable[str]) -> Iterator[FunctionType]:
    """Yield the user's functions among the members of a class and of those that it derives from."""
    for base in bases(kind):
        own = members(base)
        if own.get("__module__") in _NOT_OWN:
            continue
        for wish in wanted:
            method = own.get(wish)
            if type(method) is FunctionType and not foreign(method.__code__.co_filename):
                yield method


def _of_data(value: object, names: Container[str]) -> Iterator[FunctionType]:
    """Yield the user's functions that make the samples of a data loader: those of its dataset, of the transforms that
    this holds, of its samplers and its collate function. The loader is the value, or an attribute that is named.
    """
    loaders = [value, *(held for name, held in list(attributes(value).items())[:_NAMES] if name in names)]
    queue = [part for loader in loaders if is_a(loader, _LOADERS) for part in _inside(loader)]
    known: set[int] = set()
    while queue and len(known) < _PARTS:
        part = queue.pop(0)
        if id(part) in known:
            continue
        known.add(id(part))
        if type(part) is FunctionType:
            if not foreign(part.__code__.co_filename):
                yield part
            continue
        yield from _methods(type(part), _SAMPLES)
        queue += _inside(part)


def _inside(part: object) -> Iterator[object]:
    """Yield what a part of a data loader holds that may have a share in its samples: functions and objects."""
    for held in list(attributes(part).values())[:_NAMES]:
        for one in islice(held, _PARTS) if type(held) in (list, tuple) else (held,):
            if type(one) is FunctionType or (package_of(type(one)) != "builtins" and not is_a(one, _NO_PARTS)):
                yield one


def _nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and those of the comprehensions and lambdas in it, but not of the functions and classes."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType) and const.co_name.startswith("<"):
            yield from _nested(const)


def _lines(code: CodeType) -> list[Place]:
    """Return the lines on which code begins, in their order and with their indentation."""
    numbers = sorted({line for one in _nested(code) for *_, line in one.co_lines() if line})
    texts = ((number, linecache.getline(code.co_filename, number).expandtabs().rstrip()) for number in numbers)
    return [Place(code.co_filename, number, text[:_LONGEST]) for number, text in texts if text]
