"""The lines of the user's code that create the layers of a model.

Read from the source of the model's classes: ``self.fc1 = nn.Linear(...)``, also inside ``nn.Sequential`` and
``nn.ModuleList``. A layer whose creation is not written out, or not certain, has no line.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from neuraldbg.capture.guest.module_tree import children
from neuraldbg.capture.guest.program_objects import kind_name, name_of
from neuraldbg.capture.guest.source_trace import Layers, Source
from neuraldbg.capture.guest.user_code import is_users

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable

    from torch import nn

    from neuraldbg.capture.guest.user_code import Place

_MOST = 1000
"""Layers of a model that are searched for."""


def layer_lines(root: nn.Module, sources: Callable[[str], Source], caller: str) -> dict[str, Place]:
    """Return the lines that create the layers below a module, by path. ``caller`` is the file that calls the model."""
    found: dict[str, Place] = {}
    written = None
    if not _class_of(root, sources):
        kinds = [name_of(child) for _, child in children(root)]
        whole = Layers(sources(caller)).built(kinds) if kinds else None
        written = (sources(caller), whole) if whole is not None else None
    waiting: list[tuple[str, nn.Module, tuple[Source, ast.expr] | None]] = [("", root, written)]
    while waiting and len(found) < _MOST:
        path, module, given = waiting.pop()
        for name, child in children(module):
            at = f"{path}.{name}" if path else name
            made = _creation(module, name, given, sources)
            if made is not None:
                found[at] = made[0].place(made[1])
            waiting.append((at, child, made))
    return found


def _creation(
    module: nn.Module, name: str, given: tuple[Source, ast.expr] | None, sources: Callable[[str], Source]
) -> tuple[Source, ast.expr] | None:
    """Return the expression that creates a child of a module, with its file; None if it is not certain."""
    for kind, source in _class_of(module, sources):
        made = Layers(source).attribute(kind, name)
        if made is not None:
            return source, made
    if given is not None and name.isdigit():
        made = Layers.item(given[1], int(name))
        return (given[0], made) if made is not None else None
    return None


def _class_of(module: nn.Module, sources: Callable[[str], Source]) -> list[tuple[str, Source]]:
    """Return the classes of a module that are the user's, by name, each with its file."""
    found = []
    for kind in type.__dict__["__mro__"].__get__(type(module)):
        members = type.__dict__["__dict__"].__get__(kind)
        for name in ("__init__", "forward"):
            function = members.get(name)
            if type(function) is types.FunctionType and is_users(function.__code__.co_filename):
                found.append((kind_name(kind), sources(function.__code__.co_filename)))
                break
    return found
