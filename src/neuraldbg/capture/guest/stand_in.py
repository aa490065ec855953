"""Callables that stand for functions of torch: a function and a generator function in, a callable out.

``around`` is called with the arguments and runs up to its ``yield``; the function itself runs; then the generator goes
on, and is closed instead if the function has raised, so that ``finally`` blocks run. A generator that ends without a
``yield`` has nothing to do after the call. ``yield args, kwargs`` has the function called with those.

Between its halves the generator is on no stack, and native code calls the function: the caller that torch and Python
look up (``torch.jit.script``, ``warnings.warn``, ``inspect.stack``, a traceback) is the program. Without the kernel
there is one frame of ours.
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
    """Return a callable that stands for a function: it has its attributes, its name and its place in a class."""
    if native is None:
        return _in_python(original, around)
    kind = native.BuiltinStandIn if type(original) is BuiltinFunctionType else native.StandIn
    return kind(original, around)


def below(value: Any) -> Any:
    """Return the function under all of ours that stand for it; any other value as it is."""
    while native is not None and type(value) in (native.StandIn, native.BuiltinStandIn):
        value = native.original(value)
    return value


def _in_python(original: Callable[..., Any], around: Callable[..., Around]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            visit = around(*args, **kwargs)
        except TypeError:  # called with the wrong arguments: the original says so
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
