"""The changes of shape between an operation and the softmax of a loss, as functions that repeat them on another tensor.

The graph holds no tensor of the program's on these ways, only sizes: so that a tensor of indices, sent the same way,
shows which numbers of the head stand side by side in the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.autograd.graph_walk import Node, op_name, parents
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    Move = Callable[[Tensor], Tensor]

_RESHAPES = frozenset(["view", "unsafeview", "reshapealias", "squeeze", "unsqueeze"])
_KEEPS = frozenset(["clone", "alias", "contiguous", "tocopy", "to", "logsoftmax", "div", "mul", "neg", "add", "sub"])
"""Operations that keep every number at its place."""
_LONG = 24
_NUMBERS = 2_000_000
"""Numbers of a head's output that are indexed at most."""
_ROWS = 64


def shape(node: Node, index: int = 0) -> list[int] | None:
    """Return the shape of a node's result, None if it is not known."""
    metadata = getattr(node, "_input_metadata", None)
    if metadata is None or index >= len(metadata):
        return None
    try:
        return [int(size) for size in metadata[index].shape]
    except (AttributeError, TypeError, RuntimeError) as error:
        let_pass(error, "reading losses and facts")
        return None


def moves(node: Node | None, reached: Callable[[Node], bool]) -> tuple[Node, list[Move]] | None:
    """Return the first node below, or the node itself, that is ``reached``, and the changes of shape from its result to
    that of ``node``, in the order in which they were made. None if another operation is between them.
    """
    found: list[Move] = []
    for _ in range(_LONG):
        if node is None:
            return None
        if reached(node):
            return node, found[::-1]
        if op_name(node) not in _KEEPS:
            move = _move(node)
            if move is None:
                return None
            found.append(move)
        # A bias, or a temperature that is learnt, is a leaf of the graph.
        below = [parent for parent, _ in parents(node) if op_name(parent) != "accumulategrad"]
        if len(below) != 1 or (op_name(node) in _KEEPS and _broadcast(node, below[0])):
            return None
        node = below[0]
    return None


def _broadcast(node: Node, below: Node) -> bool:
    before, after = shape(below), shape(node)
    return before is None or before != after


def sent(x: Tensor, way: Iterable[Move]) -> Tensor:
    """Return a tensor after changes of shape."""
    for move in way:
        x = move(x)
    return x


def scattered(head: list[int], axis: int, way: list[Move], dim: int) -> tuple[list[int], float] | None:
    """Return the shape before the last reshape, and the share of rows along ``dim`` of the softmax that join several
    features of several positions of a head, whose features lie along ``axis``. None if that cannot be told.

    A row may hold the features of one position, or one feature of many positions, or all features of some positions,
    as where one class is chosen for a whole grid.
    """
    axis %= len(head)
    features, numel = head[axis], int(torch.Size(head).numel())
    reshapes = [i for i, move in enumerate(way) if isinstance(move, _Reshape)]
    if features < 2 or numel == features or not reshapes or numel > _NUMBERS:
        return None
    with torch.no_grad():
        index = torch.arange(numel, dtype=torch.int32, device="cpu").view(head)
        before = sent(index, way[: reshapes[-1]])
        rows = sent(before, way[reshapes[-1] :]).movedim(dim, -1)
        rows = rows.reshape(-1, rows.shape[-1])
        rows = rows[:: max(1, len(rows) // _ROWS)].long()
        inner = int(torch.Size(head[axis + 1 :]).numel())
        feature, position = rows // inner % features, rows // (inner * features) * inner + rows % inner
        width = rows.shape[1]
        count = 0
        for here, of in zip(feature, position, strict=True):
            kinds, places = len(torch.unique(here)), len(torch.unique(of))
            count += kinds > 1 and places > 1 and (width == features or kinds * places != width)
    return list(before.shape), count / max(1, len(rows))


class _Reshape:
    """A change of shape that keeps the order of the numbers."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def __call__(self, x: Tensor) -> Tensor:
        return x.reshape(self.sizes)


def _move(node: Node) -> Move | None:
    """Return the change of shape that a node stands for, None if it is another operation."""
    name = op_name(node)
    if name in _RESHAPES:
        sizes = shape(node)
        return _Reshape(sizes) if sizes is not None else None
    if name == "t":
        return lambda x: x.t()
    if name == "transpose":
        first, second = signed(node, "dim0"), signed(node, "dim1")
        return lambda x: x.transpose(first, second)
    if name == "permute":
        dims = [as_signed(int(dim)) for dim in getattr(node, "_saved_dims", ())]
        return lambda x: x.permute(dims)
    if name == "slice":
        dim, start, step = signed(node, "dim"), signed(node, "start"), signed(node, "step")
        size = shape(node)
        if size is None or step != 1 or start < 0:
            return None
        return lambda x: x.narrow(dim, start, size[dim])
    if name == "select":
        dim, at = signed(node, "dim"), signed(node, "index")
        return lambda x: x.select(dim, at)
    return None


def signed(node: Node, name: str) -> int:
    """Return a saved integer of a node."""
    return as_signed(int(getattr(node, f"_saved_{name}", 0)))


def as_signed(value: int) -> int:
    """Return a saved integer that torch gives as an unsigned number of 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def head_axis(node: Node) -> int | None:
    """Return the axis of the features in the result of an operation with weights, None for another operation."""
    name = op_name(node)
    if name in ("convolution", "mkldnnconvolution"):
        return 1
    return -1 if name in ("addmm", "mm", "linear", "mkldnnlinear", "bmm", "baddbmm") else None
