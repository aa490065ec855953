"""The Kullback-Leibler term of a variational autoencoder, recognised by its form: nodes in, its sign and weight out.

For a diagonal Gaussian against a standard one it is ``-0.5 * sum(1 + s - m ** 2 - exp(s))`` with ``s`` the logarithm of
the variance (Kingma and Welling 2014, appendix B). No other common loss adds a tensor and subtracts its exponential.
With the variance ``v`` it is ``0.5 * sum(v + m ** 2 - 1 - log(v))``, as ``torch.distributions`` writes it, or with the
standard deviation ``d ** 2`` and ``2 * log(d)``. With the opposite sign the term has no lower bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.autograd import output_head
from neuraldbg.capture.autograd.graph_walk import op_name, parents
from neuraldbg.capture.autograd.loss_weights import weight
from neuraldbg.capture.autograd.saved_tensors import saved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.capture.autograd.graph_walk import Node

_NODES = 400
"""Nodes of a loss that are searched; those of the term are near the root."""
_SUMS = ("add", "sub", "rsub")


def gaussian_kl(nodes: list[Node]) -> tuple[int, float | None]:
    """Return 1 if such a term is minimised, -1 if it is maximised, 0 if there is none or its sign is not known; and the
    derivative of the loss by the divergence of one unit of one sample, None if it is not known.
    """
    some = nodes[:_NODES]
    found = [node for node in some if op_name(node) in ("exp", "log")]
    if not found:
        return 0, None
    above = output_head.links(nodes)
    for node in found:
        inner = next(parents(node), (None, 0))
        log = op_name(node) == "log"
        # A Poisson loss subtracts a logarithm too, times the target.
        if inner[0] is None or (log and not _plain(node, above)):
            continue
        sign = output_head.sign(node, above, nodes[0])
        for partner, minus, per_unit in _partners(some, node, inner):
            opposite = output_head.sign(partner, above, nodes[0]) * (-1 if minus else 1)
            if sign and opposite == -sign:
                each = weight(node, above, nodes[0])
                return -sign if log else sign, None if each is None else abs(each) * per_unit
    return 0, None


def _partners(some: list[Node], node: Node, inner: tuple[Node | None, int]) -> Iterator[tuple[Node, bool, float]]:
    """Yield the nodes that use the argument of an exponential or logarithm as the divergence does; True if they
    subtract it; and the divergence of a unit for one such exponential or logarithm.
    """
    for one in some:
        name = op_name(one)
        for place, edge in enumerate(one.next_functions):
            if one is node or edge != inner:
                continue
            if name in _SUMS:
                yield one, name == "rsub" or (name == "sub" and place == 1), 2.0  # half a variance
            elif name == "pow" and op_name(node) == "log":
                yield one, False, 1.0


def _plain(log: Node, above: dict[Node, tuple[Node, int]]) -> bool:
    """Return True if a logarithm enters a sum by itself, or times one number."""
    consumer, place = above.get(log, (None, 0))
    if consumer is not None and op_name(consumer) == "mul":
        other = saved(consumer, "other" if place == 0 else "self")
        return other is not None and other.numel() == 1
    return consumer is not None and op_name(consumer) in (*_SUMS, "neg")
