"""A copy of a model for experiments: a model in, a copy that shares no data with it out, or the reason why there is
none.

A copy must be safe to call: its forward may draw from no generator of the program, print nothing, and write to nothing
that the program sees. A model for which that cannot be shown is refused (``Unfit``): an experiment that does not run
does no harm. No method of the model runs while it is copied.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from neuraldbg.capture.experiments.deep_copy import COPIES, HOOKS, copied, of_torch
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import modules, own, registered, set_training
from neuraldbg.capture.guest.own_code import not_its_own, torch_is_heard
from neuraldbg.capture.guest.program_objects import bases, class_member, is_a, kind_name, members, name_of, package_of
from neuraldbg.capture.guest.purity import TRUSTED, Unfit, check_class, trusted
from neuraldbg.capture.layers.layer_hook import inert

if TYPE_CHECKING:
    from collections.abc import Iterator

ELEMENTS = 32_000_000
"""Parameters and buffers of a model that is copied, at most: 128 MB in 32-bit numbers, copied in about 0.1 s."""
_ENTRIES = ("forward", "train", "eval", "_call_impl", "_wrapped_call_impl", "_slow_forward")
"""Methods that a call of a copy may run, beside all that Python itself may call."""
_UNCALLED = frozenset({"__init__", "__new__", "__init_subclass__", "__class_getitem__", "__dir__", *COPIES})
"""Special methods that cannot run: a copy is not constructed."""


def twin(root: nn.Module, checked: set[str] | None = None) -> nn.Module:
    """Return a copy of a model, in eval mode and without hooks but torch's own. Raises Unfit.

    ``checked``: packages that were checked a moment ago, which takes some 20 ms for torch; updated in place.
    """
    check_surroundings({package_of(base) for module in modules(root) for base in bases(type(module))}, checked)
    _fit(root)
    made = copied(root, 2 * ELEMENTS)
    set_training(made, on=False)
    return made


def check_surroundings(packages: set[str] | None = None, checked: set[str] | None = None) -> None:
    """Raise Unfit if a function of torch, or of another of these packages, was replaced, or if a mode or a hook of the
    program sees each operation: it would see those of the experiment as well.
    """
    heard = torch_is_heard()
    if heard:
        raise Unfit(heard)
    for package in sorted({"torch", *((packages or set()) & _CHECKED)} - (checked or set())):
        name = not_its_own(package)
        if name:
            raise Unfit(f"a function of {package} is not its own ({name})")
        if checked is not None:
            checked.add(package)


_CHECKED = frozenset({"einops", "torchvision", "transformers", "timm"}) & TRUSTED


def _fit(root: nn.Module) -> None:
    """Check the kind of each module and the code of its class. Raises Unfit."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise Unfit("it is trained by several processes")
    size = 0
    seen: set[Any] = set()
    for module in modules(root):
        kind, held = type(module), own(module)
        if is_a(module, torch.jit.ScriptModule) or name_of(module) == "OptimizedModule":
            raise Unfit("a part of it is compiled")
        if held.get("_compiled_call_impl") is not None or any(_shadows(kind, key) for key in held):
            raise Unfit("the call of a part of it is replaced")
        if any(not (of_torch(hook) or _ours(hook)) for hook in _hooks(module)):
            raise Unfit("the program has hooks on it")
        for _, x in (*registered(module, "_parameters"), *registered(module, "_buffers")):
            if x is None:
                continue
            if not tensor_memory.present(x):
                raise Unfit("it holds tensors of a special kind")
            size += x.numel()
        _check_class(kind, seen)
    if size > ELEMENTS:
        raise Unfit(f"it has {size:,} parameters, more than are copied")


def _check_class(kind: type, seen: set[Any]) -> None:
    """Check the methods of a module's class that a call may run. Raises Unfit."""
    own_bases = [base for base in bases(kind) if not trusted(base)]
    if any(set(COPIES) & members(base).keys() for base in own_bases):
        raise Unfit(f"{kind_name(kind)} copies itself in its own way")
    if any("__del__" in members(base) for base in own_bases):
        raise Unfit(f"{kind_name(kind)} does something when it goes")
    called = {name for base in own_bases for name in members(base) if name.startswith("__") and name.endswith("__")}
    check_class(kind, {*_ENTRIES, *(called - _UNCALLED)}, seen)


def _shadows(kind: type, name: str) -> bool:
    """Return True if an attribute of a module hides a method of its class."""
    return type(class_member(kind, name)) is types.FunctionType


def _hooks(module: nn.Module) -> Iterator[Any]:
    for name in HOOKS:
        yield from (hook for _, hook in registered(module, name))


def _ours(hook: Any) -> bool:
    """Return True if a hook is ours, or the inert replacement of ours in a copied model."""
    return package_of(type(hook)) == "neuraldbg" or inert(hook)
