"""Classes of which every method, property and operator counts its calls and draws a random number."""

from __future__ import annotations

import random
import types
from collections import Counter
from typing import Any

CALLS: Counter[str] = Counter()
_LEFT = frozenset({
    "__class__", "__class_getitem__", "__del__", "__dict__", "__doc__", "__getattribute__", "__init__",
    "__init_subclass__", "__module__", "__new__", "__slots__", "__subclasshook__", "__weakref__",
    "__annotations__", "__abstractmethods__",
})  # fmt: skip
_OPERATORS = (
    "__iter__", "__len__", "__bool__", "__eq__", "__hash__", "__repr__", "__str__", "__format__", "__contains__",
    "__getitem__", "__float__", "__int__", "__index__", "__getattr__", "items", "keys", "values", "get",
)  # fmt: skip


def trip(name: str) -> None:
    CALLS[name] += 1
    random.random()


def wired(base: type, *, attributes: bool = False, **more: Any) -> Any:
    """Derive a class from ``base`` that overrides all there is; ``attributes`` for ``__getattribute__`` as well."""
    names: dict[str, Any] = {}
    for name in {*dir(base), *(_OPERATORS if base is object else ())} - _LEFT:
        member = next((vars(kind)[name] for kind in base.__mro__ if name in vars(kind)), None)
        if isinstance(member, property | types.GetSetDescriptorType | types.MemberDescriptorType):
            names[name] = _property(f"{base.__name__}.{name}", member)
        elif callable(member) and not isinstance(member, type | staticmethod | classmethod):
            names[name] = _method(f"{base.__name__}.{name}", member)
    if "__getattr__" not in names:
        names["__getattr__"] = _missing(base)
    if attributes:
        names["__getattribute__"] = _method(f"{base.__name__}.__getattribute__", base.__getattribute__)
    names["__class__"] = property(_told(f"{base.__name__}.__class__"))
    made = type(f"Wired{base.__name__}", (base,), {**names, **more, "__module__": __name__})
    globals()[made.__name__] = made
    return made


def _method(name: str, original: Any) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        trip(name)
        return original(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name.rpartition(".")[2]
    return method


def _property(name: str, original: Any) -> Any:
    def get(self: Any) -> Any:
        trip(name)
        return original.__get__(self, type(self))

    def put(self: Any, value: Any) -> None:
        original.__set__(self, value)

    return property(get, put)


def _missing(base: type) -> Any:
    def missing(self: Any, name: str) -> Any:
        trip(f"{base.__name__}.__getattr__({name})")
        raise AttributeError(name)

    return missing


def _told(name: str) -> Any:
    def kind(self: Any) -> type:
        trip(name)
        return type(self)

    return kind
