"""The parameters of layers: a name, a kind that converts what the file says, and Keras's default.

A value of a file is an int, a float, a str, a bool, None or a tuple of those. `bound` gives a layer's values in the
order and under the names of its parameters, and a `Misuse` for each that does not fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neural.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

LARGEST = 10**9
"""The largest size of anything: its square still fits into the 64 bits of a tensor's size."""
REQUIRED: Any = object()
"""The default of a parameter that must be given."""
UNKNOWN: Any = object()
"""The value of an argument that could not be computed, which somebody else has said."""


class Unfit(ValueError):
    """Raised by a kind for a value that it does not take."""


@dataclass(frozen=True)
class Kind:
    """Hold words for the values of one kind, and their conversion."""

    words: str
    """The values that it takes: "a whole number above 0"."""
    convert: Callable[[Any], Any]
    """Return the value in its canonical form, or raise Unfit."""


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Unfit
    return value


def _whole(value: Any) -> int:
    number = _number(value)
    if number != int(number) or abs(number) > LARGEST:
        raise Unfit
    return int(number)


def within(words: str, low: float, high: float, *, whole: bool = False) -> Kind:
    """Return the kind of numbers from `low` to `high`, both included."""

    def convert(value: Any) -> float:
        number = _whole(value) if whole else _number(value)
        if not low <= number <= high:
            raise Unfit
        return number

    return Kind(words, convert)


def one_of(*names: str) -> Kind:
    """Return the kind of some words, in any case."""

    def convert(value: Any) -> str:
        if not isinstance(value, str) or value.lower() not in names:
            raise Unfit
        return value.lower()

    return Kind(" or ".join(f'"{name}"' for name in names), convert)


def sizes(rank: int, words: str = "", least: int = 1) -> Kind:
    """Return the kind of one size for each of `rank` axes; one number stands for all of them."""
    kind = COUNT if least else WHOLE_FROM_0

    def convert(value: Any) -> tuple[int, ...]:
        values = value if isinstance(value, tuple) else (value,) * rank
        if len(values) == 1:
            values *= rank
        if len(values) != rank:
            raise Unfit
        return tuple(kind.convert(each) for each in values)

    several = f" or {rank} of them, such as ({', '.join('3' * rank)})" if rank > 1 else ""
    return Kind(words or f"{kind.words}{several}", convert)


def optional(kind: Kind) -> Kind:
    """Return the kind that takes None as well."""
    return Kind(f"{kind.words} or None", lambda value: None if value is None else kind.convert(value))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit
    return value


def _shape(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, tuple) else (value,)
    if not values:
        raise Unfit
    return tuple(_whole(each) for each in values)


ACTIVATIONS = (
    "elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "log_softmax", "mish", "relu", "relu6",
    "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "swish", "tanh",
)  # fmt: skip


def _activation(value: Any) -> str:
    if value is None:
        return "linear"
    if not isinstance(value, str) or value.lower() not in ACTIVATIONS:
        raise Unfit
    return "silu" if value.lower() == "swish" else value.lower()


COUNT = within("a whole number above 0", 1, LARGEST, whole=True)
WHOLE_FROM_0 = within("a whole number from 0", 0, LARGEST, whole=True)
WHOLE = within("a whole number", -LARGEST, LARGEST, whole=True)
NUMBER = within("a number", -math.inf, math.inf)
FRACTION = within("a number from 0 to 1", 0, 1)
BELOW_ONE = within("a number from 0 to below 1", 0, math.nextafter(1, 0))
POSITIVE = within("a number above 0", math.ulp(0.0), math.inf)
NOT_NEGATIVE = within("a number that is not negative", 0, math.inf)
FLAG = Kind("true or false", _flag)
TEXT = Kind("a string", _text)
SHAPE = Kind("a shape, such as (28, 28, 1)", _shape)
ACTIVATION = Kind("an activation: " + ", ".join(ACTIVATIONS), _activation)
ANYTHING = Kind("a value", lambda value: value)


@dataclass(frozen=True)
class Parameter:
    """Describe one parameter of a layer, an optimizer, a loss or a schedule."""

    name: str
    kind: Kind
    default: Any
    """Keras's default, REQUIRED if it must be given."""
    help: str
    """One sentence without a full stop."""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Given:
    """Hold one argument of a file as a value."""

    name: str | None
    value: Any
    place: Any
    """Where it stands: the caller's own, given back in a Misuse."""


@dataclass(frozen=True)
class Misuse:
    """Describe an argument that does not fit, or one that is missing."""

    message: str
    place: Any
    """The `place` of the argument, None if one is missing."""
    expected: str = ""
    suggestion: str = ""


@dataclass(frozen=True)
class Bound:
    """Hold the values of all parameters, and what did not fit."""

    values: Mapping[str, Any]
    misuses: tuple[Misuse, ...]
    rounded: tuple[Given, ...]
    """Arguments such as `256.0` that were taken as whole numbers."""


def value_words(value: Any) -> str:
    """Return a value as a file would have it, shortened if it is long."""
    if isinstance(value, str):
        words = f'"{value}"'
    elif isinstance(value, bool):
        words = str(value).lower()
    elif isinstance(value, tuple):
        words = f"({', '.join(map(value_words, value))})"
    else:
        words = str(value)
    return words if len(words) <= 40 else words[:37] + "..."


def bound(
    owner: str, parameters: Sequence[Parameter], positional: int, given: Iterable[Given], noun: str = "parameter"
) -> Bound:
    """Return the values of `parameters`, of which the first `positional` may be given by position."""
    by_name = {name: each for each in parameters for name in (each.name, *each.aliases)}
    values: dict[str, Any] = {}
    misuses: list[Misuse] = []
    rounded = []
    at = 0
    # Each argument finds its parameter by its name or its place, and is converted by its kind.
    for argument in given:
        if argument.name is None:
            at += 1
            if at > positional + 1:
                continue  # one is told of
            if at > positional:
                misuses.append(_too_many(owner, parameters[:positional], argument))
                continue
            parameter = parameters[at - 1]
        elif argument.name in by_name:
            parameter = by_name[argument.name]
        else:
            misuses.append(_unknown(owner, parameters, argument, noun))
            continue
        if parameter.name in values:
            misuses.append(Misuse(f"{parameter.name} of {owner} is given twice", argument.place))
            continue
        if argument.value is UNKNOWN:
            values[parameter.name] = UNKNOWN
            continue
        try:
            values[parameter.name] = parameter.kind.convert(argument.value)
        except (Unfit, OverflowError):
            values[parameter.name] = parameter.default
            shown = value_words(argument.value)
            near = nearest(argument.value, ACTIVATIONS) if parameter.kind is ACTIVATION and shown[0] == '"' else ""
            words = parameter.kind.words
            second = parameters[1].name if positional > 1 else ""
            if at == 1 and argument.name is None and second == "activation" and _is_activation(argument.value):
                words = f"{words}; the activation is activation={shown}, or the second argument"
            misuses.append(Misuse(f"{parameter.name} of {owner} is {shown}", argument.place, words, near))
            continue
        if isinstance(argument.value, float) and isinstance(values[parameter.name], int):
            rounded.append(argument)
    # The others have their defaults, if they have any. One that is misspelled is told of once.
    meant = {misuse.suggestion for misuse in misuses}
    for parameter in parameters:
        if parameter.name not in values and parameter.default is REQUIRED and parameter.name not in meant:
            words = f"{parameter.name}, {parameter.kind.words}"
            misuses.append(Misuse(f"{owner} needs {parameter.name}", None, words))
        values.setdefault(parameter.name, parameter.default)
    ordered = {each.name: values[each.name] for each in parameters}
    return Bound(ordered, tuple(misuses), tuple(rounded))


def _is_activation(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in ACTIVATIONS


RARE = ("_initializer", "_regularizer", "_constraint")
COMMON = ("name", "trainable", "dtype", "input_shape", "batch_input_shape")
"""Parameters of every layer, which an error does not list."""


def _unknown(owner: str, parameters: Sequence[Parameter], argument: Given, noun: str) -> Misuse:
    listed = [each.name for each in parameters if not each.name.endswith(RARE) and each.name not in COMMON]
    names = [name for each in parameters for name in (each.name, *each.aliases)]
    words = f"one of {', '.join(listed)}" if listed else f"{owner} without one"
    message = f"{owner} has no {noun} {argument.name!r}"
    return Misuse(message, argument.place, words, nearest(argument.name or "", names))


def _too_many(owner: str, parameters: Sequence[Parameter], argument: Given) -> Misuse:
    names = ", ".join(each.name for each in parameters)
    if not parameters:
        return Misuse(f"{owner} takes its parameters by name only", argument.place, "name=value")
    count = {1: "one argument", 2: "two arguments", 3: "three arguments"}.get(
        len(parameters), f"{len(parameters)} arguments"
    )
    return Misuse(f"{owner} takes at most {count} without a name", argument.place, f"{names}; others as name=value")
