"""Checks of JSON values from a run file: each returns the value, or raises ValueError with its name if it is not ours.

A run file may come from anybody. A value that passes here is formatted, compared and computed with everywhere else
without further checks. The checks are plain functions: the dashboard reads a run many times a minute.
"""

from __future__ import annotations

import json
import re
import reprlib
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from neuraldbg.nouns.run import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Name: TypeAlias = "str | tuple[Name, str | int]"
    Check = Callable[[Any, Name], Any]
T = TypeVar("T")

LATEST_S = 253_402_300_799
"""Unix time of the last second of the year 9999, the last that Python's ``datetime`` can represent."""
_FAR = sys.float_info.max
"""Largest float. Numbers are compared with it: larger integers have no float, and a comparison with NaN is False."""
FARTHEST = 2**53
"""Largest step number, and largest count."""
_LARGEST = 2**63 - 1
"""Largest integer that an array can hold."""
MOST_TEXT = 1 << 20
"""Characters of one text at most: names of layers, lines of code, messages."""
MOST_VALUES = 1 << 20
"""Values in one JSON text at most, about: each may take 100 bytes of memory for two bytes of text."""
_NUMBER = 40
"""Characters of a number that is a key at most."""
_NUMERIC = re.compile(r"-?([0-9]+\.?[0-9]*(e[-+]?[0-9]+)?|inf)|nan")
_NUMBERED = re.compile(r"-?[0-9]{1,18}")
_DIGITS = 400
"""Digits of an integer at most: more are beyond any float."""
_COUNTS = (
    "by_hand",
    "layers",
    "seen",
    "errors",
    "coarse",
    "backwards",
    "models",
    "optimizers",
    "passes",
    "graded",
    "reached",
    "transformed",
)
_LISTS = ("never_fired", "without_grad", "left_compiled", "notes")
_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NONE: Mapping[str, Any] = MappingProxyType({})
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 57
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict = 2, 4, 4


def parsed(text: Any) -> Any:
    """Parse a strict JSON text: no NaN, no duplicate key, at most MOST_VALUES values. Raises ValueError otherwise.

    Lone surrogates, which file names may hold and which cannot be encoded, are replaced by their escapes.
    """
    if not isinstance(text, str):
        raise _wrong(text, "a JSON text", "text")
    values = sum(map(text.count, ",[{"))
    if values > MOST_VALUES:
        raise ValueError(f"a JSON text holds {values:,} values, where {MOST_VALUES:,} is the most")
    return encodable(DECODER.decode(text), text)


def encodable(found: Any, text: str) -> Any:
    """Return a value parsed from a JSON text, with lone surrogates replaced by their escapes if the text has some."""
    return _whole(found) if "\\ud" in text or "\\uD" in text else found


def _whole(value: Any) -> Any:
    """Replace lone surrogates by their escapes, so that every text can be encoded."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"an object has {short(twice)} twice")
    return made


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"an integer has {len(digits):,} digits")
    return int(digits)


DECODER = json.JSONDecoder(
    parse_constant=_refuse,
    object_pairs_hook=_once,
    # Later versions of Python refuse by themselves: converting a million digits takes a minute.
    parse_int=None if hasattr(sys, "set_int_max_str_digits") else _integer,
)
"""Decoder of strict JSON."""


def cut(said: str) -> str:
    """Return an error's message as one line of at most 300 characters, without control characters."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in said[:300])
    return plain if len(plain) < 300 else f"{plain[:297]}..."


def spelled(name: Name) -> str:
    """Format the name of a nested value: ``loss.terms[0].kind``. Called only for an error message."""
    if isinstance(name, str):
        return name if len(name) <= 60 and name.isprintable() else short(name)
    within, part = name
    return f"{spelled(within)}[{part}]" if isinstance(part, int) else f"{spelled(within)}.{spelled(part)}"


def short(value: Any) -> str:
    """Return a short ASCII representation of a value, for a message."""
    said = _SHORT.repr(value).encode("ascii", "backslashreplace").decode()
    return said if len(said) <= 60 else said[:57] + "..."


def built(made: Callable[..., T], checks: Mapping[str, Check], raw: Any) -> T:
    """Build a value from a JSON object whose fields all pass the check of their name."""
    name = getattr(made, "__name__", "")
    fields = mapping(raw, name)
    unknown = next((field for field in fields if field not in checks), None)
    if unknown is not None:
        raise ValueError(f"{name} has no {short(unknown)}")
    return made(**{field: checks[field](value, (name, field)) for field, value in fields.items()})


def text(value: Any, name: Name) -> str:
    """Check a text of at most MOST_TEXT characters."""
    if len(_of(str, value, name)) > MOST_TEXT:
        raise ValueError(f"{spelled(name)} has {len(value):,} characters, where {MOST_TEXT:,} is the most")
    return str(value)


def message(value: Any, name: Name) -> str:
    """Check a text and cut it to MOST_TEXT characters: an error message of the program may have any length."""
    return _of(str, value, name)[:MOST_TEXT]


def flag(value: Any, name: Name) -> bool:
    """Check a bool."""
    return _of(bool, value, name)


def mapping(value: Any, name: Name) -> dict[str, Any]:
    """Check an object; the keys of a JSON object are always text."""
    return _of(dict, value, name)


def items(value: Any, name: Name) -> list[Any]:
    """Check an array."""
    return _of(list, value, name)


def texts(value: Any, name: Name) -> tuple[str, ...]:
    """Check an array of texts."""
    return tuple(text(item, name) for item in items(value, name))


def texts_by_name(value: Any, name: Name) -> dict[str, str]:
    """Check an object whose values are texts."""
    return {text(key, name): text(item, name) for key, item in mapping(value, name).items()}


def whole(value: Any, name: Name) -> int:
    """Check an integer of 64 bits."""
    if type(value) is not int or abs(value) > _LARGEST:  # a bool is an int
        raise _wrong(value, name, "an integer of 64 bits")
    return value


def count(value: Any, name: Name) -> int:
    """Check a count: an integer from 0 to FARTHEST."""
    if type(value) is not int or not 0 <= value <= FARTHEST:
        raise _wrong(value, name, "a number of things")
    return value


def step(value: Any, name: Name) -> int:
    """Check a step number or a number of steps, 0 to FARTHEST: arithmetic with a few of them stays within 64 bits."""
    if type(value) is not int or not 0 <= value <= FARTHEST:
        raise _wrong(value, name, "a step")
    return value


def perhaps(check: Check) -> Check:
    """Return a check that accepts null as well."""
    return lambda value, name: None if value is None else check(value, name)


def number(value: Any, name: Name) -> float:
    """Check a finite number."""
    if type(value) not in (int, float) or not -_FAR <= value <= _FAR:
        raise _wrong(value, name, "a finite number")
    return float(value)


def moment(value: Any, name: Name) -> float:
    """Check a Unix time that Python's ``datetime`` can represent."""
    if not 0 <= number(value, name) <= LATEST_S:
        raise _wrong(value, name, "a time before the year 10000")
    return float(value)


def share(value: Any, name: Name) -> float:
    """Check a number from 0 to 1."""
    if not 0 <= number(value, name) <= 1:
        raise _wrong(value, name, "from 0 to 1")
    return float(value)


def outcome_kind(value: Any, name: Name) -> str:
    """Check that a text is one of OUTCOMES."""
    if text(value, name) not in OUTCOMES:
        raise _wrong(value, name, f"one of {', '.join(OUTCOMES)}")
    return str(value)


def coverage(value: Any, name: Name) -> dict[str, Any]:
    """Check the documented fields of ``RunInfo.coverage``; others may hold anything."""
    found = mapping(value, name)
    for key in found.keys() & _COUNTS:
        count(found[key], (name, key))
    for key in found.keys() & _LISTS:
        texts(found[key], (name, key))
    for what, times in mapping(found.get("failed", {}), (name, "failed")).items():
        count(times, ((name, "failed"), what))
    for what, reason in mapping(found.get("unread", {}), (name, "unread")).items():
        text(reason, ((name, "unread"), what))
    return {**found, "cost": _cost(found["cost"], (name, "cost"))} if found.get("cost") is not None else found


def job(value: Any, name: Name) -> dict[str, Any]:
    """Check the place of a process in a job: counts by name, and the job's name; {} for a single process."""
    found = mapping(value, name)
    return {key: text(item, (name, key)) if key == "id" else count(item, (name, key)) for key, item in found.items()}


def _cost(value: Any, name: Name) -> dict[str, Any]:
    """Check the cost of watching: numbers by name, null for unknown ones; ``parts_s`` is an object of them."""
    return {
        key: _cost(item, (name, key)) if key == "parts_s" else _known(item, (name, key))
        for key, item in mapping(value, name).items()
    }


def _known(value: Any, name: Name) -> float | None:
    """Check a number; a non-finite one becomes None: a session without a budget may have written infinity."""
    if value is None or (type(value) is str and value in _NON_FINITE):
        return None
    number(value, name)
    return value  # type: ignore[no-any-return]  # an int stays one


# ---------------------------------------------------------------- of values inside of values


class Lacking(ValueError):
    """Raised for an object of another version, which lacks a required field."""


def of(must: Mapping[str, Check], may: Mapping[str, Check] = _NONE, *joined: tuple[str, ...]) -> Check:
    """Return a check of an object by the names of its fields. Fields in neither mapping are accepted.

    If the first field of a ``joined`` group is present, the others are required.
    """
    known = {**must, **may}

    def check(value: Any, name: Name) -> dict[str, Any]:
        fields = mapping(value, name)
        for key in must:
            if key not in fields:
                raise Lacking(f"{spelled(name)} has no {key!r}")
        for first, *others in joined:
            if first in fields and (lacking := [key for key in others if key not in fields]):
                raise Lacking(f"{spelled(name)} has no {lacking[0]!r}")
        return {key: known.get(key, _any)(item, (name, key)) for key, item in fields.items()}

    return check


def each(one: Check) -> Check:
    """Return a check of an array whose items all pass a check."""

    def check(value: Any, name: Name) -> list[Any]:
        return [one(item, (name, place)) for place, item in enumerate(items(value, name))]

    return check


def row(*parts: Check) -> Check:
    """Return a check of an array with one item for each of ``parts``, which passes it."""

    def check(value: Any, name: Name) -> list[Any]:
        found = items(value, name)
        if len(found) != len(parts):
            raise _wrong(value, name, f"an array of {len(parts)}")
        return [part(item, (name, place)) for place, (part, item) in enumerate(zip(parts, found, strict=True))]

    return check


def pair(one: Check) -> Check:
    """Return a check of an array of two items that both pass a check."""
    return row(one, one)


def named(one: Check) -> Check:
    """Return a check of an object with any keys, whose values all pass a check."""
    return named_by(text, one)


def named_by(key: Check, one: Check) -> Check:
    """Return a check of an object whose keys pass one check, and whose values pass another."""

    def check(value: Any, name: Name) -> dict[str, Any]:
        return {key(k, (name, "names")): one(item, (name, k)) for k, item in mapping(value, name).items()}

    return check


def any_of(*checks: Check) -> Check:
    """Return a check that accepts a value if one of ``checks`` does, and returns the result of the first that does."""

    def check(value: Any, name: Name) -> Any:
        for one in checks:
            try:
                return one(value, name)
            except ValueError:
                continue
        raise _wrong(value, name, "a value that it may have")

    return check


def one_of(*values: int | str) -> Check:
    """Return a check that accepts only ``values``."""

    def check(value: Any, name: Name) -> Any:
        if type(value) is bool or value not in values:
            raise _wrong(value, name, f"one of {', '.join(map(str, values))}")
        return value

    return check


def word(*values: str) -> Check:
    """Return a check that accepts only ``values``, and raises Lacking for any other: a later version may have more."""

    def check(value: Any, name: Name) -> str:
        if text(value, name) not in values:
            raise Lacking(f"{spelled(name)} is {short(value)}, which is not known yet")
        return str(value)

    return check


def integer(value: Any, name: Name) -> int:
    """Check an integer that a float can hold exactly: arithmetic with a few of them stays within 64 bits."""
    if type(value) is not int or abs(value) > FARTHEST:
        raise _wrong(value, name, "an integer")
    return value


def wide(value: Any, name: Name) -> int | float:
    """Check a number, or an integer of 64 bits: the id that marks ignored targets may have any value."""
    return whole(value, name) if type(value) is int else real(value, name)


def real(value: Any, name: Name) -> float:
    """Check a number; the texts "NaN", "Infinity" and "-Infinity" are converted to floats."""
    if type(value) is str and value in _NON_FINITE:
        return _NON_FINITE[value]
    if type(value) not in (int, float) or (type(value) is int and abs(value) > _LARGEST):
        raise _wrong(value, name, "a number")
    return value  # type: ignore[no-any-return]  # an int stays one


def numeric(value: Any, name: Name) -> str:
    """Check a text that spells a number: the keys of a JSON object are always text."""
    if len(text(value, name)) > _NUMBER or not _NUMERIC.fullmatch(value):
        raise _wrong(value, name, "a number")
    return str(value)


def numbered(value: Any, name: Name) -> str:
    """Check a text that spells an integer of 64 bits, such as the id of a class."""
    if not _NUMBERED.fullmatch(text(value, name)):
        raise _wrong(value, name, "an integer")
    return str(value)


def line(value: Any, name: Name) -> list[Any]:
    """Check [file, line number, source line]; the source line is "" if it is not known."""
    found = items(value, name)
    if len(found) not in (2, 3):
        raise _wrong(value, name, "a line of code")
    return [text(found[0], name), count(found[1], name), text(found[2], name) if len(found) == 3 else ""]


def revived(value: Any) -> Any:
    """Convert the strings "NaN", "Infinity" and "-Infinity" in a JSON value back to numbers."""
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, list):
        return [revived(item) for item in value]
    if isinstance(value, dict):
        return {key: revived(item) for key, item in value.items()}
    return value


def _any(value: Any, name: Name) -> Any:
    """Accept the value of a field that is not known."""
    del name
    return revived(value)


def _of(kind: type[T], value: Any, name: Name) -> T:
    if not isinstance(value, kind):
        raise _wrong(value, name, {str: "text", bool: "true or false", dict: "an object", list: "an array"}[kind])
    return value


def _wrong(value: Any, name: Name, expected: str) -> ValueError:
    return ValueError(f"{spelled(name)} is {short(value)}, not {expected}")
