"""The replacement of ``nn.Module.__call__``, made to be indistinguishable from torch's own function.

Torch's is one frame that calls ``_call_impl``. The replacement is one frame, too, with torch's file and line: a model
may be nested as deeply as without us (with a hook on each of its layers a model of 246 levels ran into Python's limit
at 196), and the tracebacks that the program logs have no frame of ours. It uses no global name, so that it can have
torch's globals, where Python keeps which warnings were shown.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import weakref
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from neuraldbg.capture.guest.dynamo_skip import passed_through
from neuraldbg.capture.guest.guard import TOO_DEEP, collecting_later

if TYPE_CHECKING:
    from collections.abc import Callable


_READING = "reading layers"
_CALLS = ("_compiled_call_impl", "_call_impl")
"""The two methods of which torch's function calls one."""
_made: weakref.WeakKeyDictionary[Any, Callable[..., Any]] = weakref.WeakKeyDictionary()
"""The function that each replacement replaced."""


class Hears(Protocol):
    """The receiver of module calls; ``loop.models.Models`` is the one implementation."""

    inside: bool
    """True during an outermost call."""
    light: Any
    hooks: Any
    switch: Any

    def look(self, module: nn.Module, args: Any, kwargs: Any) -> object:
        """Begin an outermost call in a light step whose sites are read."""

    def begins(self, module: nn.Module, args: Any, kwargs: Any) -> bool:
        """Begin an outermost call that native code has not taken; return False for a model that is not followed."""

    def ends(self, output: Any) -> None:
        """End the outermost call."""

    def broken_off(self) -> None:
        """Drop the state of an outermost call that raised."""


def stand_in_for_call(models: Hears, original: Callable[..., Any]) -> Any:
    """Return the replacement of ``original``, the current ``nn.Module.__call__``."""
    light, told = models.light, models.hooks.direct
    traced, busy = torch.compiler.is_dynamo_compiling, torch.compiler.is_compiling
    asked = (light.glance, models.look, models.begins, models.ends, told.get, traced, busy, id)
    call: Any = (
        _moved(_in_place, original)(models, models.switch, told, models.hooks.tally, (TOO_DEEP, _READING), *asked)
        if _is_torchs(original)
        else _in_front(original, models, light, told, traced, busy)
    )
    if _is_torchs(original):
        call.__code__ = _named(call.__code__, original.__code__)
    functools.update_wrapper(call, original)
    del call.__wrapped__  # torch's own has no __wrapped__
    _made[call] = original
    return call


def stands_in(function: object) -> bool:
    """Return True if a function is a replacement made here."""
    return type(function) is FunctionType and function in _made


def under(function: Any) -> Any:
    """Return the function below all replacements made here; any other value unchanged."""
    while stands_in(function):
        function = _made[function]
    return function


@functools.lru_cache(maxsize=4)
def _named(code: CodeType, like: CodeType) -> CodeType:
    """Return code with the qualified name of other code, which exists as of Python 3.11. Cached: always one object."""
    return code.replace(co_qualname=like.co_qualname) if hasattr(like, "co_qualname") else code


def _is_torchs(call: Callable[..., Any]) -> bool:
    """Return True if a ``Module.__call__`` does no more than call one of two methods."""
    code = getattr(call, "__code__", None)
    return code is not None and code.co_names == _CALLS and call is nn.Module._wrapped_call_impl  # noqa: SLF001


def _in_place(models: Any, switch: Any, told: Any, tally: Any, failure: tuple[str, str], *asked: Any) -> Any:
    (glance, look, begins, ends, direct, traced, busy, number_of), (deep, what) = asked, failure

    def _wrapped_call_impl(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN202
        if traced():
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        begun = False
        if not models.inside and not busy():
            try:
                begun = glance(self, args, kwargs)
                if begun and switch.sighted:
                    look(self, args, kwargs)
                begun = begun or begins(self, args, kwargs)
            except RecursionError:
                begun = False
                tally.first, tally.failed[what] = tally.first or deep, tally.failed.get(what, 0) + 1
        probe = direct(number_of(self)) if told else None  # after the call has begun: that may have set the first hooks
        if begun:
            try:
                models.inside = True
                if probe is not None and probe.arrives is not None:
                    probe.arrives(self, args)
                if self._compiled_call_impl is not None:
                    output = self._compiled_call_impl(*args, **kwargs)
                else:
                    output = self._call_impl(*args, **kwargs)
            except BaseException:
                models.broken_off()
                raise
            finally:
                models.inside = False
            probe = direct(number_of(self))  # once more: the call may have set or removed hooks
        elif probe is None:  # most calls: there may be hundreds of layers, and each nanosecond counts for all
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        else:
            if probe.arrives is not None:
                try:
                    probe.arrives(self, args)
                except RecursionError:
                    if probe.reads:
                        tally.first, tally.failed[what] = tally.first or deep, tally.failed.get(what, 0) + 1
            if self._compiled_call_impl is not None:
                output = self._compiled_call_impl(*args, **kwargs)
            else:
                output = self._call_impl(*args, **kwargs)
        try:
            if probe is not None:
                probe(self, args, output)
            if begun:
                ends(output)
        except RecursionError:
            if begun or probe.reads:
                tally.first, tally.failed[what] = tally.first or deep, tally.failed.get(what, 0) + 1
        return output

    return _wrapped_call_impl


def _in_front(original: Any, models: Any, light: Any, told: Any, traced: Any, is_compiling: Any) -> Any:
    """Return a replacement that calls another tool's replacement of torch's function."""
    direct = told.get

    @passed_through
    def heard(module: nn.Module, args: Any, kwargs: Any) -> Any:
        probe = direct(id(module))
        if probe is not None and probe.arrives is not None:
            probe.arrives(module, args)
        output = original(module, *args, **kwargs)
        probe = direct(id(module))
        if probe is not None:
            probe(module, args, output)
        return output

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # Inside a trace the other tool's function runs alone.
        if traced() or is_compiling():
            return original(module, *args, **kwargs)
        # Only the outermost call is a model call; light steps are first offered to native code.
        begun = False
        if not models.inside:
            begun = light.glance(module, args, kwargs)
            if not begun:
                begun = models.begins(module, args, kwargs)
            elif models.switch.sighted:
                models.look(module, args, kwargs)
        if not begun:
            return heard(module, args, kwargs)
        # The model's own call: an exception passes, and leaves no state behind.
        try:
            models.inside = True
            output = heard(module, args, kwargs)
        except BaseException:
            models.broken_off()
            raise
        finally:
            models.inside = False
        models.ends(output)
        return output

    return call


@functools.lru_cache(maxsize=4)
def _moved(make: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes what ``make`` makes, but with the file, lines and globals of ``original``. Return
    ``make`` if Python has no source of one of them, or a source that differs from the running code: a package may be
    upgraded meanwhile.
    """
    try:
        made = _recompiled(make, original)
    except (OSError, SyntaxError, TypeError, ValueError, AttributeError, LookupError):
        return make
    return made if _shape(made) == _shape(make) else make


def _shape(make: Any) -> tuple[Any, ...]:
    """Return the parts of code that do not depend on its line numbers."""
    inner = next((const for const in make.__code__.co_consts if type(const) is CodeType), make.__code__)
    return inner.co_name, inner.co_names, inner.co_varnames, inner.co_freevars, inner.co_consts


def _recompiled(make: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    tree, theirs = _source(make), _source(original)
    home: FunctionType = original  # type: ignore[assignment]
    first = home.__code__.co_firstlineno
    places = {name: _place(theirs, name, first - theirs.lineno) for name in _CALLS}
    inner = [node for node in tree.body if isinstance(node, ast.FunctionDef)][0]  # noqa: RUF015 (IndexError is caught)
    _settle(inner, [*places["_call_impl"]])
    for node in ast.walk(inner):
        if any(_calls(each, _CALLS[0]) for each in ast.iter_child_nodes(node)):
            for each in ast.iter_child_nodes(node):
                if _calls(each, _CALLS[0]):
                    _settle(each, [*places[_CALLS[0]]])
    inner.lineno = first
    module = ast.Module([tree], [])
    found: dict[str, Any] = {}
    exec(compile(module, home.__code__.co_filename, "exec", dont_inherit=True), home.__globals__, found)  # noqa: S102
    made: Callable[..., Any] = found[make.__name__]
    return made


def _source(function: Any) -> ast.FunctionDef:
    """Return a function as a syntax tree, in the columns of its file and without annotations."""
    text = inspect.getsource(function)
    indented = len(text) - len(text.lstrip())
    with collecting_later():  # else Python 3.11 may switch threads meanwhile, and refuses two that parse: SystemError
        tree = ast.parse(textwrap.dedent(text)).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError(function)
    for node in ast.walk(tree):
        if hasattr(node, "col_offset"):
            node.col_offset += indented
            node.end_col_offset += indented  # type: ignore[attr-defined]
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
    return tree


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _place(tree: ast.AST, name: str, lines: int) -> tuple[int, int, int, int]:
    """Return the position of a method's call: first and last line, first and last column."""
    at: Any = [node for node in ast.walk(tree) if _calls(node, name)][0]  # noqa: RUF015
    return at.lineno + lines, at.end_lineno + lines, at.col_offset, at.end_col_offset


def _settle(tree: ast.AST, place: list[int]) -> None:
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = place  # type: ignore[attr-defined]
