"""A deep copy that runs no code of the program: a module in, one of the same classes that shares no data out.

``copy.deepcopy`` calls the methods by which objects customise their copies. Here objects are made by ``object.__new__``
and given copies of the contents of their dictionaries and slots. A value that is no plain container, tensor or object
is refused (``Unfit``).
"""

from __future__ import annotations

import copy
import enum
import functools
import random
import sys
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import own
from neuraldbg.capture.guest.own_code import installed
from neuraldbg.capture.guest.program_objects import (
    attribute,
    attributes,
    bases,
    class_member,
    is_a,
    kind_name,
    members,
    name_of,
    package_of,
)
from neuraldbg.capture.guest.purity import TRUSTED, Unfit, check, check_class, trusted

if TYPE_CHECKING:
    from collections.abc import Iterable

NODES = 50_000
"""Python objects that are copied before a model counts as too entangled to copy."""
COPIES = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__")
"""Methods by which a class customises its copies."""
TENSORS = (Tensor, nn.Parameter, nn.Buffer)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), range, slice, torch.dtype, torch.device,
          torch.Size, torch.layout, torch.memory_format, np.generic, np.dtype, enum.Enum, weakref.ref)  # fmt: skip
_CODE = (types.FunctionType, types.BuiltinFunctionType)
_DICTS = (dict, OrderedDict, Counter)


def _is_generator(kind: type) -> bool:
    """Return True for a type of generators of random numbers. Those of numpy count if the program has loaded them: the
    package takes longer to import than the rest of this folder.
    """
    numpy = sys.modules.get("numpy.random")
    theirs = () if numpy is None else (numpy.Generator, numpy.RandomState)
    return kind in (torch.Generator, random.Random, *theirs)


def copied(root: nn.Module, elements: int) -> nn.Module:
    """Return a copy of a module, with no hooks but torch's own. Raises Unfit, also above ``elements`` elements."""
    try:
        made: nn.Module = _Copier(elements).value(root)
    except RecursionError as error:
        raise Unfit("it is nested too deeply") from error
    return made


def _lies_there(array: np.ndarray[Any, Any]) -> bool:
    """Return True if the memory of an array is numpy's own, or that of a readable tensor."""
    while type(array.base) is np.ndarray:
        array = array.base
    return bool(array.flags.owndata) or (is_a(array.base, Tensor) and tensor_memory.stored(array.base))


class _Copier:
    """One copy of a module and all that it holds."""

    def __init__(self, elements: int) -> None:
        self._left = elements
        self._memo: dict[int, Any] = {}
        """Copies by the identity of their originals, as ``copy.deepcopy`` keeps them."""

    def value(self, value: Any) -> Any:
        """Return a copy of any value that a module may hold."""
        if id(value) in self._memo:
            return self._memo[id(value)]
        kind = type(value)
        if is_a(value, (type, types.ModuleType, *_CODE)):
            return _shared_code(value)
        if is_a(value, _PLAIN):
            return _shared(value)
        if len(self._memo) > NODES:
            raise Unfit("it refers to too many other objects")
        if issubclass(kind, (Tensor, np.ndarray)):
            return self._numbers(value)
        if issubclass(kind, nn.Module):
            return self._module(value)
        made = self._container(value) if package_of(kind) in ("builtins", "collections", "functools") else None
        if made is None:
            made = self._tuple(value) if issubclass(kind, tuple) else self._object(value)
        self._memo[id(value)] = made
        return made

    def _numbers(self, value: Any) -> Any:
        """Return a copy of a tensor or an array of an ordinary kind, made by torch or numpy."""
        if type(value) is np.ndarray:
            if value.dtype.hasobject:
                raise Unfit("it holds an array of objects")
            if not _lies_there(value):
                raise Unfit("it holds an array in memory of others")
            self._count(value.size)
            made = self._memo[id(value)] = value.copy()
            return made
        if not is_a(value, Tensor) or type(value) not in TENSORS or value.is_meta or value.layout is not torch.strided:
            raise Unfit("it holds tensors of a special kind")
        if not value.is_leaf:
            raise Unfit("it keeps a tensor with a graph")
        if type(value) is Tensor and attributes(value):
            raise Unfit("it keeps a tensor with attributes of its own")
        if not tensor_memory.stored(value):
            raise Unfit("it holds tensors whose memory was freed or cannot be read")
        self._count(value.numel())
        return copy.deepcopy(value, self._memo)

    def _count(self, elements: int) -> None:
        self._left -= elements
        if self._left < 0:
            raise Unfit("it keeps too many numbers")

    def _module(self, module: nn.Module) -> nn.Module:
        made = self._memo[id(module)] = object.__new__(type(module))
        held, kept = own(module), own(made)
        for key, value in list(held.items()):
            if key in HOOKS:
                kept[key] = OrderedDict((at, self.value(hook)) for at, hook in value.items() if of_torch(hook))
            elif key.endswith("_hooks") or "_hooks_" in key:
                kept[key] = OrderedDict()
            else:
                kept[key] = self.value(value)
        for key in ("_forward_hooks", "_forward_pre_hooks"):
            said = held.get(f"{key}_with_kwargs") or {}
            kept[f"{key}_with_kwargs"] = OrderedDict((at, said[at]) for at in kept[key] if at in said)
        self._slots(module, made)
        return made

    def _container(self, value: Any) -> Any:
        """Return a copy of a container of Python's own classes, None for any other value."""
        kind = type(value)
        if kind in _DICTS or kind is defaultdict:
            made: Any = defaultdict(self.value(value.default_factory)) if kind is defaultdict else kind()
            self._memo[id(value)] = made
            for key, item in list(value.items()):
                made[self._key(key)] = self.value(item)
            return made
        if kind is list or kind is deque:
            row: Any = [] if kind is list else deque(maxlen=value.maxlen)
            self._memo[id(value)] = row
            row.extend(self.value(item) for item in list(value))
            return row
        if kind in (set, frozenset):
            return kind(self._key(item) for item in value)
        if kind is functools.partial:
            words = {word: self.value(item) for word, item in value.keywords.items()}
            return functools.partial(self.value(value.func), *map(self.value, value.args), **words)
        if kind is types.MethodType:
            check(value.__func__)
            check_class(type(value.__self__), [value.__func__.__name__])
            return types.MethodType(value.__func__, self.value(value.__self__))
        return None

    def _key(self, key: Any) -> Any:
        """Return a copy of a dictionary key, which is hashed and compared."""
        for name in ("__hash__", "__eq__"):
            method = class_member(type(key), name)
            if type(method) is types.FunctionType and not trusted(method):
                raise Unfit(f"it holds keys of a class of its own ({name_of(key)})")
        if type(key) is tuple:
            return tuple(map(self._key, key))
        return self.value(key)

    def _tuple(self, value: Any) -> Any:
        kind = type(value)
        if kind is not tuple:
            check(kind)
        return tuple.__new__(kind, [self.value(item) for item in tuple.__iter__(value)])

    def _object(self, value: Any) -> Any:
        """Return a copy of an object that consists of its attributes, or of a trusted one that copies itself."""
        kind = type(value)
        if _is_generator(kind) or _copies_itself(value):
            return copy.deepcopy(value)
        if any(class_member(kind, name) is not members(object).get(name) for name in COPIES):
            raise Unfit(f"it holds a {kind_name(kind)}, which copies itself in its own way")
        alive = issubclass(kind, (torch.optim.Optimizer, torch.utils.data.DataLoader))
        if alive or not (attributes(value) or _slot_names(kind)) or class_member(kind, "__del__") is not None:
            raise Unfit(f"it holds a {kind_name(kind)}")
        if not trusted(kind):
            check(kind)
        try:
            made = object.__new__(kind)
        except TypeError as error:  # a class written in C
            raise Unfit(f"it holds a {kind_name(kind)}") from error
        self._memo[id(value)] = made
        inside = attributes(made)
        for key, item in list(attributes(value).items()):
            inside[key] = self.value(item)
        self._slots(value, made)
        return made

    def _slots(self, value: Any, made: Any) -> None:
        for name, slot in _slot_names(type(value)):
            held = attribute(value, name, _slot_names)
            if held is not _slot_names:
                slot.__set__(made, self.value(held))


def of_torch(hook: Any) -> bool:
    """Return True for a hook of torch's own that computes weights of a module: weight norm and pruning set one."""
    inner = hook.func if type(hook) is functools.partial else hook
    if type(inner) is types.FunctionType:
        return installed(inner, frozenset({"torch"}))
    return package_of(type(inner)) == "torch"


def _slot_names(kind: type) -> Iterable[tuple[str, Any]]:
    found = ((name, slot) for base in bases(kind) for name, slot in members(base).items())
    return [(name, slot) for name, slot in found if type(slot) is types.MemberDescriptorType and name != "__weakref__"]


def _copies_itself(value: Any) -> bool:
    """Return True if an object of a trusted package customises its copies, and holds only constants."""
    kind = type(value)
    if package_of(kind) not in TRUSTED or is_a(value, (torch.optim.Optimizer, torch.utils.data.DataLoader)):
        return False
    default = all(class_member(kind, name) is members(object).get(name) for name in COPIES)
    return not default and all(is_a(item, _PLAIN) for item in attributes(value).values())


def _shared_code(value: Any) -> Any:
    if is_a(value, types.ModuleType) and not trusted(value):
        raise Unfit(f"it holds the module {attribute(value, '__name__')}")
    check(value)
    return value


def _shared(value: Any) -> Any:
    kind = type(value)
    if not trusted(kind):
        check(kind)
        if attributes(value) and not is_a(value, enum.Enum):
            raise Unfit(f"it holds a {kind_name(kind)}")
    return value
