"""The sign of a policy gradient: does a step make actions with a large weight more likely?

The loss of a policy is the log-probability of each action, or its ratio to that of an old policy, times a weight that
has no graph: a reward, a return, an advantage (Williams 1992; Schulman et al. 2017, equation 7). It is found by its
form: a product of such a weight, and of the logarithm of a softmax or of a normal density. Where the loss grows with
the product, actions with a large weight become less likely: right for costs, and wrong for rewards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.autograd import output_head
from neuraldbg.capture.autograd.graph_walk import SHAPE_ONLY, op_name, parents
from neuraldbg.capture.autograd.saved_tensors import saved

if TYPE_CHECKING:
    from neuraldbg.capture.autograd.graph_walk import Node

_NODES, _DEEP = 400, 12
"""Nodes of a loss that are searched, and operations between a weight and the log-probability."""
_THROUGH = SHAPE_ONLY | {"sum", "clamp", "exp"}
"""Operations that a log-probability goes through without turning round."""


def policy_gradient(nodes: list[Node]) -> int:
    """Return -1 if the loss falls with a weight's log-probability, 1 if it grows with it, 0 if there is no such product
    or its sign is not known.
    """
    above = output_head.links(nodes)
    found: set[int] = set()
    for node in nodes[:_NODES]:
        if op_name(node) != "mul" or len(node.next_functions) != 2:
            continue
        below = [parent for parent, _ in parents(node)]
        if len(below) != 1 or not _is_weight(node):
            continue
        inner = _log_probability(below[0])
        top = above.get(node, (None, 0))[0]  # the smaller one of two such products, as of a clipped ratio
        start = top if top is not None and op_name(top) == "minimum" else node
        outer = output_head.sign(start, above, nodes[0])
        if inner and outer:
            found.add(inner * outer)
    return found.pop() if len(found) == 1 else 0


def _is_weight(product: Node) -> bool:
    """Return True if a factor is a tensor of several numbers without a graph, some of them positive."""
    for name in ("other", "self"):
        held = saved(product, name)
        if held is not None and not held.requires_grad and held.numel() > 1 and held.is_floating_point():
            return bool((held > 0).any())
    return False


def _log_probability(node: Node | None) -> int:
    """Return 1 if a node is a log-probability, -1 if it is the negative of one, 0 if it is neither."""
    sign = 1
    for _ in range(_DEEP):
        if node is None:
            return 0
        name = op_name(node)
        below = list(node.next_functions)
        if name == "logsoftmax" or (name == "sub" and _normalised(node)):
            return sign
        if name == "neg":
            sign = -sign
        elif name == "sub" and len(below) > 1 and below[1][0] is None:
            pass  # less a number: the log-probability under an old policy
        elif name not in _THROUGH:
            return 0
        node = below[0][0] if below else None
    return 0


def _normalised(node: Node) -> bool:
    """Return True for scores less the logarithm of their sum, and for a squared distance less a logarithm: a normal
    density.
    """
    names = [op_name(parent) if parent is not None else "" for parent, _ in node.next_functions]
    if "logsumexp" in names[1:]:
        return True
    one: Node | None = node
    for wanted in ("sub", "sub", "div", "neg", "pow"):
        if one is None:
            return False
        if op_name(one) != wanted:
            if wanted != "sub":
                return False
            continue
        one = one.next_functions[0][0]
    return True
