"""Weak references to modules and tensors of the program.

A model dies when the program drops it, as it would without us; only names and numbers of it are kept for the diagnosis.
So nothing here, nor a plan of native code, keeps a module, a parameter or an optimizer alive beyond the call in which
it is used.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.program_objects import is_a

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CallSeen: TypeAlias = "tuple[Any, weakref.ref[nn.Module], tuple[Any, ...], dict[str, Any]]"
"""A call in a light step: model, module, positional and named arguments."""
_fix = torch._C.TensorBase._fix_weakref  # type: ignore[attr-defined] # noqa: SLF001 (as torch.utils.weak: autograd alone may hold the tensor)
GONE = torch.empty(0, dtype=torch.float32, device="cpu")
"""Returned for a tensor that has died: no elements, no gradient, and ``requires_grad`` False."""


class TensorRef(weakref.ref[Tensor]):
    """A weak reference to a tensor. ``key`` is the tensor's identity, which another tensor may have after its death."""

    __slots__ = ("key",)

    key: int

    def __init__(self, tensor: Tensor, gone: Callable[[weakref.ref[Tensor]], None] | None = None) -> None:
        """Refer to a tensor; ``gone`` is called when the tensor dies."""
        super().__init__(tensor, gone)  # type: ignore[call-arg]
        self.key = id(tensor)


def without_ours(original: Any) -> Any:
    """Return a replacement of the module ``weakref`` in ``torch.utils``. ``swap_tensors`` refuses tensors with weak
    references, since it cannot know which object these are to follow. Ours follow the object, and are hidden from it.
    """
    seen = ModuleType(original.__name__, original.__doc__)
    vars(seen).update(vars(original))

    def getweakrefs(x: Any) -> list[Any]:
        return [ref for ref in original.getweakrefs(x) if type(ref) is not TensorRef]

    seen.getweakrefs = getweakrefs  # type: ignore[attr-defined]
    return seen


def dead_reference(key: int) -> TensorRef:
    """Return a dead reference with the identity of a tensor that has died."""
    ref = TensorRef(torch.empty(0, dtype=torch.float32, device="cpu"))
    ref.key = key
    return ref


def named(ref: weakref.ref[Tensor]) -> Tensor:
    """Return the tensor of a reference, ``GONE`` if it has died."""
    found = ref()
    if found is None:
        return GONE
    _fix(found)
    return found


class Modules:
    """The living layers of watched models by path, as a dict. ``gone`` is called with the identity of a dead one."""

    def __init__(self, gone: Callable[[int], object] | None = None) -> None:
        self._refs: dict[str, _ModuleRef] = {}
        self._gone = gone
        self.changes = 0
        """Number of entries added or removed so far, dead ones among them."""
        mine = weakref.ref(self)

        def died(ref: weakref.ref[nn.Module]) -> None:
            held = mine()
            if held is not None and type(ref) is _ModuleRef:
                held.died(ref)

        self._told = died

    def died(self, ref: _ModuleRef) -> None:
        # Runs at any point, in whatever thread drops a module: it removes one entry, and does no more.
        if self._refs.get(ref.path) is ref:
            self._refs.pop(ref.path, None)
        self.changes += 1
        if self._gone is not None:
            self._gone(ref.key)

    def __setitem__(self, path: str, module: nn.Module) -> None:
        ref = _ModuleRef(module, self._told)
        ref.path, ref.key = path, id(module)
        self._refs[path] = ref
        self.changes += 1

    def __delitem__(self, path: str) -> None:
        self._refs.pop(path, None)
        self.changes += 1

    def __getitem__(self, path: str) -> nn.Module:
        found = self.get(path)
        if found is None:
            raise KeyError(path)
        return found

    def get(self, path: str) -> nn.Module | None:
        """Return a layer, None if there is none or it has died."""
        ref = self._refs.get(path)
        return ref() if ref is not None else None

    def items(self) -> list[tuple[str, nn.Module]]:
        """Return the living layers with their paths, in the order in which they were added."""
        return [(path, module) for path in list(self._refs) if (module := self.get(path)) is not None]

    def values(self) -> list[nn.Module]:
        """Return the living layers."""
        return [module for _, module in self.items()]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._refs))

    def __contains__(self, path: object) -> bool:
        return path in self._refs

    def __len__(self) -> int:
        return len(self._refs)


class _ModuleRef(weakref.ref[nn.Module]):
    __slots__ = ("key", "path")

    path: str
    key: int


def call_of(model: object, module: nn.Module, args: Any, kwargs: Any) -> CallSeen:
    """Return a record of a call in a light step, from which the call can be handled later if its loss is unusual:
    model, module and arguments, by weak references where possible.
    """
    if native is not None:
        return native.call(model, module, args, kwargs)  # type: ignore[no-any-return]
    return model, weakref.ref(module), tuple(map(_weakly, args)), {key: _weakly(x) for key, x in kwargs.items()}


def revived(seen: CallSeen) -> tuple[Any, nn.Module, tuple[Any, ...], dict[str, Any]] | None:
    """Return the recorded call, None if the program has dropped the module or an argument."""
    model, root, args, kwargs = seen
    module, given = root(), [_alive(x) for x in (*args, *kwargs.values())]
    if module is None or any(x is _DEAD for x in given):
        return None
    return model, module, tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :], strict=True))


def _weakly(x: object) -> object:
    try:
        return weakref.ref(x)
    except TypeError:  # a number, a list
        return x


def _alive(x: Any) -> Any:
    if type(x) is not weakref.ref:
        return x
    found: Any = x()
    if found is None:
        return _DEAD
    return named(x) if is_a(found, Tensor) else found


_DEAD = object()
