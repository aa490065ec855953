"""The base of the typed facts, and the way from a fact's JSON object to one: ``read``.

The fields of a fact's dataclass are the names of its JSON object, in which a name that Python keeps for itself has an
underscore behind it (``from_``). A field without a default must be there, any other may be. Types say what a field
holds: ``record/fact_shapes.py`` makes the checks of a run file from them. What a later version adds is not read.
"""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
UNIONS = (Union, types.UnionType)


class Known:
    """The base of each fact's dataclass."""

    KEY: ClassVar[str]
    """Its FactKey, as a string."""
    WHOLE: ClassVar[str] = ""
    """The field that holds the whole JSON object, where its names are not fixed; empty for most."""
    JOINED: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Names of fields of which all must be there if the first is."""

    @classmethod
    def variant(cls, value: Mapping[str, Any]) -> type[Known]:
        """Return the class that a JSON object of this kind is read into."""
        del value
        return cls


class Field(NamedTuple):
    """A field of a fact, or of a value inside of one."""

    name: str
    key: str
    """Its name in the JSON object."""
    kind: Any
    """Its type, with what ``Annotated`` adds."""
    needed: bool
    """Whether it must be there."""


@cache
def layout(cls: type) -> tuple[Field, ...]:
    """Return the fields of a dataclass or a NamedTuple, in their order."""
    hints = get_type_hints(cls, include_extras=True)
    if is_dataclass(cls):
        needed = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(cls)}
    else:
        needed = {name: name not in cls._field_defaults for name in cls._fields}  # type: ignore[attr-defined]
    return tuple(Field(name, name.rstrip("_"), hints[name], must) for name, must in needed.items())


def read(cls: type[T], value: Mapping[str, Any]) -> T:
    """Return a fact's JSON object as its dataclass. TypeError if a field is missing that must be there."""
    chosen: Any = cls.variant(value) if issubclass(cls, Known) else cls
    if whole := getattr(chosen, "WHOLE", ""):
        value = {whole: value}
    found = {}
    for one in layout(chosen):
        if one.key in value:
            convert, given = _converter(one.kind), value[one.key]
            found[one.name] = given if convert is None else convert(given)
    return chosen(**found)  # type: ignore[no-any-return]


@cache
def _converter(kind: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes a field's value of its JSON; None if they are the same."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _converter(args[0])
    if origin in UNIONS:
        inner = [found for arg in args if (found := _converter(arg)) is not None]
        if not inner:
            return None
        if len(args) - len(inner) > (type(None) in args):  # a number, or an array of such
            return lambda value: tuple(value) if isinstance(value, list) else value
        return lambda value: None if value is None else inner[0](value)
    if origin is tuple:
        return _array(args)
    if origin is dict:
        item = _converter(args[1])
        return None if item is None else lambda value: {key: item(one) for key, one in value.items()}
    if is_dataclass(kind):
        return lambda value: read(kind, value)  # type: ignore[arg-type]
    if hasattr(kind, "_fields"):
        parts = [_converter(one.kind) or _same for one in layout(kind)]
        return lambda value: kind(*(part(one) for part, one in zip(parts, value, strict=False)))
    return None


def _array(args: tuple[Any, ...]) -> Callable[[Any], Any]:
    if args[1:] == (...,):
        item = _converter(args[0])
        return tuple if item is None else lambda value: tuple(map(item, value))
    parts = [_converter(arg) or _same for arg in args]
    return lambda value: tuple(part(one) for part, one in zip(parts, value, strict=True))


def _same(value: Any) -> Any:
    return value
