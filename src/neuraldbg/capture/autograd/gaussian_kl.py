"""The Kullback-Leibler term of a variational autoencoder, recognised by its form: nodes of the graph in, a sign out.

For a diagonal Gaussian against a standard one it is ``-0.5 * sum(1 + s - m ** 2 - exp(s))`` with ``s`` the logarithm of
the variance (Kingma and Welling 2014, appendix B). No other common loss adds a tensor and subtracts its exponential.
With the opposite sign the term has no lower bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.autograd import output_head
from neuraldbg.capture.autograd.graph_walk import op_name, parents

if TYPE_CHECKING:
    from neuraldbg.capture.autograd.graph_walk import Node

_NODES = 400
"""Nodes of a loss that are searched; those of the term are near the root."""


def gaussian_kl(nodes: list[Node]) -> int:
    """Return 1 if such a term is minimised, -1 if it is maximised, 0 if there is none or its sign is not known."""
    some = nodes[:_NODES]
    exps = [node for node in some if op_name(node) == "exp"]
    if not exps:
        return 0
    above = output_head.links(nodes)
    for exp in exps:
        logvar = next(parents(exp), (None, 0))
        sign = output_head.sign(exp, above, nodes[0])
        if sign == 0 or logvar[0] is None:
            continue
        for node in some:
            name = op_name(node)
            if node is exp or name not in ("add", "sub", "rsub"):
                continue
            for place, edge in enumerate(node.next_functions):
                if edge == logvar:
                    minus = name == "rsub" or (name == "sub" and place == 1)
                    linear = output_head.sign(node, above, nodes[0]) * (-1 if minus else 1)
                    if linear == -sign:
                        return sign
    return 0
