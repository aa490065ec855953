"""Modules and optimizers as torch stores them: children, parameters, hooks and groups, read from instance dictionaries.

``named_modules``, ``parameters``, ``register_forward_hook``, ``param_groups`` and the like may be methods or properties
of the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.guest.own_hooks import OwnHook
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import (
    attribute,
    attributes,
    class_member,
    is_a,
    item,
    items,
    label,
    sequence,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_dictionary: Callable[[nn.Module], Any] = nn.Module.__dict__["__dict__"].__get__
Parameters = list[tuple[str, Tensor]]


def own(module: nn.Module) -> dict[str, Any]:
    """Return the live dictionary of a module, as ``attributes`` does."""
    held = _dictionary(module)
    return held if type(held) is dict else attributes(module)


def training(module: nn.Module) -> bool:
    """Return True if a module is in train mode."""
    held = own(module).get("training")
    if held is None and is_a(module, torch.jit.ScriptModule):  # torch's own attribute, behind the C++ object
        return bool(module.training)
    return held is True


def registered(module: nn.Module, store: str) -> list[tuple[str, Any]]:
    """Return the entries of ``_modules``, ``_parameters``, ``_buffers`` or a dictionary of hooks of a module, with
    values of None among them.
    """
    held = own(module).get(store)
    if is_a(held, dict):
        return [(label(name), value) for name, value in list(items(held))]
    if held is not None and is_a(module, torch.jit.ScriptModule):  # torch's own containers, no dicts
        return list(held.items())
    return []


def children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the children of a module by name."""
    return [(name, child) for name, child in registered(module, "_modules") if is_a(child, nn.Module)]


def own_parameters(module: nn.Module) -> Parameters:
    """Return the parameters that a module has registered itself, by name."""
    return [(name, p) for name, p in registered(module, "_parameters") if p is not None]


def buffers(root: nn.Module) -> list[Tensor]:
    """Return the buffers of a module and of all modules below it."""
    return [b for _, module in walk(root) for _, b in registered(module, "_buffers") if b is not None]


def walk(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module and all below it with their paths, each once, in the order of ``named_modules``."""
    seen: set[int] = set()
    waiting = [("", root)]  # no recursion: the program's own nesting may use up Python's limit
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        below = children(module)
        below.reverse()
        waiting += [(f"{path}.{name}" if path else name, child) for name, child in below]


def modules(root: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and all below it, each once."""
    return (module for _, module in walk(root))


def named_parameters(root: nn.Module, *, duplicates: bool = False) -> Parameters:
    """Return the parameters of a module and all below it by path; with ``duplicates`` a shared one once per path."""
    found: Parameters = []
    seen: set[int] = set()
    for path, module in walk(root):
        for name, parameter in own_parameters(module):
            if duplicates or id(parameter) not in seen:
                seen.add(id(parameter))
                found.append((f"{path}.{name}" if path else name, parameter))
    return found


def parameters(root: nn.Module) -> list[Tensor]:
    """Return the parameters of a module and of all below it, each once."""
    return [parameter for _, parameter in named_parameters(root)]


def has_parameters(root: nn.Module) -> bool:
    """Return True if a module or one below it has registered a parameter."""
    return any(own_parameters(module) for module in modules(root))


def module_attribute(module: nn.Module, name: str, default: Any = None) -> Any:
    """Return an attribute that a module stores: a parameter, a buffer, a child, or plain data."""
    for store in ("_parameters", "_buffers", "_modules"):
        found = item(own(module).get(store), name)
        if found is not None:
            return found
    return attribute(module, name, default)


def is_parameter(x: Tensor) -> bool:
    """Return True for an ``nn.Parameter``."""
    return is_a(x, nn.Parameter) or attributes(x).get("_is_param") is True


def set_training(root: nn.Module, *, on: bool) -> None:
    """Put a module and all below it into train or eval mode, without a call of their ``train`` methods."""
    for module in modules(root):
        own(module)["training"] = on


def hookable(kind: type) -> bool:
    """Return True if torch can read the hooks of a module without running code of its class: a ``__getattribute__`` of
    the class would see every access, and there are more of these when there are hooks.
    """
    return class_member(kind, "__getattribute__") is object.__getattribute__


def add_hook(module: nn.Module, store: str, hook: Callable[..., Any], *, kwargs: bool = False) -> OwnHook:
    """Set a hook as ``register_forward_hook`` would (``store``: ``_forward_hooks``, ``_forward_pre_hooks``). ``kwargs``
    is for copies made by us only.
    """
    held = own(module)
    handle = OwnHook(held[store], hook)
    if kwargs:
        held[f"{store}_with_kwargs"][handle.id] = True
    return handle


# -- optimizers -------------------------------------------------------------------------------------------------


def groups(opt: Any) -> list[dict[str, Any]]:
    """Return the parameter groups of an optimizer. Read entries by ``item``: a group's class may derive from dict."""
    return [group for group in sequence(attribute(opt, "param_groups")) if is_a(group, dict)]


def group_tensors(group: dict[str, Any]) -> list[Tensor]:
    """Return the tensors of a parameter group."""
    return [t for t in sequence(item(group, "params")) if is_a(t, Tensor)]


def tensors(opt: Any) -> list[Tensor]:
    """Return the tensors of all groups of an optimizer."""
    return [t for group in groups(opt) for t in group_tensors(group)]


def rates(opt: Any) -> list[float]:
    """Return the learning rates of an optimizer's groups that have one."""
    found = (number(item(group, "lr")) for group in groups(opt))
    return [rate for rate in found if rate is not None]


def state(opt: Any) -> Any:
    """Return the stored ``state`` of an optimizer: usually a dict."""
    return attribute(opt, "state")


def state_of(opt: Any, tensor: Tensor) -> Any:
    """Return the state that an optimizer stores for one tensor, None if there is none."""
    held = state(opt)
    plain = is_a(held, dict) and type(tensor) in (Tensor, nn.Parameter)
    return dict.get(held, tensor) if plain else next((v for key, v in items(held) if key is tensor), None)


def scales(scaler: Any) -> bool:
    """Return True if a ``GradScaler`` is enabled."""
    return attribute(scaler, "_enabled") is True


def scale_of(scaler: Any) -> float | None:
    """Return the scale of a ``GradScaler``, None if it is not enabled. Waits for a device, as ``get_scale`` does."""
    if not scales(scaler):
        return None
    found = attribute(scaler, "_scale")
    return number(found if found is not None else attribute(scaler, "_init_scale"))
