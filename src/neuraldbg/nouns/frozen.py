"""Frozen dataclasses without generated code, for values of which there are many classes and few objects.

``dataclass(frozen=True)`` compiles six functions for each class, which takes 0.4 ms. There are more than a hundred
classes of facts, and they are imported in every run: here the functions are written once, and shared.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Return a decorator that does nothing: it only tells type checkers what ours does."""
        return lambda decorator: decorator


if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, kw_only: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T] | None = None, /, *, kw_only: bool = True) -> Any:
    """Make a class a frozen dataclass, whose fields are given by name if ``kw_only``. Making an object takes some
    microseconds.
    """
    if cls is None:
        return partial(_made, kw_only=kw_only)
    return _made(cls, kw_only=kw_only)


def _made(cls: type[T], *, kw_only: bool) -> type[T]:
    made = dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    for name in ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"):
        if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
            setattr(made, name, getattr(_Shared, name))
    return made


@cache
def _defaults(cls: Any) -> tuple[tuple[str, Any, Any], ...]:
    """Return name, default and factory of each field; MISSING where there is none."""
    return tuple((one.name, one.default, one.default_factory) for one in fields(cls))


def _defaults_of(value: Any) -> tuple[tuple[str, Any, Any], ...]:
    return _defaults(value.__class__)


@cache
def _compared(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields by which two objects are equal."""
    return tuple(one.name for one in fields(cls) if one.compare)


def _values(of: Any) -> tuple[Any, ...]:
    return tuple(getattr(of, name) for name in _compared(of.__class__))


def _named(of: Any, args: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with those that were given by position under their names."""
    names = of.__match_args__
    if len(args) > len(names) or not values.keys().isdisjoint(names[: len(args)]):
        message = f"{type(of).__name__}() takes {', '.join(names) or 'nothing'} by position, each once"
        raise TypeError(message)
    return {**dict(zip(names, args, strict=False)), **values}


class _Shared:
    """The functions of every frozen class, as ``dataclass`` would have written them."""

    def __init__(self, *args: Any, **values: Any) -> None:
        if args:
            values = _named(self, args, values)
        own, given = self.__dict__, len(values)
        for name, default, factory in _defaults_of(self):
            if name in values:
                own[name] = values[name]
                given -= 1
            elif default is not MISSING:
                own[name] = default
            elif factory is not MISSING:
                own[name] = factory()
            else:
                message = f"{type(self).__name__}() lacks {name!r}"
                raise TypeError(message)
        if given:
            message = f"{type(self).__name__}() has no {', '.join(repr(name) for name in values if name not in own)}"
            raise TypeError(message)

    def __repr__(self) -> str:
        shown = (one.name for one in fields(self) if one.repr)  # type: ignore[arg-type]  # every such class is one
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __eq__(self, other: object) -> Any:
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __setattr__(self, name: str, value: Any) -> None:
        del value
        message = f"cannot assign to field {name!r}"
        raise FrozenInstanceError(message)

    def __delattr__(self, name: str) -> None:
        message = f"cannot delete field {name!r}"
        raise FrozenInstanceError(message)
