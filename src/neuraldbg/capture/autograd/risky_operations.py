"""The operations that can turn finite values, or finite gradients, into non-finite ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class Risky(NamedTuple):
    """The part of an operation that shows whether it leaves its domain."""

    operand: str
    """The tensor to read, among those that autograd saves: ``self``, ``other``, ``x1`` or ``result``."""
    mask: Callable[[Tensor], Tensor] | None = None
    """Returns the elements at which value or slope is not finite; None if the operand alone does not tell."""


RISKY: dict[str, Risky] = {
    "log": Risky("self", lambda x: ~(x > 0)),
    "log2": Risky("self", lambda x: ~(x > 0)),
    "log10": Risky("self", lambda x: ~(x > 0)),
    "log1p": Risky("self", lambda x: ~(x > -1)),
    "sqrt": Risky("result", lambda x: ~(x > 0)),
    "rsqrt": Risky("result", lambda x: ~x.isfinite()),
    "reciprocal": Risky("result", lambda x: ~x.isfinite()),
    "div": Risky("other", lambda x: x == 0),
    "pow": Risky("self"),
    "exp": Risky("result", lambda x: ~x.isfinite()),
    "acos": Risky("self", lambda x: ~(x.abs() < 1)),
    "asin": Risky("self", lambda x: ~(x.abs() < 1)),
    "atanh": Risky("self", lambda x: ~(x.abs() < 1)),
    "linalgvectornorm": Risky("result", lambda x: ~(x > 0)),
    "norm": Risky("result", lambda x: ~(x > 0)),
    "std": Risky("result", lambda x: ~(x > 0)),
    "var": Risky("self"),
    "xlogy": Risky("self"),
    "logsumexp": Risky("result", lambda x: ~x.isfinite()),
    "cosinesimilarity": Risky("x1"),
}
"""By the operation's name in the graph."""
