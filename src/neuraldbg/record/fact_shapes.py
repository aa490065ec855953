"""Checks of every kind of fact, made from the types of its dataclass: a fact's JSON value in, the same value out.

Causes read facts without checking them again, so every fact passes through here. A field of another type, or out of its
range, is a ValueError that names it. A fact that lacks a field without a default is of another version: ``Lacking``.
Kinds of facts and fields that a later version adds are accepted, and not read.

In a run file a non-finite number is a string. It is converted to a number only in a field for numbers: a layer may be
called "NaN".
"""

from __future__ import annotations

import types
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from neuraldbg.nouns.facts import type_of
from neuraldbg.nouns.facts.kinds import CLASS_ID, COUNT, NUMERAL, WIDE, SourceLine
from neuraldbg.nouns.facts.known import UNIONS, Known, layout
from neuraldbg.record import validation
from neuraldbg.record.validation import (
    any_of,
    count,
    each,
    flag,
    integer,
    line,
    mapping,
    named_by,
    numbered,
    numeric,
    of,
    one_of,
    perhaps,
    real,
    revived,
    row,
    text,
    wide,
    word,
)

if TYPE_CHECKING:
    from neuraldbg.record.validation import Check

Lacking = validation.Lacking

_PLAIN: dict[Any, Check] = {bool: flag, int: integer, float: real, str: text, SourceLine: line}
_MARKED: dict[str, Check] = {COUNT: count, WIDE: wide, CLASS_ID: numbered, NUMERAL: numeric}


@cache
def _check(kind: Any) -> Check:
    """Return the check of a value of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin is Annotated:
        return _MARKED[args[1]]
    if origin is Literal:
        return word(*args) if isinstance(args[0], str) else one_of(*args)
    if origin in UNIONS:
        some = [_check(arg) for arg in args if arg is not types.NoneType]
        check = some[0] if len(some) == 1 else any_of(*some)
        return perhaps(check) if types.NoneType in args else check
    if origin is tuple:
        return each(_check(args[0])) if args[1:] == (...,) else row(*map(_check, args))
    if origin is dict:
        return named_by(_check(args[0]), _check(args[1]))
    if hasattr(kind, "_fields"):
        return row(*(_check(one.kind) for one in layout(kind)))
    return _object(kind)


@cache
def _object(cls: Any) -> Check:
    """Return the check of a JSON object by the fields of a dataclass."""
    if issubclass(cls, Known) and cls.WHOLE:
        return next(_check(one.kind) for one in layout(cls) if one.name == cls.WHOLE)
    must = {one.key: _check(one.kind) for one in layout(cls) if one.needed}
    may = {one.key: _check(one.kind) for one in layout(cls) if not one.needed}
    return of(must, may, *getattr(cls, "JOINED", ()))


def fitting(key: str, value: Any) -> dict[str, Any]:
    """Convert a fact's value back from its JSON form. Raises ValueError or Lacking, which name the wrong field."""
    known = type_of(key)
    if known is None:
        return revived(mapping(value, "Fact.value"))  # type: ignore[no-any-return]
    chosen: Any = known.variant(mapping(value, key))
    return _object(chosen)(value, key)  # type: ignore[no-any-return]
