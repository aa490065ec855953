"""Wrappers of torch functions: a function and a generator function in, a callable out.

``around`` is called with the arguments and runs up to its ``yield``; the function itself runs; then the generator is
resumed, or closed if the function has raised, so that its ``finally`` blocks run. A generator that ends without a
``yield`` has nothing to do after the call. ``yield args, kwargs`` calls the function with those instead.

While the function runs the generator is on no stack, and native code makes the call: the caller that torch and Python
find (``torch.jit.script``, ``warnings.warn``, ``inspect.stack``, a traceback) is the program. Without native code one
frame of ours is on the stack.
"""

from __future__ import annotations

import contextlib
import functools
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.guest.dynamo_skip import passed_through
from neuraldbg.capture.guest.native import native

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeAlias

    Around: TypeAlias = Generator[Any, Any, None]
    """Gives nothing, or other arguments; is sent the value that was returned."""


def stand_in(original: Callable[..., Any], around: Callable[..., Around]) -> Any:
    """Return a wrapper of a function with the function's attributes, name and binding behaviour in a class."""
    if native is None:
        return in_python(original, around)
    kind = native.BuiltinStandIn if type(original) is BuiltinFunctionType else native.StandIn
    return kind(original, around)


def below(value: Any) -> Any:
    """Return the function below all our wrappers; any other value unchanged."""
    while native is not None and type(value) in (native.StandIn, native.BuiltinStandIn):
        value = native.original(value)
    return value


def in_python(original: Callable[..., Any], around: Callable[..., Around]) -> Callable[..., Any]:
    """Return a stand-in that is a function of Python, for where there is no native code."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            visit = around(*args, **kwargs)
        except TypeError:  # wrong arguments: the original raises the right error
            return original(*args, **kwargs)
        try:
            given = visit.send(None)
        except StopIteration:
            return original(*args, **kwargs)
        try:
            value = original(*args, **kwargs) if given is None else original(*given[0], **given[1])
        except BaseException:
            visit.close()
            raise
        with contextlib.suppress(StopIteration):
            visit.send(value)
        return value

    return passed_through(call)
