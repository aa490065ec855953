"""What Dynamo would compare at each call of a compiled graph only because our hooks are in it: dropped while it traces.

A graph and its conditions in; out go those on our hooks, on what they look at, and on what Dynamo looks at because a
layer has hooks at all: some thirty a layer, each of which touches memory that nothing else does. In their place comes
one, that the watched model is the same object. Our hooks never change, and when they are set or removed all graphs are
made anew (``compiled.forget_compiled``). What the program's own hooks and layers are compared by stays.

Dynamo has no public way to say this. Where its inner workings are others than those known here all conditions stay.
"""

from __future__ import annotations

import importlib
import itertools
import re
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from neuraldbg.capture.guest.module_call import stands_in
from neuraldbg.capture.guest.module_tree import own
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.raised import let_pass, swallowing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OURS = f"__import_{__name__.partition('.')[0]}_dot_"
"""How the names begin by which a graph's conditions find our modules."""
_KNOWN = ("G['__builtins_dict__", "G['__import_torch_")
"""How the names of conditions on those begin."""
_TRACED = str(Path(__file__).with_name("traced_hook.py"))
_CALLER = nn.modules.module.__file__
_OF_CLASS = re.compile(
    r"dict\((?P<owner>.*)\.__dict__\)\["
    r"(?:'_compiled_call_impl'\]|'__call__'\]\.__closure__\[\d+\](?:\.cell_contents(?:\.__code__)?)?)"
)
"""The names of conditions on a class whose ``__call__`` Dynamo looks into: which of two methods it calls, and what a
function in its place holds, but nothing behind that.
"""
_SAMPLES = "samples"
"""What a graph finds of us that may differ from call to call: those that were kept before a graph break."""
_GLOBAL_HOOKS = "._global_"
_CALLS = {"__call__", "_compiled_call_impl", "_call_impl"}
"""What Dynamo makes sure that a module does not override, if it has hooks."""


class _Trace:
    """What was done to the conditions of one graph."""

    def __init__(self) -> None:
        self.looked_at = 0
        self.roots: set[int] = set()


_traces: weakref.WeakKeyDictionary[Any, _Trace] = weakref.WeakKeyDictionary()


def quieten(output: Any, is_root: Callable[[nn.Module], bool]) -> None:
    """Drop conditions of the graph being traced, ``output``, that have come since the last time, with a hook of ours
    as the function that is being traced. ``is_root`` tells the watched model.
    """
    try:
        frames = list(_frames(output.current_tx))
        trace = _traces.setdefault(output.guards, _Trace())
        if _same_root(frames, trace, is_root):
            _drop(output.guards, *_of_hook(frames, output), trace)
    except (AttributeError, ImportError, KeyError, StopIteration, TypeError, ValueError) as error:  # another torch
        let_pass(error)


def _frames(frame: Any) -> Iterator[Any]:
    while frame is not None:
        yield frame
        frame = getattr(frame, "parent", None)


def _same_root(frames: list[Any], trace: _Trace, is_root: Callable[[nn.Module], bool]) -> bool:
    """Make it a condition that the watched model is the one that is being traced. Returns whether it is one."""
    for frame in frames:
        known = frame.symbolic_locals.get("self")
        value, source = getattr(known, "value", None), getattr(known, "source", None)
        if is_a(value, nn.Module) and source is not None and is_root(value):
            if id(value) not in trace.roots:
                guards = importlib.import_module("torch._dynamo.guards")
                guards.install_guard(source.make_guard(guards.GuardBuilder.ID_MATCH))
                trace.roots.add(id(value))
            return True
    return False


def _of_hook(frames: list[Any], output: Any) -> tuple[Callable[[Any], bool], list[Any]]:
    """Return what tells whether a condition is there because of the hook that is being traced; and what conditions may
    have been on since before the hooks of the layers below were traced.
    """
    sources = importlib.import_module("torch._dynamo.source")
    hook, module = next(
        (frame.symbolic_locals["self"], frame.symbolic_locals["module"])
        for frame in frames
        if {"self", "module", "output"} <= frame.symbolic_locals.keys()
    )
    hooks = own(module.value)[hook.source.base.member]
    key = next(key for key, value in hooks.items() if value is hook.value)
    mine = hook.source.base if len(hooks) == 1 else hook.source
    always = sources.AttrSource(module.source, "_forward_hooks_always_called")

    def ours(guard: Any) -> bool:
        source = guard.originating_source
        told = getattr(guard.create_fn, "keywords", {})
        if source == module.source:
            return told.get("attr") in _CALLS
        if source == always or told.get("key") == key:
            return len(hooks) == 1 or told.get("key") == key
        if any(getattr(link, "member", None) == _SAMPLES for link in _links(source)):
            return False
        if _of_ours(guard, output):
            return True
        also = told.get("source_b")  # that two names stand for one object is compared in Python, slowly
        return any(
            link == mine or getattr(link, "global_name", "").startswith(_OURS)
            for link in (*_links(source), *_links(also))
        )

    return ours, [mine, hook.source, module.source, always]


def _of_ours(guard: Any, output: Any) -> bool:
    """Return True if a condition is on what stands in for ``Module.__call__``, or on built-ins and torch's functions
    that only our hooks use, or torch to call them.
    """
    name, stack = guard.name, guard.user_stack
    if (found := _OF_CLASS.fullmatch(name)) is not None:
        return _is_module(found["owner"], output)
    if not stack or not name.startswith(_KNOWN) or _GLOBAL_HOOKS in name:
        return False
    return stack[-1].filename == _CALLER or any(frame.filename == _TRACED for frame in stack)


def _is_module(expression: str, output: Any) -> bool:
    """Return True if an expression of Dynamo's stands for ``nn.Module``, while what we have put there is its
    ``__call__``.
    """
    if not stands_in(vars(nn.Module)["__call__"]):
        return False
    with swallowing():  # of another torch, which calls things by other names
        return eval(expression, {"L": output.local_scope, "G": output.global_scope}) is nn.Module  # noqa: S307 (as Dynamo does)
    return False


def _links(source: Any) -> Iterator[Any]:
    while source is not None:
        yield source
        source = getattr(source, "base", None)


def _drop(guards: Any, ours: Callable[[Any], bool], older: list[Any], trace: _Trace) -> None:
    """Drop what is ours among the latest conditions, which lie in the order in which they came, and older ones."""
    conditions = guards.inner
    found = set(itertools.islice(conditions, trace.looked_at, None))
    for source in older:
        found.update(guards.source_to_guards.get(source, ()))
    for guard in filter(ours, found):
        conditions.discard(guard)
        guards.source_to_guards[guard.originating_source].remove(guard)
    trace.looked_at = len(conditions)
