"""The hooks on nodes of a loss's graph by which the time of a backward pass goes to layers.

Autograd numbers its nodes as they are made, and runs those of one thread from the highest number to the lowest: a node
needs only gradients of later ones. So the nodes of a layer's call are those with numbers between the call's begin and
end, and a hook is needed only where the layer changes. A hook on a node sees no tensor of the program.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.program_objects import is_a, sequence
from neuraldbg.capture.guest.tensor_kinds import node_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

MOST_NODES = 20_000
"""Nodes of a graph that are walked at most: a longer walk takes a noticeable time."""


def set_node_hooks(
    found: list[tuple[int, Any]], owner: Callable[[int], int], tell: Callable[[int], None], *, every: bool
) -> list[RemovableHandle]:
    """Call ``tell`` with the call that ``owner`` returns for a node's number, before the backward pass runs its first
    node after those of another call; before every node if ``every``, for a pass that leaves nodes out. Return the
    handles.
    """
    handles, before = [], -2
    with numbers_apart():
        for number, node in sorted(found, key=lambda each: -each[0]):
            call = owner(number)
            if every or call != before:
                before = call
                handles.append(node.register_prehook(functools.partial(_told, tell, call)))
    return handles


def _told(tell: Callable[[int], None], call: int, _: Any) -> None:
    tell(call)


def nodes(roots: Any) -> list[tuple[int, Any]] | None:
    """Return number and node of all nodes of a graph but its leaves; None if there are more than MOST_NODES, or if the
    backward pass is compiled. Keep none of them: they would outlive the graph.
    """
    if _compiled_autograd():
        return None
    tensors = [x for x in ([roots] if is_a(roots, Tensor) else sequence(roots)) if is_a(x, Tensor)]
    waiting = [node for x in tensors if (node := node_of(x)) is not None]
    seen, found = set(waiting), []
    while waiting:
        node = waiting.pop()
        if type(node).__name__ != "AccumulateGrad":
            found.append((node._sequence_nr(), node))  # noqa: SLF001 (no public name)
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
        if len(seen) > MOST_NODES:
            return None
    return found


def _compiled_autograd() -> bool:
    """Return True if the program compiles its backward passes: a hook would be traced."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "compiled_autograd_enabled", False))
