"""The guards of a compiled graph that exist only because of our hooks, dropped while Dynamo traces.

A graph and its guards in; those on our hooks, on what the hooks use, and those that Dynamo adds because a layer has
hooks at all are removed: some thirty a layer, each of which touches memory that no other code does. One guard takes
their place, that the watched model is the same object. Our hooks never change, and when they are set or removed all
graphs are compiled again (``recompile.forget_compiled``). The guards on the program's own hooks and layers stay.

Dynamo has no public interface for this. With a Dynamo whose internals are unknown here all guards stay.
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
"""Prefix of the names by which a graph's guards find our modules."""
_KNOWN = ("G['__builtins_dict__", "G['__import_torch_")
"""Prefixes of the names of guards on built-ins and torch's modules."""
_TRACED = str(Path(__file__).with_name("traced_hook.py"))
_CALLER = nn.modules.module.__file__
_OF_CLASS = re.compile(
    r"dict\((?P<owner>.*)\.__dict__\)\["
    r"(?:'_compiled_call_impl'\]|'__call__'\]\.__closure__\[\d+\](?:\.cell_contents(?:\.__code__)?)?)"
)
"""Names of guards on a class whose ``__call__`` Dynamo examines: which of two methods it calls, and the closure of a
function in its place, but nothing behind that."""
_SAMPLES = "samples"
"""The one attribute of ours that may differ from call to call: samples kept before a graph break."""
_GLOBAL_HOOKS = "._global_"
_CALLS = {"__call__", "_compiled_call_impl", "_call_impl"}
"""Attributes that Dynamo guards against overriding in a module with hooks."""


class _Trace:
    """The changes made to the guards of one graph."""

    def __init__(self) -> None:
        self.looked_at = 0
        self.roots: set[int] = set()


_traces: weakref.WeakKeyDictionary[Any, _Trace] = weakref.WeakKeyDictionary()


def quieten(output: Any, is_root: Callable[[nn.Module], bool]) -> None:
    """Drop guards of the graph being traced, ``output``, that were added since the last call, while the traced function
    is a hook of ours. ``is_root`` returns True for the watched model.
    """
    try:
        frames = list(traced_frames(output.current_tx))
        trace = _traces.setdefault(output.guards, _Trace())
        if _same_root(frames, trace, is_root):
            _drop(output.guards, *_of_hook(frames, output), trace)
    except (AttributeError, ImportError, KeyError, StopIteration, TypeError, ValueError) as error:  # another torch
        let_pass(error)


def traced_frames(frame: Any) -> Iterator[Any]:
    """Yield a frame that is traced, and those that called it."""
    while frame is not None:
        yield frame
        frame = getattr(frame, "parent", None)


def _same_root(frames: list[Any], trace: _Trace, is_root: Callable[[nn.Module], bool]) -> bool:
    """Guard that the watched model is the one being traced. Return False if no frame is in a watched model."""
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
    """Return a predicate for guards that exist because of the hook being traced, and the sources of older guards that
    may be among them: those that predate the hooks of the layers below.
    """
    # Frames of our traced hooks have these three locals; the innermost is the hook being traced.
    sources = importlib.import_module("torch._dynamo.source")
    hook, module = next(
        (frame.symbolic_locals["self"], frame.symbolic_locals["module"])
        for frame in frames
        if {"self", "module", "output"} <= frame.symbolic_locals.keys()
    )
    # If the dictionary has no other hook, guards on the dictionary itself are ours, too.
    hooks = own(module.value)[hook.source.base.member]
    key = next(key for key, value in hooks.items() if value is hook.value)
    mine = hook.source.base if len(hooks) == 1 else hook.source
    always = sources.AttrSource(module.source, "_forward_hooks_always_called")

    # Guards on other hooks of the module must stay.
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
        also = told.get("source_b")  # a guard that two names are one object is checked in Python, slowly
        return any(
            link == mine or getattr(link, "global_name", "").startswith(_OURS)
            for link in (*_links(source), *_links(also))
        )

    return ours, [mine, hook.source, module.source, always]


def _of_ours(guard: Any, output: Any) -> bool:
    """Return True if a guard is on our replacement of ``Module.__call__``, or on built-ins and functions of torch that
    only our hooks use, or that torch uses to call hooks.
    """
    name, stack = guard.name, guard.user_stack
    if (found := _OF_CLASS.fullmatch(name)) is not None:
        return _is_module(found["owner"], output)
    if not stack or not name.startswith(_KNOWN) or _GLOBAL_HOOKS in name:
        return False
    return stack[-1].filename == _CALLER or any(frame.filename == _TRACED for frame in stack)


def _is_module(expression: str, output: Any) -> bool:
    """Return True if a Dynamo expression evaluates to ``nn.Module``, while its ``__call__`` is our replacement."""
    if not stands_in(vars(nn.Module)["__call__"]):
        return False
    with swallowing():  # another version of torch uses other names
        return eval(expression, {"L": output.local_scope, "G": output.global_scope}) is nn.Module  # noqa: S307 (as Dynamo does)
    return False


def _links(source: Any) -> Iterator[Any]:
    while source is not None:
        yield source
        source = getattr(source, "base", None)


def _drop(guards: Any, ours: Callable[[Any], bool], older: list[Any], trace: _Trace) -> None:
    """Drop our guards among the latest, which are in the order in which they were added, and among older ones."""
    conditions = guards.inner
    found = set(itertools.islice(conditions, trace.looked_at, None))
    for source in older:
        found.update(guards.source_to_guards.get(source, ()))
    for guard in filter(ours, found):
        conditions.discard(guard)
        guards.source_to_guards[guard.originating_source].remove(guard)
    trace.looked_at = len(conditions)
