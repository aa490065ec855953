"""The terms of a loss, read from the loss's autograd nodes before ``backward`` frees them.

The integers that encode a reduction are those of ``at::Reduction`` (none 0, mean 1, sum 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.autograd import output_head, shape_moves
from neuraldbg.capture.autograd.graph_walk import Node, op_name, parents
from neuraldbg.capture.autograd.loss_weights import weight
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.statistics.operation import sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.capture.autograd.graph_walk import Marks

_KINDS = {
    "nllloss": "nll",
    "nllloss2d": "nll",
    "nlllossnd": "nll",
    "mseloss": "mse",
    "smoothl1loss": "smooth_l1",
    "huberloss": "huber",
    "binarycrossentropy": "bce",
    "binarycrossentropywithlogits": "bce_with_logits",
    "kldiv": "kl_div",
    "softmarginloss": "soft_margin",
    "multimarginloss": "multi_margin",
}
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
_ELEMENTWISE = {"pow": "squared_error", "abs": "l1", "mul": "squared_error"}
_HISTOGRAM = 1000
_CHAIN = 12
Links = dict[Node, tuple[Node, int]]
"""{node: (consumer, input index)}, as ``output_head.links`` returns it."""
_CLASS_WEIGHTS = 64
"""Classes up to which their weights are told."""
_TERMS = 8
"""Terms of one loss that are described at most."""
_TARGET_CAP = 65_536
_MOST_ROWS = 0.5
"""Share of the predictions from which on the scores are of several positions."""


def loss_terms(nodes: list[Node], layers: Marks) -> list[dict[str, Any]]:
    """Return a description of each term of a loss, as the LOSS fact has it."""
    terms: list[dict[str, Any]] = []
    above = output_head.links(nodes)
    for node in nodes:
        if len(terms) == _TERMS:
            break
        kind = _KINDS.get(op_name(node))
        if kind is not None:
            terms.append(_fused(node, kind, nodes, layers, above))
        elif op_name(node) == "sub":
            term = _written_out(node, nodes, layers, above)
            if term is not None:
                terms.append(term)
    if not terms:
        terms.extend(_soft_targets(nodes, layers, above))
    if not terms:
        terms.extend(_divergences(nodes, layers, above))
    return terms


def _fused(node: Node, kind: str, nodes: list[Node], layers: Marks, above: Links) -> dict[str, Any]:
    target, given = saved(node, "target"), saved(node, "self")
    reduction = own = _REDUCTIONS.get(int(getattr(node, "_saved_reduction", 0)), "none")
    # Each loss may be unreduced, and averaged by the program afterwards.
    if reduction == "none":
        reduction = _outer_reduction(nodes, above, node)
    below = next(parents(node), (None, 0))[0]
    # ``F.cross_entropy`` is a log_softmax and an nll_loss; only without it does the loss's own input matter.
    term: dict[str, Any] = {"kind": kind, "reduction": reduction}
    below, flattened = _unflattened(below) if kind == "nll" else (below, None)
    if kind == "nll" and below is not None and op_name(below) == "logsoftmax":
        term["kind"] = "cross_entropy"
        term |= _scattered(below)
        below = next(parents(below), (None, 0))[0]
    elif (kind == "nll" and given is not None) or given is not None:
        term["input"] = _stats(given)
    if given is not None:
        term["input_shape"] = list(given.shape)
        axis = 1 if kind == "nll" and given.dim() > 1 else given.dim() - 1
        term["classes"] = int(given.shape[axis]) if given.dim() else 0
    # Statistics of targets differ by loss: class counts for nll, weights for nll and binary losses.
    if target is not None:
        term |= {"target_shape": list(target.shape), "target_dtype": str(target.dtype).removeprefix("torch.")}
        term["target"] = _stats(target)
        if kind == "nll":
            term["target_histogram"] = _histogram(target)
            term |= _weights(node)
        if kind in ("bce", "bce_with_logits"):
            term["weighted"] = any(saved(node, name) is not None for name in ("pos_weight", "weight"))
    if kind == "nll" and given is not None and given.numel():
        term["mass"] = output_head.mass(given)
    # The head and the shapes as the user wrote them: losses expand their operands.
    term |= output_head.describe(node, below, layers, above, nodes[0], target)
    compared = target if target is not None else given
    count = compared.numel() if compared is not None else 0
    term["weight"] = _weight(node, nodes, above, count if own == "mean" else 1)
    shapes = _operands(node, given, target)
    term["operand_shapes"] = shapes[:2]
    term["broadcast"] = _both_grew(shapes)
    if flattened is not None:
        term |= {"input_shape": flattened, "target_shape": [flattened[0], *flattened[2:]]}
        term["operand_shapes"] = [term["input_shape"], term["target_shape"]]
    term["fed_by"], term["layer"] = _feeding(below, layers)
    term["normalised"] = term["chain"][:1] == ["softmax"]
    return term


def _weight(node: Node, nodes: list[Node], above: Links, count: int) -> float | None:
    """Return the derivative of the loss by one of ``count`` elements of which a node gives the mean."""
    found = weight(node, above, nodes[0])
    return found / count if found is not None and count else None


def _unflattened(below: Node | None) -> tuple[Node | None, list[int] | None]:
    """Return the node under a loss and None; or, for scores of shape (N, C, T), which ``F.nll_loss`` itself makes
    (N, C, 1, T), the node before that and its shape.
    """
    before = next(parents(below), (None, 0))[0] if below is not None and op_name(below) == "view" else None
    sizes = shape_moves.shape(before) if before is not None else None
    made = shape_moves.shape(below) if sizes is not None else None
    if made is None or sizes is None or len(sizes) == len(made) == 4 or made[:3] != [*sizes[:2], 1]:
        return below, None
    return before, sizes


def _scattered(softmax: Node) -> dict[str, Any]:
    """Return the shape that was cut if the scores of one prediction are of several positions of the head, else {}."""
    found = shape_moves.moves(
        next(parents(softmax), (None, 0))[0], lambda node: shape_moves.head_axis(node) is not None
    )
    if found is None:
        return {}
    head, way = found
    axis, sizes = shape_moves.head_axis(head), shape_moves.shape(head)
    if axis is None or not sizes:
        return {}
    told = shape_moves.scattered(sizes, axis, way, shape_moves.signed(softmax, "dim"))
    return {"scattered": told[0]} if told is not None and told[1] > _MOST_ROWS else {}


def _weights(node: Node) -> dict[str, Any]:
    """Return the class index that a cross entropy ignores, and whether its classes are weighted."""
    ignore = int(getattr(node, "_saved_ignore_index", -100))
    weight = saved(node, "weight")
    found: dict[str, Any] = {"ignore": ignore - (1 << 64) if ignore >= 1 << 63 else ignore}
    found["weighted"] = weight is not None
    if weight is not None:
        found["weightless"] = torch.nonzero(weight == 0).flatten()[:8].tolist()
        if weight.numel() <= _CLASS_WEIGHTS and bool(weight.isfinite().all()):
            found["class_weights"] = weight.flatten().tolist()
    return found


def _written_out(node: Node, nodes: list[Node], layers: Marks, above: Links) -> dict[str, Any] | None:
    """Recognise ``((pred - target) ** 2).mean()`` and the like: a difference that is squared or made absolute."""
    power = above[node][0] if node in above else None
    if power is None or op_name(power) not in _ELEMENTWISE:
        return None
    if op_name(power) == "mul" and [p for p, _ in parents(power)] != [node, node]:
        return None
    # The shapes of both operands show whether broadcasting made the difference larger than either.
    out = shape_moves.shape(node, 0)
    shapes = [shape_moves.shape(parent, index) for parent, index in parents(node)]
    operands = [shape for shape in shapes if shape is not None]
    if out is None or len(operands) < len(shapes) or not operands:
        return None
    if len(operands) == 1:  # the other operand needs no gradient: derive its shape from the result's
        mine = [1] * (len(out) - len(operands[0])) + operands[0]
        other = [o if o != m else 0 for o, m in zip(out, mine, strict=True)]
        first = next((at for at, o in enumerate(other) if o), len(other))
        operands.append([o or 1 for o in other[first:]] or out)
    term: dict[str, Any] = {
        "kind": _ELEMENTWISE[op_name(power)],
        "reduction": _outer_reduction(nodes, above, power),
        "input_shape": operands[0],
        "operand_shapes": operands,
        "broadcast": _both_grew([*operands, out]),
        "classes": int(out[-1]) if out else 0,
    }
    # The saved difference is the residual; with the output of the head it also gives the target.
    difference = saved(power, "self")
    if difference is not None:
        term["residual"] = _stats(difference)
    below = next(parents(node), (None, 0))[0]
    term["fed_by"], term["layer"] = _feeding(below, layers)
    term["normalised"] = False
    term |= output_head.describe(power, below, layers, above, nodes[0], None)
    term["weight"] = _weight(power, nodes, above, 1)
    head = _head_result(below)
    if difference is not None and head is not None and head.shape == difference.shape:
        flipped = node.next_functions[0][0] is None  # target - prediction
        target = head + difference if flipped else head - difference
        term["target"] = _stats(target)
        if term["chain"][0] in output_head.BOUNDS:
            term["outside"] = output_head.outside(target, term["chain"][0])
    return term


def _head_result(below: Node | None) -> Tensor | None:
    """Return the result of the operation directly under a difference if the operation saved it: sigmoid, tanh, softmax,
    relu.
    """
    return saved(below, "result") if below is not None and op_name(below) in output_head.BOUNDS else None


def _soft_targets(nodes: list[Node], layers: Marks, above: Links) -> Iterator[dict[str, Any]]:
    """Recognise a cross entropy with probabilities as targets, or one written out: a log_softmax in the loss."""
    for node in nodes:
        if op_name(node) == "logsoftmax":
            result = saved(node, "result")
            below = next(parents(node), (None, 0))[0]
            shape = list(result.shape) if result is not None else shape_moves.shape(node, 0) or []
            fed_by, layer = _feeding(below, layers)
            found = output_head.describe(node, below, layers, above, nodes[0], None)
            yield {
                **found,
                **_soft(node, above, nodes[0]),
                "kind": "cross_entropy",
                "reduction": _outer_reduction(nodes, above),
                "input_shape": shape,
                "classes": int(shape[-1]) if shape else 0,
                "operand_shapes": [],
                "broadcast": False,
                "fed_by": fed_by,
                "layer": layer,
                "normalised": found["chain"][:1] == ["softmax"],
            }


def _soft(node: Node, above: dict[Node, tuple[Node, int]], root: Node) -> dict[str, Any]:
    """Return a description of the targets of a cross entropy with probabilities, and the sign of the term at the root.

    ``F.cross_entropy`` makes ``-(log_p * target).sum() / N``; written out by the user it has the same nodes.
    """
    found: dict[str, Any] = {"soft": True, "sign": 0}
    if node not in above:
        return found
    consumer, place = above[node]
    name = op_name(consumer)
    if name == "mul":
        target = saved(consumer, "other") if place == 0 else saved(consumer, "self")
        if target is not None and target.dim() > 1 and float(target.min()) >= 0:
            found["soft_target"] = output_head.soft_target(target)
            found["sign"] = -output_head.sign(consumer, above, root)
    elif name in ("index", "gather"):
        found |= {"picked": True, "sign": -output_head.sign(consumer, above, root)}
    return found


def _divergences(nodes: list[Node], layers: Marks, above: Links) -> Iterator[dict[str, Any]]:
    """Recognise ``F.kl_div``, which is made of parts: sum or mean of ``xlogy(t, t) - t * input``."""
    for node in nodes:
        # ``xlogy(t, t)`` needs no gradient, so the first operand of the subtraction has no node.
        if op_name(node) != "sub" or node.next_functions[0][0] is not None or len(node.next_functions) < 2:
            continue
        product = node.next_functions[1][0]
        if product is None or op_name(product) != "mul":
            continue
        # The factor without a node is the target.
        places = [place for place, (p, _) in enumerate(product.next_functions) if p is not None]
        target = saved(product, "self" if places == [1] else "other") if len(places) == 1 else None
        if target is None or target.dim() < 2 or not target.is_floating_point():
            continue
        # Log-probabilities are read only where they are the saved result directly under the product.
        below = product.next_functions[places[0]][0]
        names, first, _ = output_head.chain(below, layers)
        fed_by, layer = _feeding(below, layers)
        term = output_head.describe(node, below, layers, above, nodes[0], None)
        given = saved(first, "result") if names and op_name(below) == names[0] else None
        yield {
            **term,
            **(
                {"input": _stats(given), "mass": output_head.mass(given)}
                if given is not None and given.dim() == 2
                else {}
            ),
            "kind": "kl_div",
            "reduction": _outer_reduction(nodes, above),
            "input_shape": list(target.shape),
            "target_shape": list(target.shape),
            "target": _stats(target),
            "classes": int(target.shape[-1]),
            "operand_shapes": [],
            "broadcast": False,
            "fed_by": fed_by,
            "layer": layer,
            "normalised": names[:1] == ["softmax"],
        }
        return


def _feeding(node: Node | None, layers: Marks) -> tuple[list[str], str | None]:
    """Return (operations between the last layer with weights and the loss, nearest to the loss first; the layer)."""
    names: list[str] = []
    for _ in range(_CHAIN):
        if node is None:
            break
        layer = layers.get(node)
        name = op_name(node)
        if name in ("softmax", "sigmoid", "logsoftmax", "logsigmoid", "relu", "tanh", "exp", "log", "clamp"):
            names.append(name)
        elif layer is not None:
            return names, layer
        node = next(parents(node), (None, 0))[0]
        if node is None and layer is not None:
            return names, layer
    return names, None


def _outer_reduction(nodes: list[Node], above: Links, term: Node | None = None) -> str:
    """Return the reduction that the user wrote around the loss: the first mean or sum from the root.

    ``mixed`` if losses are summed over one axis and averaged over another on the path from ``term``.
    """
    on_the_way = set()
    while term in above:
        term = above[term][0]
        on_the_way.add(op_name(term))
    if {"mean", "sum"} <= on_the_way:
        return "mixed"
    return next((name for name in map(op_name, nodes) if name in ("mean", "sum")), "none")


def _operands(node: Node, given: Tensor | None, target: Tensor | None) -> list[list[int]]:
    """Return the shapes as the user wrote them: an expanded axis has stride 0, or an Expand node before it."""
    shapes = []
    below = next(parents(node), (None, 0))
    if below[0] is not None and op_name(below[0]) == "expand":
        deeper = next(parents(below[0]), None)
        shape = shape_moves.shape(*deeper) if deeper is not None else None
        if shape is not None:
            shapes.append(shape)
    elif given is not None:
        shapes.append(_unexpanded(given))
    if target is not None:
        shapes.append(_unexpanded(target))
    return [*shapes, list(given.shape)] if given is not None and _expanded(given, target) else shapes


def _expanded(given: Tensor, target: Tensor | None) -> bool:
    return target is not None and (_unexpanded(target) != list(target.shape) or _unexpanded(given) != list(given.shape))


def _unexpanded(x: Tensor) -> list[int]:
    sizes = [1 if stride == 0 and size > 1 else size for size, stride in zip(x.shape, x.stride(), strict=True)]
    while sizes and sizes[0] == 1 and len(sizes) > 1 and x.stride()[len(x.shape) - len(sizes)] == 0:
        sizes = sizes[1:]
    return sizes


def _both_grew(shapes: list[list[int]]) -> bool:
    """Return True if the result (the last shape) is larger than both operands: (N, 1) against (N,) gives (N, N)."""
    if len(shapes) < 3:
        return False
    sizes = [int(torch.Size(shape).numel()) for shape in shapes]
    return sizes[2] > sizes[0] and sizes[2] > sizes[1] and min(sizes[:2]) > 1


def _stats(x: Tensor) -> dict[str, float]:
    flat = sample(x.detach(), _TARGET_CAP)
    if flat.is_complex():  # complex numbers have no order, and torch warns of a cast to real ones
        return {"count": x.numel(), "nonfinite": flat.numel() - int(flat.isfinite().sum())}
    flat = flat.double()
    finite = flat[flat.isfinite()]
    stats: dict[str, float] = {"count": x.numel(), "nonfinite": flat.numel() - finite.numel()}
    if finite.numel():
        low, high = torch.aminmax(finite)
        stats |= {"min": float(low), "max": float(high), "mean": float(finite.mean())}
        stats["std"] = float(finite.std(unbiased=False))
    return stats


def _histogram(target: Tensor) -> dict[str, int]:
    if target.is_floating_point() or target.numel() == 0:
        return {}
    values, counts = torch.unique(sample(target.detach(), _TARGET_CAP), return_counts=True)
    return {
        str(int(v)): int(c) for v, c in zip(values[:_HISTOGRAM].tolist(), counts[:_HISTOGRAM].tolist(), strict=True)
    }
