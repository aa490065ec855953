"""The test for code that may run a second time without a visible effect: functions in, ``Unfit`` raised if they may
not.

Permitted names are listed, and everything else is refused. Code may use constants, functions and classes that are
checked in turn, and packages that are known to have no effect outside. It may not do input or output, draw from a
generator of the program's, or use a list, a tensor or an object that the program sees as well.
"""

from __future__ import annotations

import argparse
import builtins
import dis
import enum
import functools
import random
import types
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.guest.module_tree import buffers, has_parameters
from neuraldbg.capture.guest.own_code import cells, installed
from neuraldbg.capture.guest.program_objects import (
    attribute,
    attributes,
    bases,
    class_member,
    is_a,
    kind_name,
    members,
    module_of,
    package_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Unfit(Exception):
    """Raised with the reason why a model is not experimented on."""


class TooLong(Unfit):
    """Raised when an experiment would take longer than it may: nothing was learnt of the model."""


TRUSTED = frozenset({
    "torch", "numpy", "math", "cmath", "builtins", "einops", "torchvision", "transformers", "timm", "functools",
    "itertools", "operator", "collections", "typing", "typing_extensions", "dataclasses", "enum", "copy", "numbers",
    "reprlib",
    "string", "re", "abc", "contextlib", "time", "random", "warnings", "types", "jaxtyping", "__future__",
})  # fmt: skip
"""Packages whose code has no effect outside, or only on generators whose state is restored."""
_BUILTIN = frozenset({"print", "breakpoint", "input", "open", "exec", "eval", "setattr", "delattr", "globals", "vars"})
"""Built-in functions with effects outside."""
_SPOKEN = frozenset({
    "set_trace", "warn", "log_dict", "add_scalar", "add_histogram", "add_image", "savefig", "imsave", "imshow", "wandb",
    "tqdm", "logger", "logging", "save", "send", "put", "sleep", "manual_seed", "seed", "__dict__", "__globals__",
    "f_globals",
})  # fmt: skip
"""Names in code that have effects outside."""
_MUTABLE = (list, dict, set, deque, bytearray, torch.Tensor, np.ndarray)
_CONSTANT = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), type(NotImplemented), range, slice,
             torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, np.generic, np.dtype, enum.Enum,
             property, types.GenericAlias)  # fmt: skip
_FOREIGN = ("ScriptFunction", "CustomOpDef", "OpOverload", "OpOverloadPacket", "OptimizedModule")
"""Classes of torch whose objects may be made of the program's functions."""
_METHODS = (types.FunctionType, property, staticmethod, classmethod)
_RECORDS = (types.SimpleNamespace, argparse.Namespace)
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_CODES = 400
"""Number of functions that one check follows at most."""
_DEPTH = 8


def check(*functions: Any) -> None:
    """Check functions and all that they name. Raises Unfit."""
    _Look().all(functions)


def check_class(kind: type, first: Iterable[str], seen: set[Any] | None = None) -> None:
    """Check the methods of a class with these names, the methods that these name, and so on. Raises Unfit."""
    look = _Look(seen)
    look.members(kind, set(first))
    look.work()


def trusted(thing: Any) -> bool:
    """Return True for a function, class or module of a trusted package, or an object of such a class."""
    if type(thing) is types.FunctionType:
        return installed(thing, TRUSTED)
    if is_a(thing, types.ModuleType):
        where = attribute(thing, "__name__")
        return type(where) is str and where.split(".", maxsplit=1)[0] in TRUSTED
    return package_of(thing if is_a(thing, type) else type(thing)) in TRUSTED


class _Look:
    """One walk over code and all code that it names."""

    def __init__(self, seen: set[Any] | None = None) -> None:
        self.seen: set[Any] = seen if seen is not None else set()
        self.queue: list[tuple[types.FunctionType, type | None]] = []
        """Functions still to be checked, each with the class whose methods and attributes it may use."""

    def all(self, functions: Iterable[Any]) -> None:
        for function in functions:
            self.value(function, "a function")
        self.work()

    def work(self) -> None:
        while self.queue:
            if len(self.seen) > _CODES:
                raise Unfit("it runs too much code to check")
            self._function(*self.queue.pop())

    def value(self, value: Any, name: str, kind: type | None = None) -> None:
        """Check a value that code names. ``kind`` is the class that a method belongs to. Raises Unfit."""
        sort = type(value)
        # Bound methods and partials carry objects, which must be fit as well.
        if sort is types.MethodType and not is_a(value.__self__, type):
            raise Unfit(f"it uses {name}, which is shared with the program")
        if sort in (types.MethodType, staticmethod, classmethod):
            self.value(value.__func__, name, kind)
        elif sort is functools.partial:
            for part in (value.func, *value.args, *value.keywords.values()):
                self.value(part, name, kind)
        elif sort is functools._lru_cache_wrapper:  # noqa: SLF001
            self.value(value.__wrapped__, name, kind)
        # Functions of the program are queued, not recursed into.
        elif sort is types.FunctionType:
            if not trusted(value):
                self.queue.append((value, kind))
            else:  # a decorated function, as torch.no_grad() makes one
                self._behind(value, name)
        elif is_a(value, type):
            self._class(value)
        # A built-in bound to an object acts on that object, which the program shares.
        elif is_a(value, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
            owner = getattr(value, "__self__", None)
            if not (owner is None or is_a(owner, (types.ModuleType, type))):
                raise Unfit(f"it uses {name}, which is shared with the program")
        elif sort in (tuple, frozenset):
            for item in value:
                self.value(item, name, kind)
        elif is_a(value, _CONSTANT):
            self._class(sort)  # a constant of a class of the program has methods
        elif not (trusted(sort) and kind_name(sort) not in _FOREIGN and not _holds(value)):
            raise Unfit(f"it uses {name}, which is shared with the program")

    def _behind(self, function: types.FunctionType, name: str) -> None:
        """Check the functions of the program in the closure of a trusted function."""
        if id(function) not in self.seen:
            self.seen.add(id(function))
            for value in cells(function):
                inner = value.__func__ if type(value) is types.MethodType else value
                if type(inner) in (types.FunctionType, functools.partial) or is_a(inner, type):
                    self.value(inner, name)

    def _class(self, kind: type) -> None:
        """Check all methods of a class that code names: the code may make an object of it, and call any of them."""
        if id(kind) in self.seen or trusted(kind):
            return
        self.seen.add(id(kind))
        for base in bases(kind):
            if not trusted(base):
                self.members(kind, {name for name, member in members(base).items() if type(member) in _METHODS})

    def members(self, kind: type, names: set[str]) -> None:
        """Check members of a class, and the members that they override."""
        for base in bases(kind):
            if trusted(base):
                continue
            held = members(base)
            for name in names & held.keys():
                member = held[name]
                for part in (member.fget, member.fset, member.fdel) if type(member) is property else (member,):
                    if is_a(part, _MUTABLE) and not name.startswith("__"):
                        raise Unfit(f"it uses {name}, which all of its class share")
                    if not name.startswith("__") or type(part) in _METHODS:
                        self.value(part, name, kind)

    def _function(self, f: types.FunctionType, kind: type | None) -> None:
        if (id(f), id(kind)) in self.seen:
            return
        self.seen.add((id(f), id(kind)))
        for default in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            self.value(default, "a default value", kind)
        for code in _codes(f.__code__):
            self._code(code, f, kind)

    def _code(self, code: types.CodeType, f: types.FunctionType, kind: type | None) -> None:
        spoken = _SPOKEN & set(code.co_names)
        if spoken:
            raise Unfit(f"its {code.co_name} reaches outside ({min(spoken)})")
        instructions = list(dis.get_instructions(code))
        stored = {str(one.argval) for one in instructions if one.opname in _STORES}
        if stored and {"__class__", "type"} & set(code.co_names):
            raise Unfit(f"its {code.co_name} may write to a class")
        for at, one in enumerate(instructions):
            _alone(one, code)
            found = _outer(one, f)
            if found is None or (one.argval == "__class__" and kind is not None):  # super() needs __class__
                continue
            value, path = _followed(found[0], str(one.argval), instructions[at + 1 :])
            if is_a(value, type) and not trusted(value):
                next_one = instructions[at + 1].opname if at + 1 < len(instructions) else ""
                if next_one in _STORES or any(stored & members(base).keys() for base in bases(value)):
                    raise Unfit(f"its {code.co_name} may write to a class")
            if is_a(value, types.ModuleType) and trusted(value):
                _settings(value, code, instructions[at + 1 :])
            self.value(value, path, kind)
        if kind is not None:
            self.members(kind, set(code.co_names))


def _alone(one: dis.Instruction, code: types.CodeType) -> None:
    """Check one instruction alone for stores, imports and built-ins with effects outside."""
    name = one.opname
    if name in ("STORE_GLOBAL", "DELETE_GLOBAL") or (name == "STORE_DEREF" and one.argval not in code.co_cellvars):
        raise Unfit(f"its {code.co_name} writes to a variable outside")
    if name == "IMPORT_NAME" and str(one.argval).split(".", maxsplit=1)[0] not in TRUSTED:
        raise Unfit(f"its {code.co_name} imports {one.argval}")
    if name in ("LOAD_GLOBAL", "LOAD_NAME") and one.argval in _BUILTIN:
        raise Unfit(f"its {code.co_name} reaches outside ({one.argval})")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those of the functions inside of it."""
    yield code
    for const in code.co_consts:
        if type(const) is types.CodeType:
            yield from _codes(const)


def _outer(one: dis.Instruction, f: types.FunctionType) -> tuple[Any] | None:
    """Return the value of a global or cell that an instruction loads as a 1-tuple, None if it loads no such thing."""
    name = str(one.argval)
    if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        if name in f.__globals__:
            return (f.__globals__[name],)
        own = vars(builtins).get(name)  # undefined yet, or a program's own function among the built-ins
        return (own,) if type(own) is types.FunctionType else None
    if one.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF") and name in f.__code__.co_freevars:
        cell = (f.__closure__ or ())[f.__code__.co_freevars.index(name)]
        try:
            return (cell.cell_contents,)
        except ValueError:  # not filled yet
            return None
    return None


def _followed(value: Any, path: str, then: list[dis.Instruction]) -> tuple[Any, str]:
    """Follow the attributes that are read of a module or a record of settings, as in ``settings.model.width``."""
    for one in then[:_DEPTH]:
        plain = type(value) in _RECORDS or _dataclass(value)
        if one.opname not in _ATTRIBUTE or not (plain or (is_a(value, types.ModuleType) and not trusted(value))):
            break
        held, name = attributes(value), str(one.argval)
        if name not in held:
            raise Unfit(f"it uses {path}.{name}, which is shared with the program")
        value, path = held[name], f"{path}.{name}"
    return value, path


def _dataclass(value: Any) -> bool:
    return class_member(type(value), "__dataclass_fields__") is not None and bool(attributes(value))


def _settings(value: Any, code: types.CodeType, then: list[dis.Instruction]) -> None:
    """Check the use of a module of a trusted package: code may not set an attribute of it, nor call an operator that is
    not torch's.
    """
    names: list[str] = []
    for one in then[:_DEPTH]:
        if one.opname in _STORES:
            raise Unfit(f"its {code.co_name} changes a setting of {attribute(value, '__name__')}")
        if one.opname not in _ATTRIBUTE:
            break
        names.append(str(one.argval))
    if "ops" in names[:1] and attribute(value, "__name__") == "torch" and names[1:2] not in (["aten"], ["prims"]):
        raise Unfit(f"its {code.co_name} uses an operator of its own ({'.'.join(names[1:3])})")


def _holds(value: Any) -> bool:
    """Return True if an object of a trusted package has mutable state."""
    if is_a(value, types.ModuleType):
        return False
    if is_a(value, torch.nn.Module):
        return has_parameters(value) or bool(buffers(value))
    changing = (*_MUTABLE, torch.Generator, torch.optim.Optimizer, random.Random, *_RECORDS)
    iterates = class_member(type(value), "__next__") is not None
    return is_a(value, changing) or iterates or module_of(type(value)).startswith("numpy.random")
