"""The contracts of operations in the graph of a loss: they hold however the program calls the operation.

A node of autograd enters, with what it saved of the forward pass, and what breaks its contract leaves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.autograd.graph_walk import ATTENTION, SHAPE_ONLY, op_name, parents
from neuraldbg.capture.autograd.saved_tensors import REGIONS, saved
from neuraldbg.capture.autograd.shape_moves import as_signed, shape, signed
from neuraldbg.capture.contracts import attention
from neuraldbg.capture.contracts.contract import Breach, F, address
from neuraldbg.capture.contracts.numbers import all_pairs, distinct, sample, words
from neuraldbg.capture.guest import tensor_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.autograd.graph_walk import Node

_SCALED = SHAPE_ONLY | {"div", "mul", "expand", "clampmin"}
"""Operations that leave a vector its direction."""
ROWS, IDS = 16, 256
"""Rows of a table, and ids of a call, from which on nothing but two ids are no vocabulary."""
FEW = 8
"""Elements of an index from which on nothing but zeros and ones are a mask, and classes of which an even guess is far
from a sure one."""
INSIDE = 0.02
"""Share of the values between two bounds up to which next to nothing passes them."""
DEEP, NEAR = 8, 1e-3
"""Operations between cosines and their softmax at most, and the largest error of a unit vector's length."""
NEAREST = 4
"""Changes of shape between an activation and what takes its result, at most."""
BOUNDED = 0.75
"""Share of an even guess's loss below which cosines times a factor cannot bring it: 0.5 is that of 64 cosines without a
factor, as some train on purpose."""


def _layer_norm(node: Node) -> Breach | None:
    """There is more than one value to normalise: of one value, less its mean, nothing is left."""
    sizes = getattr(node, "_saved_normalized_shape", None)
    return Breach("one_value", "one value at a time") if sizes and math.prod(sizes) == 1 else None


def _group_norm(node: Node) -> Breach | None:
    """A group has more than one value in each sample."""
    groups, channels, places = (getattr(node, f"_saved_{name}", 0) for name in ("group", "C", "HxW"))
    if not groups or channels // groups * places != 1:
        return None
    return Breach("one_value", f"{channels} channels in {groups} groups, one value in each")


def _embedding(node: Node) -> Breach | None:
    """Ids are the numbers of rows: no zeros and ones of a mask, no one-hot vectors."""
    ids, rows = saved(node, "indices"), getattr(node, "_saved_weight_sym_argsize_0", None)
    if ids is None or not isinstance(rows, int) or rows < 3 or ids.dim() == 0:
        return None
    values = distinct(ids)
    if values != {0.0, 1.0}:
        return None
    if ids.shape[-1] == rows and bool((ids.sum(-1) == 1).all()):
        return Breach("one_hot_as_ids", f"one-hot vectors over the {rows} rows of the table")
    if rows >= ROWS and ids.numel() >= IDS:
        return Breach("mask_as_ids", f"nothing but the ids 0 and 1 for a table of {rows:,} rows")
    return None


def _log_softmax(node: Node) -> Breach | None:
    """Scores can grow as large as the loss asks for; cosines cannot, and times a fixed factor they keep a bound s: of
    C classes the loss stays above log(1 + (C - 1) exp(-2 s)).
    """
    held, scale, below = saved(node, "result"), 1.0, next((parent for parent, _ in parents(node)), None)
    for _ in range(DEEP):
        name = op_name(below) if below is not None else ""
        if name in ("mm", "bmm"):
            break
        if name in ("mul", "div"):
            factor = saved(below, "other")
            if factor is None or factor.dim() or len(list(parents(below))) != 1 or not bool(factor):
                return None
            scale *= abs(float(factor)) if name == "mul" else 1 / abs(float(factor))
        elif name != "maskedfill" and (name not in SHAPE_ONLY or name == "cat"):
            return None
        below = next((parent for parent, _ in parents(below)), None)
    lengths = [_length(below, at, name, dim) for at, (name, dim) in enumerate((("self", -1), ("mat2", -2)))]
    if held is None or None in lengths:
        return None
    scale *= math.prod(length for length in lengths if length is not None)
    classes = held.shape[signed(node, "dim")] if held.dim() else 0
    if classes < FEW:
        return None
    bound = math.log1p((classes - 1) * math.exp(-2 * scale))
    if bound < BOUNDED * math.log(classes):
        return None
    said = f"cosines times {scale:.3g} for {classes} classes, with which no loss is below {bound:.3g}"
    return Breach("bounded_scores", f"{said} (an even guess has {math.log(classes):.3g})")


def _length(product: Node | None, at: int, name: str, dim: int) -> float | None:
    """Return the one length of all vectors along an axis of a product's operand; None if they differ, or if it may be
    learnt: a length of 1 is that of a normalisation, another one that of a fixed factor behind it.
    """
    held = saved(product, name)
    if product is None or held is None:
        return None
    with torch.no_grad():
        while held.dim() > 2:
            held = held[0]
        lengths = held.movedim(dim, -1)[:ROWS].float().norm(dim=-1)
        low, high = float(lengths.min()), float(lengths.max())
    if not 0 < high <= low * (1 + NEAR):
        return None
    if abs(high - 1) <= NEAR:
        return high
    below = product.next_functions[at][0] if at < len(product.next_functions) else None
    for _ in range(DEEP):
        if below is None or op_name(below) not in SHAPE_ONLY or op_name(below) == "cat":
            break
        below = next((parent for parent, _ in parents(below)), None)
    fixed = below is not None and op_name(below) in ("mul", "div") and len(list(parents(below))) == 1
    return high if fixed else None


def _similarities(node: Node) -> Breach | None:
    """The vectors of two views differ: similarities of one view with itself are those of a sum, and no pair says
    anything. Two views may also stand one below the other in one operand.
    """
    one, other = saved(node, "self"), saved(node, "mat2")
    if one is None or other is None or one.dim() != 2 or one.shape != other.shape[::-1]:
        return None
    if min(one.shape) < 2 or not torch.equal(one, other.mT) or bool((one == one[:1]).all()):
        return None
    left, right = (_source(parent) for parent, _ in node.next_functions[:2])
    half = len(one) // 2
    if left is None or right is None:
        return None
    if left is not right:
        if op_name(left) == op_name(right) == "addmm":
            return Breach("same_views", f"two times the same {len(one)} vectors, of two passes")
        return None
    views = [_source(parent) for parent, _ in left.next_functions] if op_name(left) == "cat" else []
    twice = len(views) == 2 and views[0] is not views[1] and len(one) % 2 == 0
    if twice and torch.equal(one[:half], one[half:]):
        return Breach("same_views", f"two views whose {half} vectors are the same, one below the other")
    return None


def _source(node: Node | None) -> Node | None:
    """Return the node whose result is normalised or scaled, and turned, until it is an operand."""
    for _ in range(DEEP):
        if node is None or op_name(node) == "cat" or op_name(node) not in _SCALED:
            return node
        node = next((parent for parent, _ in parents(node)), None)
    return node


def _index(node: Node) -> Breach | None:
    """A mask is of bools; numbers choose the elements with these numbers, and 0 and 1 the first two."""
    if REGIONS.hold(node):
        return None
    sizes = getattr(node, "_saved_self_sym_sizes", None) or ()
    for size, index in zip(sizes, getattr(node, "_saved_indices", None) or (), strict=False):
        if (breach := _mask_of_numbers(index, int(size))) is not None:
            return breach
    return None


def _index_select(node: Node) -> Breach | None:
    """Numbers choose the elements with these numbers: a mask of 0 and 1 chooses the first two, again and again."""
    sizes, dim = getattr(node, "_saved_self_sym_sizes", None) or (), signed(node, "dim")
    index, table = saved(node, "index"), next((parent for parent, _ in parents(node)), None)
    if index is None or not -len(sizes) <= dim < len(sizes) or table is None or op_name(table) == "accumulategrad":
        return None
    # Numbers in order are those of segments.
    return None if bool((index.diff() >= 0).all()) else _mask_of_numbers(index, int(sizes[dim]))


def _mask_of_numbers(index: object, size: int) -> Breach | None:
    held = tensor_memory.readable(index)
    if held is None or held.dtype not in (torch.int64, torch.int32) or held.dim() != 1 or len(held) < FEW:
        return None
    if size != len(held) or (values := distinct(held)) != {0.0, 1.0}:
        return None
    return Breach("mask_as_index", f"{len(held)} numbers, {words(values)}, for {len(held)} elements")


def _spread(node: Node) -> Breach | None:
    """A spread that is divided by n - 1 is that of more than one value: of one value it is NaN."""
    held, dims = saved(node, "self"), getattr(node, "_saved_dim", None)
    correction = getattr(node, "_saved_correction", None)
    if held is None or held.numel() < 2:
        return None
    axes = [as_signed(int(dim)) for dim in dims] if dims else list(range(held.dim()))
    count = math.prod(held.shape[axis] for axis in axes)
    if count > (1 if correction is None else int(correction)):
        return None
    return Breach("spread_of_one", f"the spread of {count} value at a time, along axis {axes[0]} of {list(held.shape)}")


def _difference(node: Node) -> Breach | None:
    """One number for each sample goes with one number for each sample: (N) with (N, 1) gives (N, N). What is taken away
    is something else than what it is taken from.
    """
    first, second = (*node.next_functions, (None, 0), (None, 0))[:2]
    alpha = getattr(node, "_saved_alpha", 1)
    if first[0] is not None and first == second and alpha == 1 and shape(node):  # 0 of a scalar keeps it in the graph
        return Breach("less_itself", f"a tensor of shape {shape(node)} less itself")
    return _outer(node)


def _norm(node: Node) -> Breach | None:
    """Vectors along the axis have more than one element: of one element only the sign is left."""
    held = saved(node, "self")
    dims = getattr(node, "_saved_dim", None)
    if held is None or not isinstance(dims, (tuple, list)) or len(dims) != 1 or held.dim() < 2:
        return None
    dim = as_signed(dims[0])
    if held.shape[dim] != 1 or held.numel() < 2:
        return None
    return Breach("one_element", f"vectors of one element, along axis {dim} of {list(held.shape)}")


def _outer(node: Node) -> Breach | None:
    """One number for each sample goes with one number for each sample: (N) with (N, 1) gives (N, N)."""
    sizes = shape(node)
    if sizes is None or len(sizes) != 2 or sizes[0] != sizes[1] or sizes[0] < 2:
        return None
    operands: list[tuple[int, ...]] = []
    for at, name in enumerate(("self", "other")):
        held = saved(node, name)
        parent, place = node.next_functions[at] if at < len(node.next_functions) else (None, 0)
        if parent is not None and op_name(parent) in ("unsqueeze", "accumulategrad"):  # on purpose: all pairs
            return None
        known = shape(parent, place) if parent is not None else None
        # A product saves an operand for the gradient of the other.
        operands.append(tuple(known) if known is not None else tuple(held.shape) if held is not None else ())
    said = all_pairs(*operands)
    return Breach("outer_product", said) if said else None


def _sum(node: Node) -> Breach | None:
    """One number for each sample goes with one number for each sample: (N) with (N, 1) gives (N, N). A summand of the
    loss has a graph, unless it is a plain number.
    """
    if shape(node) == [] and len(node.next_functions) == 2 and any(parent is None for parent, _ in node.next_functions):
        return Breach("adds_constant", "a summand without a graph")
    return _outer(node)


def _product(node: Node) -> Breach | None:
    """One number for each sample goes with one number for each sample: (N) with (N, 1) gives (N, N). A factor of 0
    leaves nothing of what it stands at.
    """
    for name in ("self", "other"):
        factor = saved(node, name)
        if factor is not None and factor.dim() == 0 and not factor.requires_grad and not bool(factor):
            return Breach("times_nought", "a factor of 0")
    return _outer(node)


def _clamp(node: Node) -> Breach | None:
    """The lower bound lies below the upper one: torch gives the upper one everywhere, without a gradient."""
    low, high = getattr(node, "_saved_min", None), getattr(node, "_saved_max", None)
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return None
    if low >= high:
        return Breach("bounds_swapped", f"bounds of {low:g} and {high:g}")
    held = saved(node, "self")
    values = sample(held) if held is not None else None
    if values is None or values.is_complex():
        return None
    values = values[values.isfinite()]
    if values.numel() < IDS:
        return None
    inside = float(((values >= low) & (values <= high)).float().mean())  # at a bound torch passes the gradient
    if inside > INSIDE:
        return None
    return Breach("all_clamped", f"values of which {inside:.2%} lie between {low:g} and {high:g}")


def _reshaped(node: Node) -> Breach | None:
    """A view keeps the order of the numbers, so an axis cannot trade places with another."""
    before, after = getattr(node, "_saved_self_sym_sizes", None), shape(node)
    if before is None or after is None or 0 in after:  # an empty batch has no order
        return None
    given = [int(size) for size in before]
    for one, other in _joined_and_split(given, after):
        if (moved := moved_axis(one, other)) is not None:
            # (8, 4) to (4, 8) may join pairs of neighbours
            both = [size for size in one if size in other]
            sure = all(size % each for size in both for each in both if size != each)
            rule = "view_moves_axis" if sure else "view_moves_axis_perhaps"
            return Breach(rule, f"a view of shape {given} as {after}, in which the axis of {moved} moves")
    return None


def _joined_and_split(before: list[int], after: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return the groups of neighbouring axes, before and after, that hold the same numbers and of which there are
    several on both sides: to join axes, or to split one, leaves the others in order.
    """
    found: list[tuple[list[int], list[int]]] = []
    one, other = [size for size in before if size > 1], [size for size in after if size > 1]
    while one and other:
        i = j = 1
        while math.prod(one[:i]) != math.prod(other[:j]):
            if math.prod(one[:i]) < math.prod(other[:j]):
                i += 1
            else:
                j += 1
        if i > 1 and j > 1:
            found.append((one[:i], other[:j]))
        one, other = one[i:], other[j:]
    return found


def moved_axis(before: list[int], after: list[int]) -> int | None:
    """Return the size of an axis that a view would have to move: an axis of that size, and of no other, is before and
    after at places with another number of elements in front. None if there is none.
    """
    for size in before:
        if before.count(size) == after.count(size) == 1:
            front, behind = before[: before.index(size)], after[: after.index(size)]
            if math.prod(front) != math.prod(behind):
                return size
    return None


def made_by(x: object) -> str:
    """Return the operation that made a tensor, changes of shape left out; "" if it has no graph."""
    node = x.grad_fn if type(x) in tensor_memory.ORDINARY else None  # type: ignore[attr-defined]
    for _ in range(NEAREST):
        if node is None or op_name(node) not in SHAPE_ONLY:
            break
        node = next((parent for parent, _ in parents(node)), None)
    return "" if node is None else op_name(node)


CHECKS: dict[str, tuple[str, Callable[[Node], Breach | None]]] = {
    "nativelayernorm": (F + "layer_norm", _layer_norm),
    "nativegroupnorm": (F + "group_norm", _group_norm),
    "embedding": (F + "embedding", _embedding),
    "embeddingbag": (F + "embedding_bag", _embedding),
    "logsoftmax": (F + "log_softmax", _log_softmax),
    "softmax": ("torch.softmax", attention.softmax),
    "safesoftmax": ("torch.softmax", attention.softmax),
    ATTENTION: (F + "scaled_dot_product_attention", attention.fused),
    "bmm": ("torch.bmm", attention.weighted),
    "std": ("torch.std", _spread),
    "var": ("torch.var", _spread),
    "index": ("torch.Tensor.__getitem__", _index),
    "indexselect": ("torch.index_select", _index_select),
    "linalgvectornorm": (F + "normalize", _norm),
    "mm": ("torch.mm", _similarities),
    "mul": ("torch.mul", _product),
    "sub": ("torch.sub", _difference),
    "add": ("torch.add", _sum),
    "div": ("torch.div", _outer),
    "clamp": ("torch.clamp", _clamp),
    "view": ("torch.Tensor.view", _reshaped),
    "unsafeview": ("torch.Tensor.view", _reshaped),
    "reshapealias": ("torch.Tensor.view", _reshaped),
}
"""By the operation's name in the graph: (public name of the function, check)."""


def link(function: str) -> str:
    """Return the address of a function's documentation."""
    return address(function, "tensors.html" if function == "torch.Tensor.__getitem__" else "")
