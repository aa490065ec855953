"""Conditions that a user writes as text: ``loss > 5 and layer.rms > 100``. The text is parsed, and never executed.

The text is an expression in Python's syntax. It may have numbers, names, ``layer.STATISTIC``, arithmetic, comparisons,
``and``, ``or``, ``not``, and the functions ``abs``, ``log10``, ``isnan``, ``isfinite``, ``min`` and ``max``.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from typing import TYPE_CHECKING, Any

from neuraldbg.errors import ConfigError
from neuraldbg.nouns import SCALARS, STATS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMES = ("step", "memory", *SCALARS)
"""Names that a condition may use beside those of the layer: the number of the step, the bytes of memory in use (of the
GPU if one is used, else resident), and the scalars of a step."""
OF_A_LAYER = (*STATS, "norm", "absmax")
"""Names after ``layer.``: the statistics of the tensor that is read, its L2 norm and its largest absolute value."""
LONGEST = 1_000
"""Characters of a condition at most."""
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_COMPUTED: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, tuple[Callable[..., float], int]] = {
    "abs": (abs, 1),
    "log10": (math.log10, 1),
    "isnan": (math.isnan, 1),
    "isfinite": (math.isfinite, 1),
    "min": (min, 2),
    "max": (max, 2),
}
"""Functions, each with the least number of its arguments; only ``min`` and ``max`` take more."""


class Condition:
    """A condition on the numbers of a step, and of a layer in it.

    A part that needs a number which was not measured is unknown, as is arithmetic without a result (a division by
    zero); an unknown condition does not hold (Kleene's three-valued logic). Raises ConfigError for a text that is no
    such expression.
    """

    def __init__(self, text: str) -> None:
        given: Any = text
        if not isinstance(given, str) or not text.strip() or len(text) > LONGEST:
            message = f"a condition is a text of up to {LONGEST:,} characters, such as 'loss > 5', not {text!r:.60}"
            raise ConfigError(message)
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
            self._check(self._tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, ConfigError):
                raise
            reason = error.msg if isinstance(error, SyntaxError) else "it cannot be parsed"
            message = f"{self.text!r} is no condition: {reason}. A condition reads like 'loss > 5 and layer.rms > 100'"
            raise ConfigError(message) from None

    @property
    def names(self) -> frozenset[str]:
        """Names of the numbers of a step that the condition needs."""
        return frozenset(node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)) & {*NAMES}

    @property
    def of_a_layer(self) -> bool:
        """True if the condition is about the tensor of a layer."""
        return any(isinstance(node, ast.Attribute) for node in ast.walk(self._tree))

    def holds(self, values: Mapping[str, float], layer: Mapping[str, float] | None = None) -> bool:
        """Return True if the condition holds for the numbers of a step, by NAMES, and of a layer, by OF_A_LAYER.

        >>> Condition("loss > 5 and layer.rms > 100").holds({"loss": 6.0}, {"rms": 120.0})
        True
        """
        return bool(_value(self._tree, values, layer or {}))

    def measured(self, values: Mapping[str, float], layer: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return the numbers of the step and of the layer that the condition names, by the names in its text.

        >>> Condition("loss > 5 and layer.rms > 100").measured({"loss": 6.0, "lr": 0.1}, {"rms": 120.0})
        {'loss': 6.0, 'layer.rms': 120.0}
        """
        found: dict[str, float] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Attribute) and node.attr in (layer or {}):
                found[f"layer.{node.attr}"] = (layer or {})[node.attr]
            elif isinstance(node, ast.Name) and node.id in NAMES and node.id in values:
                found[node.id] = values[node.id]
        return found

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and ast.dump(self._tree) == ast.dump(other._tree)

    def __hash__(self) -> int:
        return hash(ast.dump(self._tree))

    def _check(self, node: ast.expr) -> None:
        """Raise ConfigError for a part that is not allowed, or a name that is not known."""
        match node:
            case ast.BoolOp(values=parts):
                pass
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=part):
                parts = [part]
            case ast.BinOp(left=left, right=right, op=op) if type(op) in _COMPUTED:
                parts = [left, right]
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARED for op in ops):
                parts = [left, *others]
            case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _FUNCTIONS:
                least = _FUNCTIONS[name][1]
                if len(parts) < least or (least == 1 and len(parts) > 1):
                    self._refuse(f"{name} takes {'one number' if least == 1 else 'two numbers or more'}")
            case ast.Constant(value=bool() | int() | float()):
                parts = []
            case ast.Name(id=name):
                parts = []
                if name not in NAMES:
                    self._refuse(f"there is no number called {name!r}", name, NAMES)
            case ast.Attribute(value=ast.Name(id="layer"), attr=name):
                parts = []
                if name not in OF_A_LAYER:
                    self._refuse(f"a layer has no statistic {name!r}", name, OF_A_LAYER)
            case _:
                self._refuse(f"{ast.unparse(node)!r:.60} is not allowed in a condition")
        for part in parts:
            self._check(part)

    def _refuse(self, reason: str, name: str = "", known: tuple[str, ...] = ()) -> None:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f". Did you mean {' or '.join(near)}?" if near else f"; known are {', '.join(known)}" if known else ""
        message = f"{self.text!r}: {reason}{hint}"
        raise ConfigError(message)


def _value(node: ast.expr, values: Mapping[str, float], layer: Mapping[str, float]) -> float | bool | None:
    """Return the value of a checked expression, None if a number that it needs was not measured."""
    match node:
        case ast.Constant(value=value):
            return value  # type: ignore[return-value] # checked: a number
        case ast.Name(id=name):
            return values.get(name)
        case ast.Attribute(attr=name):
            return layer.get(name)
        case ast.BoolOp(op=op, values=parts):
            found = [_value(part, values, layer) for part in parts]
            decides = isinstance(op, ast.Or)  # one True decides an "or", one False an "and"
            if any(one is not None and bool(one) is decides for one in found):
                return decides
            return None if None in found else not decides
        case ast.UnaryOp(op=ast.Not(), operand=part):
            inner = _value(part, values, layer)
            return None if inner is None else not inner
        case ast.UnaryOp(op=op, operand=part):
            inner = _value(part, values, layer)
            return inner if inner is None or isinstance(op, ast.UAdd) else -inner
        case ast.Compare():
            return _compared(node, values, layer)
        case ast.BinOp(left=left, op=operation, right=right):
            return _computed(_COMPUTED[type(operation)], [left, right], values, layer)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _computed(_FUNCTIONS[name][0], args, values, layer)
    message = f"a part of a condition was not checked: {ast.dump(node)}"
    raise AssertionError(message)


def _compared(node: ast.Compare, values: Mapping[str, float], layer: Mapping[str, float]) -> bool | None:
    found = [_value(part, values, layer) for part in (node.left, *node.comparators)]
    told = [
        None if left is None or right is None else _COMPARED[type(op)](left, right)
        for left, op, right in zip(found, node.ops, found[1:], strict=False)
    ]
    if False in told:
        return False
    return None if None in told else True


def _computed(
    function: Callable[..., float], parts: list[ast.expr], values: Mapping[str, float], layer: Mapping[str, float]
) -> float | None:
    found = [_value(part, values, layer) for part in parts]
    if None in found:
        return None
    try:
        return function(*found)
    except (ArithmeticError, ValueError):
        return None
