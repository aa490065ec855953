"""A copy of a model for experiments: a model enters, a twin that shares nothing with it leaves, or why there is none.

A twin must be safe to call: its forward may draw from no generator, print nothing, and write to nothing that the
user's program sees. Whatever cannot be shown to be so is refused (``Unfit``): an experiment that is not made harms
nobody.
"""

from __future__ import annotations

import copy
import dis
import functools
import inspect
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

if TYPE_CHECKING:
    from collections.abc import Iterator

ELEMENTS = 32_000_000
"""Parameters and buffers of a model that is copied, at most: 128 MB in 32-bit numbers, copied in about 0.1 s."""
_NODES = 50_000
"""Python objects that are looked at before a model counts as too entangled to copy."""
_SPOKEN = frozenset({"print", "breakpoint", "input", "open", "exec", "eval", "set_trace", "warn", "log_dict",
                     "add_scalar", "add_histogram", "add_image", "savefig", "imsave", "imshow", "wandb", "tqdm",
                     "logger", "logging", "save", "send", "put", "sleep"})  # fmt: skip
"""Names in the code of a forward that reach out of the model."""
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_SHARED = (list, dict, set, deque, bytearray)
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), range, slice, type, types.ModuleType,
          types.FunctionType, types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size, torch.layout,
          torch.memory_format, np.generic, np.dtype)  # fmt: skip
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_module_registration_hooks")
_FUNCTIONS = 200
"""Functions behind a forward that are looked at."""
_TRUSTED = ("torch", "numpy", "math", "builtins", "einops", "torchvision", "transformers", "timm")
"""Packages whose code is known to keep to itself."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Unfit(Exception):
    """Why a model is left alone."""


def twin(root: nn.Module) -> nn.Module:
    """Return a copy of a model, in eval mode and without hooks but torch's own. Raises Unfit."""
    _fit(root)
    _walk(root)
    try:
        made: nn.Module = copy.deepcopy(root)
    except Exception as error:
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
        if type(module).__module__.split(".", maxsplit=1)[0] not in _TRUSTED:
            for code, names in _codes(type(module)):
                _silent(code, names)
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


def _codes(kind: type[nn.Module]) -> Iterator[tuple[types.CodeType, dict[str, Any]]]:
    """Go through the code that a forward pass may run: ``forward``, the methods and the user's functions that it names,
    and those that these name; each with the values behind its globals and cells.
    """
    queue: list[Any] = [kind.forward]
    seen: set[types.CodeType] = set()
    while queue and len(seen) < _FUNCTIONS:
        f = inspect.unwrap(getattr(queue[0], "__func__", queue[0])) if callable(queue[0]) else None
        queue.pop(0)
        if isinstance(f, property):
            f = f.fget
        if not isinstance(f, types.FunctionType) or f.__code__ in seen or f.__module__.split(".")[0] in _TRUSTED:
            continue
        seen.add(f.__code__)
        names = _outer(f)
        yield f.__code__, names
        queue.extend(value for value in names.values() if isinstance(value, types.FunctionType))
        members = (inspect.getattr_static(kind, name, None) for name in _named(f.__code__))
        queue.extend(m.fget if isinstance(m, property) else getattr(m, "__func__", m) for m in members)


def _named(code: types.CodeType) -> set[str]:
    """Return every name that code uses, with that of the functions written inside of it."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _named(const)
    return names


def _outer(f: types.FunctionType) -> dict[str, Any]:
    names = {name: f.__globals__[name] for name in _named(f.__code__) if name in f.__globals__}
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return names


def _silent(code: types.CodeType, names: dict[str, Any]) -> None:
    """Refuse code that speaks to the outside, or that holds what it might change there."""
    spoken = _SPOKEN & _named(code)
    if spoken:
        raise Unfit(f"its {code.co_name} reaches outside ({min(spoken)})")
    for name, value in names.items():
        if isinstance(value, (*_GENERATORS, *_SHARED)):
            raise Unfit(f"its {code.co_name} uses {name}, which is shared with the program")
    for instruction in dis.get_instructions(code):
        inner = instruction.argval in code.co_cellvars
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
            instruction.opname == "STORE_DEREF" and not inner
        ):
            raise Unfit(f"its {code.co_name} writes to a variable outside")


def _walk(root: nn.Module) -> None:
    """Look at everything that a deep copy would copy, and refuse what is large, alive or copies itself."""
    queue: list[Any] = [root]
    seen: set[int] = set()
    size = 0
    while queue:
        value = queue.pop()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
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
            trusted = type(value).__module__.split(".", maxsplit=1)[0] == "torch"  # copies itself well
            names = ("_parameters", "_buffers", "_modules") if trusted else held.keys() - set(_HOOKS)
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
        return [value.__self__]
    if isinstance(value, _GENERATORS):
        return []
    kind = type(value)
    if kind.__module__.startswith("neuraldbg") or _is_enum(kind):
        return []
    own = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__copy__")
    if any(getattr(kind, name, None) is not getattr(object, name, None) for name in own):
        raise Unfit(f"it holds a {kind.__name__}, which copies itself in its own way")
    if isinstance(value, (torch.optim.Optimizer, torch.utils.data.DataLoader)) or not hasattr(value, "__dict__"):
        raise Unfit(f"it holds a {kind.__name__}")
    return list(vars(value).values())


def _is_enum(kind: type) -> bool:
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(kind, enum.Enum)
