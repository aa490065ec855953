"""The variables that a loss is the sum of, found in the source: ``reconstruction`` and ``kl`` of
``loss = reconstruction + beta * kl``.

The line that calls ``backward`` enters, names leave. Nothing is executed. Only names that are assigned once in the
function, and sums that are written there, are certain.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from neuraldbg.capture.guest.source_trace import Trace, called_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.capture.guest.source_trace import Scope, Source

_DEPTH = 6
"""Names that are followed one after the other."""
_THROUGH = frozenset({"mean", "sum", "float", "double", "squeeze", "scale"})
"""Functions and methods of which a sum stays a sum."""

Summand = tuple[str, ...]
"""The names of one summand: several where it is a product of names, of which one is the term and the others numbers."""


def summands(source: Source, line: int) -> list[Summand]:
    """Return the summands of the loss whose backward pass is called on a line; [] where the loss is no sum."""
    trace = Trace(source)
    root, scope = trace.differentiated(line)
    found = list(dict.fromkeys(_parts(trace, root, scope, line, 0))) if root is not None else []
    return found if len(found) > 1 else []


def _parts(trace: Trace, value: ast.expr, scope: Scope, line: int, depth: int) -> Iterator[Summand]:
    """Yield the summands of an expression: ``()`` for one that has no name."""
    if depth > _DEPTH:
        yield ()
    elif isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        yield from _parts(trace, value.left, scope, line, depth)
        yield from _parts(trace, value.right, scope, line, depth)
    elif isinstance(value, ast.UnaryOp):
        yield from _parts(trace, value.operand, scope, line, depth)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        sides = [side for side in (value.left, value.right) if not isinstance(side, ast.Constant)]
        if len(sides) == 1:
            yield from _parts(trace, sides[0], scope, line, depth)
        else:
            names = tuple(side.id for side in sides if isinstance(side, ast.Name))
            yield names if len(names) == len(sides) else ()
    elif isinstance(value, ast.Call) and called_name(value) in _THROUGH:
        inner = value.func.value if isinstance(value.func, ast.Attribute) and not value.args else None
        inner = value.args[0] if called_name(value) == "scale" and value.args else inner
        yield from _parts(trace, inner, scope, line, depth) if inner is not None else iter([()])
    elif isinstance(value, ast.Name):
        yield from _named(trace, value, scope, line, depth)
    else:
        yield ()


def _named(trace: Trace, name: ast.Name, scope: Scope, line: int, depth: int) -> Iterator[Summand]:
    given = trace.assigned(name, scope, line)
    sums = [value for value, index in given if index is None and _is_sum(value)]
    if len(given) < 2 and (depth or not sums):
        yield (name.id,)
    if len(given) > 1 or sums:  # ``loss = a`` and ``loss += b``: what is added, wherever it has a name
        for value, index in given:
            if index is not None:
                yield ()
            else:
                yield from _parts(trace, value, scope, value.lineno, depth + 1)


def _is_sum(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        return _is_sum(value.operand)
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, (ast.Add, ast.Sub)) or _is_sum(value.left) or _is_sum(value.right)
    if isinstance(value, ast.Call) and called_name(value) in _THROUGH and isinstance(value.func, ast.Attribute):
        return _is_sum(value.args[0] if called_name(value) == "scale" and value.args else value.func.value)
    return isinstance(value, ast.Name)
