"""Values of a run file's JSON in, the same values out; ValueError names the first that is not what we write.

A run file may come from anybody. What is let in here is formatted, compared and counted on everywhere else, where
nobody asks again. Plain checks: a run that is written is read many times a minute.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from neuraldbg.nouns.run import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[Any, str], Any]
T = TypeVar("T")

LATEST_S = 253_402_300_799
"""The last second of the year 9999, the last that Python's datetime can show, as Unix time."""
_FAR = sys.float_info.max
"""Compared with, for an integer beyond it has no float and NaN is not within."""
_LARGEST = 2**63 - 1
"""Of the integers that an array holds."""
_COUNTS = ("layers", "seen", "errors", "coarse", "backwards", "models", "optimizers", "passes", "graded", "reached")
_LISTS = ("never_fired", "notes")
_NON_FINITE = ("NaN", "Infinity", "-Infinity")


def built(made: Callable[..., T], checks: Mapping[str, Check], raw: Any) -> T:
    """Make a value of a JSON object, each of whose fields passes the check of its name."""
    name = getattr(made, "__name__", "")
    fields = mapping(raw, name)
    unknown = next((field for field in fields if field not in checks), None)
    if unknown is not None:
        raise ValueError(f"{name} has no {unknown!r}")
    return made(**{field: checks[field](value, f"{name}.{field}") for field, value in fields.items()})


def text(value: Any, name: str) -> str:
    """Return a text."""
    return _of(str, value, name)


def flag(value: Any, name: str) -> bool:
    """Return a truth value."""
    return _of(bool, value, name)


def mapping(value: Any, name: str) -> dict[str, Any]:
    """Return an object; JSON has none whose keys are not text."""
    return _of(dict, value, name)


def items(value: Any, name: str) -> list[Any]:
    """Return an array."""
    return _of(list, value, name)


def texts(value: Any, name: str) -> tuple[str, ...]:
    """Return an array of texts."""
    return tuple(text(item, name) for item in items(value, name))


def texts_by_name(value: Any, name: str) -> dict[str, str]:
    """Return an object of texts."""
    return {key: text(item, name) for key, item in mapping(value, name).items()}


def whole(value: Any, name: str) -> int:
    """Return an integer that an array can hold."""
    if type(value) is not int or abs(value) > _LARGEST:  # a bool is an int
        raise _wrong(value, name, "an integer of 64 bits")
    return value


def count(value: Any, name: str) -> int:
    """Return an integer that is not negative."""
    if whole(value, name) < 0:
        raise _wrong(value, name, "a number of things")
    return int(value)


def perhaps(check: Check) -> Check:
    """Return a check that lets null through, too."""
    return lambda value, name: None if value is None else check(value, name)


def number(value: Any, name: str) -> float:
    """Return a finite number."""
    if type(value) not in (int, float) or not -_FAR <= value <= _FAR:
        raise _wrong(value, name, "a finite number")
    return float(value)


def moment(value: Any, name: str) -> float:
    """Return a Unix time that a date can be made of."""
    if not 0 <= number(value, name) <= LATEST_S:
        raise _wrong(value, name, "a time before the year 10000")
    return float(value)


def share(value: Any, name: str) -> float:
    """Return a number from 0 to 1."""
    if not 0 <= number(value, name) <= 1:
        raise _wrong(value, name, "from 0 to 1")
    return float(value)


def outcome_kind(value: Any, name: str) -> str:
    """Return one of OUTCOMES."""
    if text(value, name) not in OUTCOMES:
        raise _wrong(value, name, f"one of {', '.join(OUTCOMES)}")
    return str(value)


def coverage(value: Any, name: str) -> dict[str, Any]:
    """Return RunInfo.coverage; of what it does not document it may hold anything."""
    found = mapping(value, name)
    for key in found.keys() & _COUNTS:
        count(found[key], f"{name}.{key}")
    for key in found.keys() & _LISTS:
        texts(found[key], f"{name}.{key}")
    for what, times in mapping(found.get("failed", {}), f"{name}.failed").items():
        count(times, f"{name}.failed.{what}")
    for what, reason in mapping(found.get("unread", {}), f"{name}.unread").items():
        text(reason, f"{name}.unread.{what}")
    return {**found, "cost": _cost(found["cost"], f"{name}.cost")} if found.get("cost") is not None else found


def _cost(value: Any, name: str) -> dict[str, Any]:
    """Return what watching cost: numbers by name, null where one is not known, and ``parts_s`` of such numbers."""
    return {
        key: _cost(item, f"{name}.{key}") if key == "parts_s" else _known(item, f"{name}.{key}")
        for key, item in mapping(value, name).items()
    }


def _known(value: Any, name: str) -> float | None:
    """Return a number, None for one that is not finite: no budget may be written as an infinite one."""
    if value is None or value in _NON_FINITE:
        return None
    number(value, name)
    return value  # type: ignore[no-any-return]  # an int stays one


def _of(kind: type[T], value: Any, name: str) -> T:
    if not isinstance(value, kind):
        raise _wrong(value, name, {str: "text", bool: "true or false", dict: "an object", list: "an array"}[kind])
    return value


def _wrong(value: Any, name: str, expected: str) -> ValueError:
    said = repr(value)
    return ValueError(f"{name} is {said if len(said) <= 60 else said[:57] + '...'}, not {expected}")
