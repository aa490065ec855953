"""Frozen groups of named values, each checked against its type and its limits when the group is made.

::

    class Ring(CheckedValues):
        steps: int = Field(100, ge=1, description="Steps that are kept.")


    Ring(steps=0)  # ConfigError: steps: must be at least 1, not 0

A library for this takes a quarter of the time that ``from neuraldbg import NeuralDbg`` may take; what settings need of
it is here: numbers, strings, ``Literal``, ``X | None``, tuples, dictionaries and groups inside of groups.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import numbers
import operator
import reprlib
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

_MISSING: Any = object()
_SHORT = reprlib.Repr()
_SHORT.maxlevel = _SHORT.maxlist = _SHORT.maxdict = 2
_LIMITS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("gt", operator.gt, "greater than"),
    ("ge", operator.ge, "at least"),
    ("lt", operator.lt, "less than"),
    ("le", operator.le, "at most"),
)


class FieldInfo(NamedTuple):
    """The default, the limits and the description of one value. Limits hold for numbers, ``least`` for tuples."""

    default: Any
    factory: Callable[[], Any] | None
    description: str
    gt: float | None
    ge: float | None
    lt: float | None
    le: float | None
    least: int

    def begin(self) -> Any:
        """Return the default. A mutable one is made for each group."""
        return self.factory() if self.factory is not None else self.default


def Field(  # noqa: N802 (reads like the type that it declares)
    default: Any = _MISSING,
    *,
    description: str = "",
    default_factory: Callable[[], Any] | None = None,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    min_length: int = 0,
) -> Any:
    """Declare one value of a group: its default (none: it must be given), limits and description."""
    return FieldInfo(default, default_factory, description, gt, ge, lt, le, min_length)


class Problem(NamedTuple):
    """One thing that is wrong with the values of a group."""

    path: tuple[str | int, ...]
    """Names of the groups and of the value, and the index in a tuple."""
    text: str
    value: Any
    known: tuple[str, ...] = ()
    """Valid names, if the name is unknown."""

    @property
    def name(self) -> str:
        """The path in one word: ``capture.overhead`` or ``charts[2]``."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")

    def __str__(self) -> str:
        if self.known:
            near = difflib.get_close_matches(self.name.rpartition(".")[2], self.known, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            return f"{self.text} ({meant}known: {', '.join(self.known)})"
        return self.text if self.value is _MISSING else f"{self.text}, not {_SHORT.repr(self.value)}"


class InvalidValues(ConfigError):
    """Raised if values of a group are wrong; ``problems`` lists all of them."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.name}: {problem}" for problem in problems))


class CheckedValues:
    """The base of groups of values. A group is immutable, and equal to another of its class with the same values."""

    fields: ClassVar[Mapping[str, FieldInfo]] = {}
    """Fields by name, those of the base classes first."""

    def __init_subclass__(cls) -> None:
        own = {}
        for name, kind in inspect.get_annotations(cls).items():
            if name.startswith("_") or name == "fields" or "ClassVar" in str(kind):
                continue
            given = cls.__dict__.get(name, _MISSING)
            own[name] = given if isinstance(given, FieldInfo) else Field(given)
            if given is not _MISSING:
                delattr(cls, name)
        cls.fields = types.MappingProxyType({**cls.fields, **own})

    def __init__(self, values: Mapping[Any, Any] | None = None, /, **named: Any) -> None:
        given = {**(values or {}), **named}
        problems: list[Problem] = []
        found = _checked(type(self), given, (), problems) if given else {}
        for name, field in self.fields.items():
            if name not in found and not any(problem.path[0] == name for problem in problems):
                found[name] = field.begin()
                if found[name] is _MISSING:
                    problems.append(Problem((name,), "is missing", _MISSING))
        if problems:
            raise InvalidValues(problems)
        self.__dict__.update(found)

    @classmethod
    def completed(cls, name: str, value: Any) -> Any:
        """Return a value whose type is right, changed if need be. Raises ValueError if it is wrong in another way."""
        del name
        return value

    def replaced(self, **values: Any) -> Self:
        """Return a copy in which some values are others."""
        return type(self)(**{**self.__dict__, **values})

    def __setattr__(self, name: str, value: Any) -> None:
        message = f"{type(self).__name__} is immutable: make another one, such as with replaced({name}=...)"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # a group may hold dictionaries

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


def _checked(
    cls: type[CheckedValues], values: Mapping[Any, Any], path: tuple[str | int, ...], problems: list[Problem]
) -> dict[str, Any]:
    """Return the given values of a group that are right, converted; add what is wrong to ``problems``."""
    found, hints = {}, _hints(cls)  # type: ignore[arg-type]  # mypy: unhashable, as its objects are
    for name, value in values.items():
        field, here = cls.fields.get(name), (*path, str(name))
        if field is None:
            problems.append(Problem(here, "unknown name", _MISSING, tuple(cls.fields)))
            continue
        before = len(problems)
        right = _value(hints[name], value, field, here, problems)
        if len(problems) == before:
            try:
                found[name] = cls.completed(name, right)
            except ValueError as error:
                problems.append(Problem(here, str(error), value))
    return found


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _value(kind: Any, value: Any, field: FieldInfo, path: tuple[str | int, ...], problems: list[Problem]) -> Any:
    """Return a value as its type has it; add a problem if it is of another type or beyond its limits."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # X | None
        if value is None and type(None) in args:
            return None
        return _value(next(arg for arg in args if arg is not type(None)), value, field, path, problems)
    if origin is tuple and isinstance(value, (list, tuple)) and len(value) >= field.least:
        return tuple(_value(args[0], one, field, (*path, at), problems) for at, one in enumerate(value))
    if origin is dict and isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _value(args[1], one, field, (*path, name), problems) for name, one in value.items()}
    if isinstance(kind, type) and issubclass(kind, CheckedValues):
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            inner = _checked(kind, value, path, problems)
            return kind(**inner) if not any(problem.path[: len(path)] == path for problem in problems) else None
    problem, right = _plain(kind, origin, args, value, field)
    if problem:
        problems.append(Problem(path, problem, value))
    return right


def _plain(kind: Any, origin: Any, args: tuple[Any, ...], value: Any, field: FieldInfo) -> tuple[str, Any]:
    """Return what is wrong with a value that holds no others, empty if nothing, and the value as its type has it."""
    if kind in (Any, object):
        return "", value
    if origin is Literal:
        wrong = not any(value == one and type(value) is type(one) for one in args)
        return f"must be {_listed([repr(one) for one in args])}" if wrong else "", value
    if kind in (int, float):
        return _number(kind, value, field)
    if kind in (bool, str):
        return ("" if isinstance(value, kind) else f"must be {_NAMES[kind]}"), value
    if origin is tuple:
        return f"must be a list of at least {field.least}" if field.least else "must be a list", value
    return "must be values by name", value


def _number(kind: type, value: Any, field: FieldInfo) -> tuple[str, Any]:
    """Return what is wrong with a number. Numbers of numpy are numbers; True and strings are none."""
    whole = kind is int
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return f"must be {_NAMES[kind]}", value
    right: float = float(value)
    if not math.isfinite(right):
        return "must be a finite number", value
    if whole:
        if right != int(right):
            return "must be a whole number", value
        right = int(right)
    for name, holds, words in _LIMITS:
        limit = getattr(field, name)
        if limit is not None and not holds(right, limit):
            return f"must be {words} {limit:,}", value
    return "", right


_NAMES = {bool: "True or False", str: "a string", int: "a whole number", float: "a number"}


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
