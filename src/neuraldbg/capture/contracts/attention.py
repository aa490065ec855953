"""The contracts of attention in the graph of a loss: what a mask leaves out, the axes of softmaxes and of heads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.autograd.graph_walk import op_name, parents
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.autograd.shape_moves import shape, signed
from neuraldbg.capture.contracts.contract import Breach
from neuraldbg.capture.contracts.numbers import distinct, words

if TYPE_CHECKING:
    from torch import Tensor

    from neuraldbg.capture.autograd.graph_walk import Node

MASKS, QUERIES = 8, 1024
"""Samples whose attention mask is read, and rows of each, at most."""
KEPT = 0.2
"""Share of an even weight from which on what is masked was not left out."""
LENGTH = 4
"""Positions from which on the shape of a mask says something."""
NEAR = 6
"""Changes of shape between an operation and the one that it is compared with, at most."""
_VIEWS = frozenset(["view", "unsafeview", "reshapealias"])
_SAME_ROWS = _VIEWS | {"expand", "clone", "nativedropout"}
"""Operations that leave rows and columns as they are, if they leave their sizes."""


def softmax(node: Node) -> Breach | None:
    """There is more than one score to choose from, and scores that are left out are minus infinity, not 0."""
    sizes = shape(node)
    dim = signed(node, "dim")
    if sizes and -len(sizes) <= dim < len(sizes) and sizes[dim] == 1 and torch.Size(sizes).numel() > 1:
        return Breach("one_score", f"one score at a time, along axis {dim} of {sizes}")
    below = next((parent for parent, _ in parents(node)), None)
    for _ in range(NEAR):
        if below is None or op_name(below) not in _VIEWS or shape(below) != sizes:
            break
        below = next((parent for parent, _ in parents(below)), None)
    if below is not None and op_name(below) in ("maskedfill", "where"):
        return _filled(node, below, dim)
    # Scores that are multiplied by a mask: what is left out has the score 0, which is not small.
    if below is None or op_name(below) != "mul":
        return None
    for name in ("other", "self"):
        mask = saved(below, name)
        if mask is None or mask.dim() == 0 or mask.requires_grad or tuple(mask.shape)[-1:] != tuple(sizes or ())[-1:]:
            continue
        values = distinct(mask)
        if values == {0.0, 1.0}:
            return Breach("scores_times_mask", f"scores times a mask with {words(values)}")
    return None


def _filled(node: Node, below: Node, dim: int) -> Breach | None:
    """Return what is wrong with scores that were filled where a mask is True."""
    held, mask = saved(node, "result"), saved(below, "mask" if op_name(below) == "maskedfill" else "condition")
    if held is None or mask is None or mask.dtype is not torch.bool:
        return None
    graphs = [parent is not None for parent, _ in below.next_functions]
    if sum(graphs) != 1:
        return None  # what is filled in is learnt, or computed
    if op_name(below) == "where" and graphs[0]:
        mask = ~mask  # the scores stand where the condition is True
    with torch.no_grad():
        try:
            hidden = mask.expand(held.shape).movedim(dim, -1)
        except RuntimeError:
            return None
        size = hidden.shape[-1]
        rows = held.detach().movedim(dim, -1).reshape(-1, size)[: MASKS * QUERIES].float()
        left_out = hidden.reshape(-1, size)[: MASKS * QUERIES]
        both = left_out.any(-1) & ~left_out.all(-1)
        if not bool(both.any()):
            return None
        if _one_sided(rows[both], left_out[both]):
            return None
        weight = float((rows * left_out)[both].sum(-1).mean())
        even = float(left_out[both].float().mean())
    if weight > KEPT * even:
        return Breach(
            "masked_has_weight", f"a mask whose positions keep {weight:.0%} of the weight (evenly: {even:.0%})"
        )
    return _of_the_past(hidden) if dim in (-1, held.dim() - 1) else None


def _one_sided(rows: Tensor, hidden: Tensor) -> bool:
    """Return True if all kept scores lie on one side of what is filled in, in all rows: a cap, or a floor, of scores
    and no mask.
    """
    filled = rows.masked_fill(~hidden, -1).amax(-1, keepdim=True)
    above, below = ((rows >= filled) | hidden).all(), ((rows <= filled) | hidden).all()
    return bool((filled > 0).all() & (above | below))


def _of_the_past(hidden: Tensor) -> Breach | None:
    """Return a breach if a mask hides all positions before each one, and none after it."""
    while hidden.dim() > 2:
        if hidden.shape[0] > 1 and not bool((hidden[:1] == hidden[:2]).all()):
            return None
        hidden = hidden[0]
    length = hidden.shape[-1]
    if hidden.shape != (length, length) or length < LENGTH or length > QUERIES:
        return None
    before = torch.ones_like(hidden).tril(-1)
    if bool(hidden[before].all()) and not bool(hidden[before.mT].any()):
        return Breach(
            "past_hidden", f"a mask over {length} positions that hides all before each one, and none after it"
        )
    return None


def fused(node: Node) -> Breach | None:
    """A mask keeps each query a key. One of numbers is added to the scores: 0 keeps, minus infinity leaves out. Heads
    stand before the positions: (batch, heads, length, width).
    """
    found = [_heads_by_view(parent) for parent, _ in node.next_functions[:3]]
    if found and all(found):
        return Breach("heads_as_length", f"{found[0]}: it attends from head to head")
    query, key = saved(node, "query"), saved(node, "key")
    if getattr(node, "_saved_is_causal", False) and query is not None and key is not None:
        lengths = query.shape[-2], key.shape[-2]
        if lengths[0] != lengths[1] and min(lengths) > 1:
            return Breach("causal_of_two_lengths", f"{lengths[0]} queries and {lengths[1]} keys with is_causal")
    mask = saved(node, "attn_mask")
    mask = saved(node, "attn_bias") if mask is None else mask
    if mask is None or mask.dim() < 2 or mask.requires_grad:
        return None
    if distinct(mask) == {0.0, 1.0} and mask.dtype is not torch.bool:
        return Breach("added_mask", f"{words({0.0, 1.0})}, of {mask.dtype}")
    while mask.dim() > 3:  # heads share a mask as a rule, and an expanded one must not be copied
        mask = mask[:, 0]
    with torch.no_grad():
        some = mask[..., :QUERIES, :] if mask.dim() < 3 else mask[:MASKS, :QUERIES]
        rows = ~some if some.dtype is torch.bool else some == -math.inf
        empty, count = int(rows.all(-1).sum()), rows.shape[:-1].numel()
        if not empty:
            return _of_the_past(rows)
    return Breach("row_without_key", f"a mask that leaves all keys out in {empty} of {count} rows")


def _heads_by_view(node: Node | None) -> str:
    """Return the words for a view that splits the last of three axes into heads and width, and moves none; "" for any
    other operation.
    """
    if node is None or op_name(node) not in _VIEWS:
        return ""
    before = [int(size) for size in getattr(node, "_saved_self_sym_sizes", None) or ()]
    after = shape(node) or []
    splits = len(before) == 3 and len(after) == 4 and before[:2] == after[:2] and min(after[1:3]) > 1
    return f"tensors of shape {before} seen as {after}" if splits else ""


def weighted(node: Node) -> Breach | None:
    """Weights of an average sum to 1 over what is averaged: a softmax over another axis gives each key one unit, which
    the queries share.
    """
    below = node.next_functions[0][0] if node.next_functions else None
    sizes = shape(below) if below is not None else None
    for _ in range(NEAR):
        if below is None or sizes is None or (shape(below) or [])[-2:] != sizes[-2:]:
            return None
        if op_name(below) in ("softmax", "safesoftmax"):
            break
        if op_name(below) not in _SAME_ROWS and not _dropout(below):
            return None
        below = next((parent for parent, _ in parents(below)), None)
    else:
        return None
    found = shape(below) or []
    if len(found) < 3 or signed(below, "dim") not in (-2, len(found) - 2) or min(found[-2:]) < 2:
        return None
    if found[-2] != found[-1] or not _of_pairs(below):  # samples that are shared among clusters, slots or experts
        return None
    return Breach("softmax_over_queries", f"weights of shape {found} that sum to 1 along axis {len(found) - 2}")


def _of_pairs(node: Node | None) -> bool:
    """Return True for scores of pairs: a product of two matrices that are both computed."""
    for _ in range(2 * NEAR):
        node = next((parent for parent, _ in parents(node)), None) if node is not None else None
        if node is None or op_name(node) in ("bmm", "baddbmm"):
            break
        if op_name(node) not in _SAME_ROWS | {"mul", "div", "maskedfill", "add", "where"}:
            return False
    return node is not None and sum(parent is not None for parent, _ in node.next_functions) >= 2


def _dropout(node: Node) -> bool:
    """Return True for a product with something that has no graph, as dropout is on a CPU."""
    return op_name(node) in ("mul", "div") and len(list(parents(node))) == 1
