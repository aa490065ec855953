"""The operations directly under a loss, and the path from a term to the root: nodes in, JSON out.

Only read when facts are read. ``loss_terms`` adds the result of ``describe`` to each term of the LOSS fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.autograd.graph_walk import Node, op_name, parents
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.guest.program_objects import is_a

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.autograd.graph_walk import Marks

SHAPES = frozenset(
    [
        "view", "reshape", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand", "slice", "select", "clone",
        "alias", "unsafeview", "asstrided", "tocopy", "to", "split", "splitwithsizes", "chunk", "unbind", "narrow",
        "contiguous", "copyb", "gather", "index", "squeezedim",
    ]
)  # fmt: skip
_WEIGHTS = frozenset(["addmm", "convolution", "mkldnnlinear", "linear", "addmv", "addbmm", "mkldnnconvolution"])
"""Operations of a layer with weights, at which a chain ends."""
_LONG = 12
_LINEAR = frozenset(["add", "mean", "sum", "nansum", *SHAPES])
"""Operations between a term and the root that keep its sign."""
_ROWS = 256
_COLUMNS = 16
BOUNDS = {"sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0), "relu": (0.0, float("inf"))}
"""Range of the values that an operation can return."""
_SLACK = 0.01
_CAP = 65_536


def chain(node: Node | None, layers: Marks) -> tuple[list[str], Node | None, bool]:
    """Return the operations between a loss and the last weights, nearest to the loss first, without changes of shape;
    the node of the first of them; and True if the chain ended at weights.
    """
    names: list[str] = []
    first: Node | None = None
    for _ in range(3 * _LONG):
        if node is None or len(names) == _LONG:
            break
        name = op_name(node)
        if name in _WEIGHTS or (name in ("mm", "add", "bmm") and _owned(node, layers)):
            return names, first, True
        if name not in SHAPES:
            names.append(name.removeprefix("safe"))
            first = first if first is not None else node
        node = next(parents(node), (None, 0))[0]
    return names, first, False


def _owned(node: Node, layers: Marks) -> bool:
    """Return True if a product (or the addition of a bias) is a layer's, or has a parameter as its factor."""
    return layers.get(node) is not None or any(
        op_name(deep) == "accumulategrad" for p, _ in parents(node) for deep in (p, *(q for q, _ in parents(p)))
    )


def links(nodes: Iterable[Node]) -> dict[Node, tuple[Node, int]]:
    """Return for each node its consumer nearest to the root, and the input index there."""
    found: dict[Node, tuple[Node, int]] = {}
    for node in nodes:
        for place, (parent, _) in enumerate(node.next_functions):
            if parent is not None:
                found.setdefault(parent, (node, place))
    return found


def path(node: Node, above: dict[Node, tuple[Node, int]], root: Node) -> tuple[int, ...] | None:
    """Return the ``next_functions`` indices that lead from the root to a node, None if the path is longer than 64."""
    places: list[int] = []
    while node is not root:
        if node not in above or len(places) > 64:
            return None
        node, place = above[node]
        places.append(place)
    return tuple(reversed(places))


def sign(node: Node, above: dict[Node, tuple[Node, int]], root: Node) -> int:
    """Return 1 if the root increases with a node, -1 if it decreases, 0 if that is not known."""
    result = 1
    for _ in range(64):
        if node is root:
            return result
        if node not in above:
            return 0
        node, place = above[node]
        name = op_name(node)
        if name == "neg" or (name in ("sub", "rsub") and place == (1 if name == "sub" else 0)):
            result = -result
        elif name in ("mul", "div"):
            factor = _factor(node, place)
            if factor == 0:
                return 0
            result *= factor
        elif name not in _LINEAR and name != "sub":
            return 0
    return 0


def _factor(node: Node, place: int) -> int:
    """Return the sign of the factor or divisor of a term, 0 if it has no constant sign."""
    other: Any = saved(node, "other") if place == 0 else None
    if other is None and op_name(node) == "mul":
        other = saved(node, "self") if place == 1 else None
    if type(other) in (int, float):
        return 1 if other > 0 else -1 if other < 0 else 0
    if not is_a(other, Tensor) or other.numel() == 0 or other.requires_grad or other.is_complex():
        return 1 if op_name(node) == "div" and other is None and len(node.next_functions) == 1 else 0
    low, high = torch.aminmax(some_of(other).float())
    return 1 if float(low) >= 0 and float(high) > 0 else -1 if float(high) <= 0 and float(low) < 0 else 0


def some_of(x: Tensor) -> Tensor:
    """Return about ``_CAP`` elements of a tensor at most, evenly spread."""
    flat = x.detach().reshape(-1) if x.is_contiguous() or x.numel() <= _CAP else x.detach()[:1].reshape(-1)
    return spread(flat, _CAP)


def spread(flat: Tensor, limit: int) -> Tensor:
    """Return at most ``limit`` elements of a 1-D tensor, at a stride that is no divisor of its size, so that it does
    not always hit the same column.
    """
    stride = -(-flat.numel() // limit)
    while stride > 1 and flat.numel() % stride == 0:
        stride += 1
    return flat[::stride] if stride > 1 else flat


def mass(x: Tensor) -> dict[str, float]:
    """Return the extremes of sums over classes (dim 1) of exp(x) and of x, of sums over the batch of exp(x) if ``x`` is
    2-D, and of ``x``.

    Log-probabilities sum to 1 over the classes. At most ``_ROWS`` rows and ``_COLUMNS`` columns are read.
    """
    x = x.detach()
    axis = 1 if x.dim() > 1 else 0
    rows = x[:: max(1, len(x) // _ROWS)] if x.dim() > 1 else x
    while rows.dim() > 2:
        rows = rows[..., :: max(1, rows.shape[-1] // 4)].flatten(-2) if rows.dim() > 3 else rows[..., :4]
        if rows.dim() == 3:
            break
    sums = rows.double().exp().sum(axis)
    found = {"low": float(sums.min()), "high": float(sums.max()), "top": float(rows.max())}
    plain = rows.double().sum(axis)
    found |= {"plain_low": float(plain.min()), "plain_high": float(plain.max()), "bottom": float(rows.min())}
    if x.dim() == 2 and 1 < len(x) <= 8192:
        batch = x[:, :: max(1, x.shape[1] // _COLUMNS)].double().exp().sum(0)
        found |= {"batch_low": float(batch.min()), "batch_high": float(batch.max())}
    return found


def describe(
    node: Node,
    below: Node | None,
    layers: Marks,
    above: dict[Node, tuple[Node, int]],
    root: Node,
    target: Tensor | None,
) -> dict[str, Any]:
    """Return the operations under a term, its sign at the root, and the share of targets outside the head's range."""
    names, first, ended = chain(below, layers)
    term: dict[str, Any] = {"chain": names, "direct": not names and ended, "sign": sign(node, above, root)}
    result = saved(first, "result")
    if names and result is not None and names[0] == "softmax" and result.dim():
        dim = int(getattr(first, "_saved_dim", -1))
        dim = dim - (1 << 64) if dim >= 1 << 63 else dim
        term["softmax_width"] = int(result.shape[dim])
        sums = some_of(result.sum(dim)).double()
        term["softmax_axis_last"] = dim % result.dim() in (1, result.dim() - 1)
        term["rows_sum"] = [float(sums.min()), float(sums.max())] if sums.numel() else []
    if names and target is not None and names[0] in BOUNDS and target.is_floating_point() and target.numel():
        term["outside"] = outside(target, names[0])
    return term


def outside(target: Tensor, name: str) -> float:
    """Return the share of the targets that an operation cannot return."""
    low, high = BOUNDS[name]
    some = some_of(target)
    return float(((some < low - _SLACK) | (some > high + _SLACK)).double().mean())


def soft_target(target: Tensor) -> dict[str, Any]:
    """Return a description of targets given as probabilities, shape (N, C, ...): row sums, True if all are 0 or 1."""
    rows = target.detach()[:: max(1, len(target) // _ROWS)].double()
    sums = rows.sum(1) if rows.dim() > 1 else rows.sum(0, keepdim=True)
    return {
        "sum_low": float(sums.min()),
        "sum_high": float(sums.max()),
        "many": float((sums > 1.5).double().mean()),
        "binary": bool(((rows == 0) | (rows == 1)).all()),
    }


def mask(node: Node, above: dict[Node, tuple[Node, int]], shape: list[int]) -> Tensor | None:
    """Return the tensor that an elementwise loss is multiplied by on its way to the root, None if there is none."""
    for _ in range(6):
        if node not in above:
            return None
        node, place = above[node]
        name = op_name(node)
        if name == "mul":
            other = saved(node, "other") if place == 0 else saved(node, "self")
            if other is not None and other.dim() and other.numel() == _numel(shape):
                return other
        elif name not in SHAPES and name not in ("neg", "add", "div"):
            return None
    return None


def _numel(shape: list[int]) -> int:
    return int(torch.Size(shape).numel())
