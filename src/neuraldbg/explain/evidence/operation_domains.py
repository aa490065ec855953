"""The domains in which risky operations of a loss are finite: an operand's statistics enter, its violation leaves.

Operands are named as capture reads them from the graph: ``input``, ``result`` and ``divisor``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.wording import number, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

TINY = {"float16": 6.1e-5, "bfloat16": 1.18e-38, "float32": 1.18e-38, "float64": 2.3e-308}
"""Smallest normal number of each format: the derivative 1/x of a logarithm overflows not far below it."""
LOGARITHMS = ("log", "log2", "log10", "xlogy")
BOUNDED = ("acos", "asin", "atanh")
ZERO_RESULT = ("sqrt", "norm", "linalgvectornorm", "std", "cdist")
"""Operations whose derivative is infinite or undefined where the result is zero."""
POLE = ("rsqrt", "reciprocal", "exp", "logsumexp", "sqrt")
"""Operations whose result itself is not finite outside the domain."""

Broken = tuple[str, float, float]
"""The violation in words that follow the operand's name, the value, and the edge of the domain."""


def broken(op: str, operand: str, stats: Mapping[str, float], dtype: str) -> Broken | None:
    """Return the violation of an operand that is outside its operation's domain; None if it is inside.

    ``stats`` has ``min``, ``max``, ``zeros`` and ``nonfinite`` of the operand at the step in question.
    """
    zeros, low, high = stats["zeros"], stats["min"], stats["max"]
    zero: Broken = (f"holds {plural(int(zeros), 'exact zero')}", 0, 0)
    if operand == "result":
        if op in POLE and stats["nonfinite"] > 0:
            return "is not finite", math.inf, 0.0
        return zero if op in ZERO_RESULT and zeros > 0 else None
    if op in LOGARITHMS:
        edge = TINY.get(dtype.removeprefix("torch."), 1.18e-38)
        return (f"goes down to {number(low)}", low, edge) if low < edge else None
    if op == "log1p":
        return (f"goes down to {number(low)}", low, -1.0) if low <= -1 else None
    if op == "div" or operand == "divisor" or op == "pow":
        return zero if zeros > 0 else None
    if op == "var":
        return ("holds equal values", 0.0, 0.0) if low == high else None
    if op in BOUNDED:
        far = max(-low, high)
        return (f"reaches {number(far)}", far, 1.0) if far >= 1 else None
    return None
