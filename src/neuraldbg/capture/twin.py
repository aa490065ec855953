"""A copy of a model for experiments: a model enters, a twin that shares nothing with it leaves, or why there is none.

A twin must be safe to call: its forward may draw from no generator, print nothing, and write to nothing that the
user's program sees. Whatever cannot be shown to be so is refused (``Unfit``): an experiment that is not made harms
nobody.
"""

from __future__ import annotations

import copy
import functools
import random
import sys
import types
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from neuraldbg.capture.probe import inert
from neuraldbg.capture.purity import Unfit, check, check_class, trusted
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from collections.abc import Iterator

ELEMENTS = 32_000_000
"""Parameters and buffers of a model that is copied, at most: 128 MB in 32-bit numbers, copied in about 0.1 s."""
_NODES = 50_000
"""Python objects that are looked at before a model counts as too entangled to copy."""
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), range, slice, type, types.ModuleType,
          types.FunctionType, types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size, torch.layout,
          torch.memory_format, np.generic, np.dtype)  # fmt: skip
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_module_registration_hooks")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_ENTRIES = ("forward", "__call__", "__getattr__", "__getattribute__", "__setattr__", "train", "eval")
"""Methods that a call of a twin, or its way into eval mode, may run."""
_COPIES = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__")


def twin(root: nn.Module) -> nn.Module:
    """Return a copy of a model, in eval mode and without hooks but torch's own. Raises Unfit."""
    _fit(root)
    _walk(root)
    try:
        made: nn.Module = copy.deepcopy(root)
    except Exception as error:
        let_pass(error)
        raise Unfit(f"it cannot be copied ({type(error).__name__})") from error
    for module in made.modules():
        _bare(module)
    return made.eval()


def _fit(root: nn.Module) -> None:
    """Check what the modules are and what their code reaches for."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise Unfit("it is trained by several processes")
    if any(getattr(torch.nn.modules.module, name, None) for name in _GLOBAL_HOOKS):
        raise Unfit("hooks are set on all modules of the program")
    size = 0
    seen: set[Any] = set()
    for module in root.modules():
        if isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "OptimizedModule":
            raise Unfit("a part of it is compiled")
        if module._compiled_call_impl is not None or "forward" in vars(module):  # noqa: SLF001
            raise Unfit("the call of a part of it is replaced")
        if any(not _benign(hook) for hook in _hooks(module)):
            raise Unfit("the program has hooks on it")
        for x in (*module._parameters.values(), *module._buffers.values()):  # noqa: SLF001
            if x is None:
                continue
            if type(x) not in (Tensor, nn.Parameter, nn.Buffer) or x.is_meta or x.layout is not torch.strided:
                raise Unfit("it holds tensors of a special kind")
            size += x.numel()
        kind = type(module)
        if any(not trusted(base) and set(_COPIES) & vars(base).keys() for base in kind.__mro__):
            raise Unfit(f"{kind.__name__} copies itself in its own way")
        check_class(kind, _ENTRIES, seen)
    if size > ELEMENTS:
        raise Unfit(f"it has {size:,} parameters, more than are copied")


def _hooks(module: nn.Module) -> Iterator[Any]:
    for name in _HOOKS:
        yield from getattr(module, name).values()


def _benign(hook: Any) -> bool:
    """Whether a hook is ours or torch's (weight norm, spectral norm and pruning compute weights in hooks)."""
    return _package(hook) in ("torch", "neuraldbg") or inert(hook)


def _bare(module: nn.Module) -> None:
    """Take off every hook but those that compute the module's weights."""
    for name in _HOOKS:
        hooks = getattr(module, name)
        for key in [key for key, hook in hooks.items() if _package(hook) != "torch"]:
            del hooks[key]


def _package(hook: Any) -> str:
    inner = getattr(hook, "func", hook)
    where = type(inner).__module__ if not hasattr(inner, "__qualname__") else inner.__module__
    return str(where).split(".", maxsplit=1)[0]


def _walk(root: nn.Module) -> None:
    """Look at everything that a deep copy would copy, and refuse what is large, alive or copies itself."""
    queue: list[Any] = [root]
    seen: set[int] = set()
    size = 0
    while queue:
        value = queue.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _CODE):  # is not copied but shared
            check(value)
        if isinstance(value, _PLAIN):
            continue
        if len(seen) > _NODES:
            raise Unfit("it is entangled with too much else")
        if isinstance(value, (Tensor, np.ndarray)):
            size += value.size if isinstance(value, np.ndarray) else value.numel()
            if isinstance(value, Tensor) and not value.is_leaf:
                raise Unfit("it keeps a tensor with a graph")
            if size > 2 * ELEMENTS:
                raise Unfit("it keeps too many numbers")
        elif isinstance(value, nn.Module):
            held = vars(value)
            plain = type(value).__module__.split(".", maxsplit=1)[0] == "torch"  # copies itself well
            names = ("_parameters", "_buffers", "_modules") if plain else held.keys() - set(_HOOKS)
            queue.extend(held[name] for name in names)
        else:
            queue.extend(_inside(value))


def _inside(value: Any) -> list[Any]:
    """Return what a plain object holds. Raises Unfit for one that is not plain."""
    if isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return list(value)
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, _GENERATORS):
        return []
    kind = type(value)
    if kind.__module__.startswith("neuraldbg") or _is_enum(kind):
        return []
    if any(getattr(kind, name, None) is not getattr(object, name, None) for name in _COPIES):
        raise Unfit(f"it holds a {kind.__name__}, which copies itself in its own way")
    if isinstance(value, (torch.optim.Optimizer, torch.utils.data.DataLoader)) or not hasattr(value, "__dict__"):
        raise Unfit(f"it holds a {kind.__name__}")
    if not trusted(kind):
        check(kind)
    return list(vars(value).values())


def _is_enum(kind: type) -> bool:
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(kind, enum.Enum)
