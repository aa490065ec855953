"""The weight of a term in a loss: nodes of the graph in, the derivative of the loss by one element of the term out.

A mean over 8,192 elements gives each of them the weight 1 / 8192, a sum the weight 1. Two terms of one loss are on one
scale only if their elements have about the same weight: a mean beside a sum is a thousandfold between them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.capture.autograd.graph_walk import Node, op_name
from neuraldbg.capture.autograd.output_head import SHAPES, some_of
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.guest.program_objects import is_a

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONG = 64
"""Nodes between a term and the root at most."""


def weight(node: Node, above: Mapping[Node, tuple[Node, int]], root: Node) -> float | None:
    """Return the mean derivative of the root by the elements of a node's result, None if it is not constant or not
    known.
    """
    result = 1.0
    for _ in range(_LONG):
        if node is root:
            return result if math.isfinite(result) else None
        if node not in above:
            return None
        node, place = above[node]
        step = _factor(node, place)
        if step is None:
            return None
        result *= step
    return None


def _factor(node: Node, place: int) -> float | None:
    """Return the mean derivative of all elements of a node's result by one element of an input."""
    name = op_name(node)
    if name in SHAPES or name in ("sum", "nansum"):
        return 1.0
    entered, left = _entering(node, place), elements(node, 0)
    if not entered or not left:
        return None
    if name == "mean":
        return left / entered
    # One element of a scalar that is added to a vector acts on each element of the sum.
    spread = max(1.0, left / entered)
    if name == "neg" or (name in ("sub", "rsub") and place == (1 if name == "sub" else 0)):
        return -spread
    if name in ("add", "sub", "rsub"):
        return spread
    if name in ("mul", "div"):
        value = _other(node, place)
        if value is None or (name == "div" and (place or not value)):
            return None
        return spread * (value if name == "mul" else 1 / value)
    return None


def _entering(node: Node, place: int) -> int:
    above, output = node.next_functions[place]
    return elements(above, output) if above is not None else 0


def elements(node: Node, output: int) -> int:
    """Return the number of elements of one result of a node, 0 if it is not known."""
    shapes: Any = getattr(node, "_input_metadata", None) or ()
    return math.prod(int(size) for size in shapes[output].shape) if output < len(shapes) else 0


def _other(node: Node, place: int) -> float | None:
    """Return the mean of the other factor, or of the divisor; None if it was not saved."""
    other: Any = saved(node, "other") if place == 0 else saved(node, "self")
    if not is_a(other, Tensor) or not other.numel() or other.is_complex():
        return None
    return float(some_of(other).double().mean())
