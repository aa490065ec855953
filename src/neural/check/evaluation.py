"""Compute values: a value of the tree and the arguments of the macro around it enter, a plain value leaves.

Plain values are int, float, str, bool, None, tuples of them, and `Called` for a name with arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neural.check.findings import ValueFault
from neural.errors import nearest
from neural.language.tree import (
    Arithmetic,
    Call,
    Flag,
    Hpo,
    ListValue,
    Nothing,
    Number,
    Settings,
    Text,
    TupleValue,
    Value,
    Variable,
    Word,
)
from neural.layers.parameter import UNKNOWN, Given, value_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neural.check.findings import Findings
    from neural.errors import Span
    from neural.language.tree import Argument

LARGEST = 1e15
"""Larger results of arithmetic are mistakes, and would grow without end."""
KINDS = ("choice", "categorical", "range", "log_range")


@dataclass(frozen=True)
class Called:
    """Hold a name with computed arguments: an optimizer or a schedule."""

    name: str
    given: tuple[Given, ...]
    span: Span

    def __str__(self) -> str:
        return f"{self.name}(...)"


@dataclass(frozen=True)
class Scope:
    """Hold what a value of a file may refer to."""

    findings: Findings
    variables: Mapping[str, Any]
    """The arguments of the macro around the value, empty outside of macros."""
    trail: tuple[str, ...] = ()
    """Where the macros around the value are used, from the inside out."""


def evaluate(value: Value, scope: Scope) -> Any:
    """Return the plain value. ValueFault is raised if there is none."""
    match value:
        case Number() | Flag():
            return value.value
        case Text():
            return value.text
        case Word():
            return value.name
        case Nothing():
            return None
        case Variable():
            return _variable(value, scope)
        case TupleValue() | ListValue():
            return _several(value, scope)
        case Arithmetic():
            return _arithmetic(value, scope)
        case Hpo():
            return _searched(value, scope)
        case Call():
            return Called(value.name, given(value.arguments, scope), value.span)
        case Settings():
            raise ValueFault("settings in curly brackets are no value here", value.span)


def given(arguments: Sequence[Argument], scope: Scope) -> tuple[Given, ...]:
    """Return arguments with computed values; those that cannot be computed become problems, and are UNKNOWN."""
    found = []
    for argument in arguments:
        try:
            value = evaluate(argument.value, scope)
        except ValueFault as fault:
            scope.findings.fault(fault, scope.trail)
            value = UNKNOWN
        found.append(Given(argument.name, value, argument.span))
    return tuple(found)


def _several(value: TupleValue | ListValue, scope: Scope) -> tuple[Any, ...]:
    items = tuple(evaluate(item, scope) for item in value.items)
    # Macros that each double their argument would make a value without end.
    if any(isinstance(each, tuple) and any(isinstance(one, tuple) for one in each) for each in items):
        raise ValueFault("brackets inside brackets inside brackets are no value", value.span)
    return items


def _variable(value: Variable, scope: Scope) -> Any:
    if value.name in scope.variables:
        if scope.variables[value.name] is UNKNOWN:
            raise ValueFault("", value.span)
        return scope.variables[value.name]
    known = scope.variables or ()
    words = (
        f"one of {', '.join('$' + name for name in known)}" if known else "a $name only stands in a macro that has it"
    )
    near = nearest(value.name, known)
    raise ValueFault(f"${value.name} is no parameter of this macro", value.span, words, f"${near}" if near else "")


# ---------------------------------------------------------------- arithmetic


def _arithmetic(value: Arithmetic, scope: Scope) -> int | float:
    result = _operand(value.first, scope)
    for sign, part in value.rest:
        other = _operand(part, scope)
        try:
            result = _result(sign, result, other)
        except (ZeroDivisionError, OverflowError):
            raise ValueFault(f"{result} {sign} {other} has no result", value.span) from None
        if abs(result) > LARGEST:
            raise ValueFault("the result of this arithmetic is too large", value.span, f"at most {LARGEST:g}")
    return result


def _result(sign: str, left: float, right: float) -> int | float:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            whole = isinstance(left, int) and isinstance(right, int) and left % right == 0
            return int(left) // int(right) if whole else left / right


def _operand(part: Value, scope: Scope) -> int | float:
    found = evaluate(part, scope)
    if isinstance(found, tuple) and len(found) == 1:
        (found,) = found
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        shown = found.name if isinstance(found, Called) else value_words(found)
        raise ValueFault(f"{shown} is no number, and arithmetic needs one", part.span)
    return found


# ---------------------------------------------------------------- searches


def _searched(value: Hpo, scope: Scope) -> Any:
    kind = value.kind.lower()
    if kind not in KINDS:
        near = nearest(value.kind, KINDS)
        raise ValueFault(f"unknown search {value.kind!r}", value.span, "one of " + ", ".join(KINDS), near)
    if kind in {"choice", "categorical"}:
        return _chosen(value, scope)
    return _between(value, kind, scope)


def _chosen(value: Hpo, scope: Scope) -> Any:
    values: list[Any] = []
    for argument in value.arguments:
        found = evaluate(argument.value, scope)
        # choice([a, b]) means the same as choice(a, b); a choice among one tuple of sizes is that tuple.
        values += found if isinstance(argument.value, ListValue) and len(value.arguments) == 1 else [found]
    if not values:
        raise ValueFault("a choice without values", value.span, "HPO(choice(32, 64))")
    taken = scope.findings.search("choice", tuple(values), values[0], value.span)
    scope.findings.note(value.span, f"search: {value_words(taken)} is taken, of {_listed(values)}")
    return taken


def _listed(values: list[Any]) -> str:
    shown = [value_words(each) for each in values[:6]]
    return ", ".join(shown) + (", ..." if len(values) > 6 else "")


def _between(value: Hpo, kind: str, scope: Scope) -> int | float:
    names = ("low", "high", "step")
    aliases = {"start": "low", "min": "low", "end": "high", "stop": "high", "max": "high"}
    found: dict[str, Any] = {}
    for place, argument in enumerate(value.arguments):
        name = aliases.get(argument.name, argument.name) if argument.name else names[min(place, 2)]
        number = evaluate(argument.value, scope)
        if name not in names or name in found or isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ValueFault(f"this is no part of {kind}", argument.span, f"HPO({kind}(low, high{STEP[kind]}))")
        found[name] = number
    low, high, step = found.get("low"), found.get("high"), found.get("step")
    if low is None or high is None:
        raise ValueFault(f"{kind} needs two numbers", value.span, f"HPO({kind}(low, high{STEP[kind]}))")
    if not low <= high or (step is not None and step <= 0) or (kind == "log_range" and low <= 0):
        words = "two numbers above 0" if kind == "log_range" else "a first number that is not above the second"
        raise ValueFault(f"{kind} from {low} to {high} has no values", value.span, words)
    usual = _middle(kind, low, high, step)
    taken: int | float = scope.findings.search(kind, (low, high, step), usual, value.span)
    scope.findings.note(value.span, f"search: {taken} is taken, between {low} and {high}")
    return taken


STEP = {"range": ", step=s", "log_range": ""}


def _middle(kind: str, low: float, high: float, step: float | None) -> int | float:
    """Return the middle value, of the same type as the ends; the geometric one for log_range."""
    whole = all(isinstance(each, int) for each in (low, high, step if step is not None else 0))
    if kind == "log_range":
        middle = math.sqrt(low) * math.sqrt(high)
    elif step is not None:
        middle = low + step * ((math.floor((high - low) / step + 1e-9)) // 2)
    else:
        middle = (low + high) / 2
    return round(middle) if whole else float(f"{middle:.6g}")
