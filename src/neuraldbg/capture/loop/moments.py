"""The values that readers get at the moments of a step: a call of a model, and a backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuraldbg.capture.autograd.graph_walk import Walk
    from neuraldbg.capture.loop.forward_pass import Model


@dataclass(eq=False)
class Call:
    """One outermost call of a watched model: module, arguments, modes."""

    model: Model
    module: nn.Module
    """The called module: the model's root, or a part of it that the program calls by itself."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool
    """True if gradients were on."""
    evaluating: bool
    """True for an evaluation: no gradients, or eval mode in a program that trains in train mode."""
    first: bool
    """True if the call entered the model at its front: a program may call the parts of a model one after the other."""


@dataclass(eq=False)
class Backward:
    """One backward pass that is about to run, its graph still whole."""

    root: Tensor
    value: float | None
    """The root's value, None if it is not one number on the CPU."""
    accumulates: bool
    """False for ``torch.autograd.grad``, which leaves ``.grad`` alone."""
    walk: Walk | None
    """The walk over its graph, None if the graph is not read in this step. Keep none of its nodes."""
    terms: list[dict[str, Any]] | None
    """The loss's terms as in the LOSS fact, None if the graph is not read."""
