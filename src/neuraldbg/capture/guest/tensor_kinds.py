"""Tensor subclasses of the program: which of them are read, and contexts in which their code does not run.

``Tensor.detach(x)`` of a class with a ``__torch_function__``, or while a ``TorchFunctionMode`` is active, runs code of
the program. ``unheard`` switches both off while our own code runs. Classes that it cannot switch off (with a
``__torch_dispatch__``, or an attribute that overrides one of ``Tensor``) are not read.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from neuraldbg.capture.guest.program_objects import bases, kind_name, members, note_closed, package_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
R = TypeVar("R")
_TRUSTED = ("torch", "torchvision")
"""Packages whose tensor classes draw no numbers and count nothing when they are read."""
_UNUSED = frozenset({
    "__annotations__", "__class__", "__class_getitem__", "__deepcopy__", "__delattr__", "__dict__", "__dir__",
    "__doc__", "__format__", "__getstate__", "__init__", "__init_subclass__", "__module__", "__new__", "__reduce__",
    "__reduce_ex__", "__repr__", "__setattr__", "__setstate__", "__str__", "__subclasshook__", "__torch_function__",
    "__weakref__", "clone", "module_load", "new", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros",
    "numpy", "requires_grad_", "share_memory_", "tolist",
})  # fmt: skip
"""Attributes of ``Tensor`` that we never use on a tensor of the program: a copy of it is a plain tensor."""
_READ = frozenset(dir(Tensor)) - _UNUSED | {"__getattr__", "__getattribute__", "__torch_dispatch__"}
_known: dict[int, tuple[type, bool]] = {}
"""Readability of classes, by identity: a class may define its own comparison."""
_CLASSES = 256
_function_off = torch._C.DisableTorchFunction  # noqa: SLF001 (no public name)
_modes: Any = torch._C._len_torch_dispatch_stack  # noqa: SLF001


node_of: Callable[[Tensor], Any] = Tensor.grad_fn.__get__  # type: ignore[union-attr]
"""Return the node that made a tensor, None for a leaf, without running code of the tensor's class."""


def readable(x: Tensor) -> bool:
    """Return True if a tensor can be read without running code of its class, inside of ``unheard``."""
    kind = type(x)
    if kind is Tensor or kind is torch.nn.Parameter:
        return True
    known = _known.get(id(kind))
    if known is None or known[0] is not kind:
        if len(_known) >= _CLASSES:
            _known.clear()
        known = _known[id(kind)] = (kind, _is_readable(kind))
    if not known[1]:
        note_closed(kind)
    return known[1]


def _is_readable(kind: type) -> bool:
    plain = {id(base) for base in bases(Tensor)}
    own = [base for base in bases(kind) if id(base) not in plain and package_of(base) not in _TRUSTED]
    return not any(name in _READ for base in own for name in members(base))


heard: Callable[[], contextlib.AbstractContextManager[Any]]
"""Return a context in which ``__torch_function__`` runs again, for calls back from our own code."""
heard = getattr(torch._C, "_EnableTorchFunction", contextlib.nullcontext)  # noqa: SLF001


def unheard() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which no ``__torch_function__`` and no mode of the program sees our operations."""
    return _without_modes() if _modes() else _function_off()


def silently(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of ours to run in ``unheard``."""

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with unheard():
            return function(*args, **kwargs)

    return alone


def ungraded(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function of ours without recording for autograd, as in ``torch.no_grad``. ``no_grad`` leaves autograd off
    if a time limit of the program raises in its ``__exit__``. Python handles signals after a call, and before the first
    line of a function: neither is between our ``finally`` and the one call in it.
    """
    before = torch.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(False)  # noqa: SLF001 (torch.set_grad_enabled is Python around it)
        return function(*args, **kwargs)
    finally:
        torch._C._set_grad_enabled(before)  # noqa: SLF001


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    before = suspended()
    stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack()  # noqa: SLF001 (no public name)
    _suspended.mode = kind_name(type(stack[-1]))
    try:
        with _disable_current_modes(), _function_off():
            yield
    finally:
        _suspended.mode = before


_suspended = threading.local()


def suspended() -> str:
    """Return the class of the ``TorchDispatchMode`` that our code suspends now, empty if there is none."""
    return getattr(_suspended, "mode", "")
