"""The layer where samples of a batch first mix: there a change of one sample first shows in the part of another.

The copy of a model and a changed input enter, the layer's path leaves.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from neuraldbg.capture.guest.module_tree import add_hook, children, own_parameters, walk
from neuraldbg.capture.guest.program_objects import name_of
from neuraldbg.capture.guest.purity import Unfit
from neuraldbg.capture.statistics.nested_tensors import leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.capture.experiments.experiment import Bench

_TENSORS = 512
_ELEMENTS = 1_000_000
"""Limits of the search: all tensors of a pass are kept for a moment."""
_NOISE = 1e-5
"""Change relative to the largest one, below which it is rounding."""


class Flow(NamedTuple):
    """One tensor that went into a layer, or came out of it."""

    layer: str
    type: str
    at: str
    """``input`` or ``output``."""
    value: Tensor


def meeting(bench: Bench, change: Callable[[str, Tensor], Tensor], j: int, n: int) -> dict[str, str] | None:
    """Return layer, type and side ("input", "output") at which sample j of n first changes others, None if unknown."""
    try:
        before, after = _flows(bench, None), _flows(bench, change)
    except Unfit:  # no time is left: the mixing itself is known all the same
        return None
    if [flow[:3] for flow in before] != [flow[:3] for flow in after] or len(before) >= _TENSORS:
        return None
    for one, other in zip(before, after, strict=True):
        if one.value.shape != other.value.shape:
            return None
        moved = (other.value.double() - one.value.double()).abs()  # 8-bit dtypes have no addition
        if bool(moved.isfinite().all()) and not confined(moved, j, n):
            return {"layer": one.layer, "type": one.type, "at": one.at}
    return None


def confined(moved: Tensor, j: int, n: int) -> bool:
    """Return True if all changes are in the part of sample j, along some axis whose size is n or a multiple of it.

    Of an axis that holds n samples of m positions each, the samples may be its outer or its inner part.
    """
    hit = moved > _NOISE * moved.max()
    if not bool(hit.any()):
        return True
    for axis, size in enumerate(moved.shape):
        if size % n == 0:
            flat = hit.movedim(axis, 0).flatten(1).any(1) if hit.dim() > 1 else hit
            for parts in (flat.view(n, -1), flat.view(-1, n).T):
                if not bool(torch.cat([parts[:j], parts[j + 1 :]]).any()):
                    return True
    return False


def _flows(bench: Bench, change: Callable[[str, Tensor], Tensor] | None) -> list[Flow]:
    found: list[Flow] = []
    with _listening(bench.module, found):
        bench.call(change)
    return found


@contextmanager
def _listening(module: nn.Module, found: list[Flow]) -> Iterator[None]:
    """Record the tensors at all layers that have weights of their own, or no children."""
    handles = []

    def note(path: str, layer: nn.Module, at: str, values: Any) -> None:
        for _, x in leaves(values):
            if len(found) < _TENSORS and x.is_floating_point() and x.dim() and 0 < x.numel() <= _ELEMENTS:
                found.append(Flow(path, name_of(layer), at, x.detach().clone()))

    def enters(path: str) -> Any:
        return lambda layer, args: note(path, layer, "input", args)

    def leaves_it(path: str) -> Any:
        return lambda layer, _, output: note(path, layer, "output", output)

    for path, layer in walk(module):
        if path and (own_parameters(layer) or not children(layer)):
            handles.append(add_hook(layer, "_forward_pre_hooks", enters(path)))
            handles.append(add_hook(layer, "_forward_hooks", leaves_it(path)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
