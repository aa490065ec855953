"""The frames at a stop: those of the user's code on the stack, and one in which the names of the stop are variables."""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
import traceback
from keyword import iskeyword
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_RUNNER = str(Path(__file__).parent.parent / "runner" / "script.py")
"""File of the frame in which ``neuraldbg debug`` executes the program."""
_STDLIB = tuple({path + os.sep for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))})
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def own_frames(frames: Sequence[tuple[FrameType, int]]) -> list[tuple[FrameType, int]]:
    """Return the frames of the user's code: not those that started the program, of packages, of Python, or ours."""
    began = [at for at, (frame, _) in enumerate(frames) if frame.f_code.co_filename == _RUNNER]
    return [one for one in frames[began[-1] if began else 0 :] if not _foreign(one[0].f_code.co_filename)]


def own_lines() -> list[list[str]]:
    """Return place, function and source of each line of the user's code that leads here, the innermost last."""
    stack = list(traceback.walk_stack(None))[::-1]
    return [
        [f"{one.filename}:{one.lineno}", one.name, one.line or ""]
        for one in traceback.StackSummary.extract(iter(own_frames(stack)))
    ]


def user_frame() -> FrameType | None:
    """Return the innermost frame of the user's code; None if there is none, as in a thread of autograd."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (no public way returns frames)
    while frame is not None and frame.f_code.co_filename != _RUNNER:
        if not _foreign(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def locals_of(frame: FrameType | None) -> dict[str, Any]:
    """Return the local variables of a frame by name; empty for one of a module."""
    if frame is None or frame.f_locals is frame.f_globals:
        return {}
    return {name: value for name, value in frame.f_locals.items() if name.isidentifier() and not iskeyword(name)}


def bound_at(
    frame: FrameType | None, call: str, names: Sequence[str], title: str, *, goes_on: bool
) -> Callable[..., None]:
    """Return a function with ``names`` as its parameters that executes ``call``, an expression that enters a debugger.

    It looks like one that is written at the current line of ``frame``: a debugger shows the source of the frame in
    which it stops and evaluates expressions with its globals, and that of an IDE passes over frames of installed
    packages ("just my code"). Debuggers that trace stop at the next line: with ``goes_on`` there is one.
    """
    file, line, variables = __file__, 1, globals()
    if frame is not None:
        file, line, variables = frame.f_code.co_filename, frame.f_lineno, frame.f_globals
    tree = ast.parse(f"def stop({', '.join(names)}):\n    {call}\n    return")
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    _move(definition, line)
    if goes_on:
        _move(definition.body[0], line % 2 + 1)  # another line, where no breakpoint of the user's is likely
    outer = compile(tree, file, "exec", dont_inherit=True)
    code = next(one for one in outer.co_consts if isinstance(one, CodeType))
    named: Mapping[str, Any] = {"co_qualname": title} if hasattr(code, "co_qualname") else {}  # from Python 3.11 on
    return FunctionType(code.replace(co_name=title, **named), variables)


def _move(tree: ast.AST, line: int) -> None:
    """Set the line of all parts of a tree."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr, ast.arg)):
            node.lineno = node.end_lineno = line


def _foreign(file: str) -> bool:
    if file.startswith((_PACKAGE, "<frozen")):
        return True
    return file.startswith(_STDLIB) or any(name in file for name in _INSTALLED)
