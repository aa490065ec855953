"""Marks that keep Dynamo from compiling our functions, which run between compiled graphs.

Where a graph breaks, or a function is given up (as where it calls an ``nn.LSTM``), the program goes on in Python, and
Dynamo examines each function that is called. It knows the functions of torch that we wrap, and skips them; it would
compile our wrappers, and with them parts of the program that run in Python without us. A layer of torch's own runs in
Python there, too, unless it has hooks.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from neuraldbg.capture.guest.program_objects import class_member

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F", bound="Callable[..., Any]")

_ROOM = __name__.removesuffix(".guest.dynamo_skip")
_FOLDER = str(Path(__file__).parents[1])
_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_BELOW = (_PACKAGE + "cli" + os.sep, _PACKAGE + "runner" + os.sep)
"""Folders of ``neuraldbg run``, which is below the whole program on the stack."""
_passed_through: dict[int, CodeType] = {}
"""Code of functions that call the program's, by identity: comparing code objects is slow."""
_waiting: dict[int, CodeType] = {}
"""Code of functions that wait for a person, by identity."""


def passed_through(function: F) -> F:
    """Mark a function that calls the program's functions: Dynamo skips it, and compiles those all the same."""
    code = getattr(function, "__code__", None)
    if code is not None and id(code) not in _passed_through:
        _passed_through[id(code)] = code
        _pass_through(code)
    return function


def waits(function: Callable[..., Any]) -> None:
    """Mark a function that waits for a person, or runs what the person typed: it may do so for hours."""
    code = function.__code__
    _waiting[id(code)] = code


def at_work(frame: FrameType | None) -> bool:
    """Return True if a frame, or one that called it, runs code of ours that is not marked by ``passed_through``: it may
    hold a lock, or be about to write what it has read. Code that ``waits`` is called where a question may be answered.
    """
    while frame is not None and not frame.f_code.co_filename.startswith(_BELOW):
        if frame.f_code.co_filename.startswith(_PACKAGE) and id(frame.f_code) not in _passed_through:
            return id(frame.f_code) not in _waiting
        frame = frame.f_back
    return False


def leave_all() -> None:
    """Mark all other functions of ``capture`` as skipped by Dynamo, with all that they call; modules that are imported
    later are called by these. Does not import Dynamo.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(_ROOM):
            codes = _codes(vars(module), name)
            for code in codes:
                codes += [inner for inner in code.co_consts if type(inner) is CodeType]  # nested ones, too: it grows
                if id(code) not in _passed_through:
                    _leave(code)


def wrap_has_hooks(original: Callable[..., bool]) -> Callable[..., bool]:
    """Return a replacement of Dynamo's ``nn_module_has_hooks`` that does not count our hooks."""

    @functools.wraps(original)
    def has_hooks(module: Any, *args: Any, **kwargs: Any) -> bool:
        if not original(module, *args, **kwargs):
            return False
        every = sys.modules["torch._dynamo.utils"].nn_module_get_all_hooks(module, *args, **kwargs)
        return any(class_member(type(hook), "unseen", False) is not True for hook in every)

    return has_hooks


def _codes(names: Mapping[str, Any], module: str) -> list[CodeType]:
    """Return the code of the functions that a module defines, and of those of its classes."""
    found: list[CodeType] = []
    for value in names.values():
        if isinstance(value, type):
            if value.__module__ == module:
                found += _codes(vars(value), module)
            continue
        function = _INSIDE.get(type(value), lambda same: same)(value)
        while isinstance(function, FunctionType):
            if function.__code__.co_filename.startswith(_FOLDER):  # else the function is imported from elsewhere
                found.append(function.__code__)
            function = getattr(function, "__wrapped__", None)
    return found


_INSIDE: dict[type, Callable[[Any], Any]] = {
    staticmethod: lambda method: method.__func__,
    classmethod: lambda method: method.__func__,
    property: lambda read: read.fget,
}


def _leaving(*, below: bool) -> Callable[[CodeType], None]:
    """Return a function that marks code as skipped, and if ``below`` all that the code calls. Dynamo's public way would
    import Dynamo.
    """
    dynamo: Any = getattr(torch._C._dynamo, "eval_frame", None)  # noqa: SLF001
    if not hasattr(dynamo, "_FrameExecStrategy"):  # an unknown torch compiles these functions, once
        return lambda code: None
    action = dynamo._FrameAction  # noqa: SLF001
    strategy = dynamo._FrameExecStrategy(action.SKIP, action.SKIP if below else action.DEFAULT)  # noqa: SLF001
    return lambda code: dynamo.set_code_exec_strategy(code, strategy)


_leave, _pass_through = _leaving(below=True), _leaving(below=False)
