"""Gradients left over from the step before: nobody cleared them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.statistics.device import placement

if TYPE_CHECKING:
    from torch import Tensor

_STALE_HEAD = 4096
"""Elements of a gradient that are looked at first."""


def values(grad: Tensor) -> Tensor | None:
    """Return the tensor that holds the numbers of a gradient, of a sparse one its values, of a DTensor this rank's
    part; None where they cannot be looked at.
    """
    if type(grad) in tensor_memory.ORDINARY and grad.is_sparse:
        grad = grad.coalesce().values()
    return tensor_memory.readable(grad)


def stale_share(tensors: list[Tensor]) -> float:
    """Return the share of tensors whose gradient is set and not zero. Reads the gradients' heads, then whole ones."""
    if not tensors:
        return 0.0
    nonzero = 0
    there: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        grad = tensor.grad
        if grad is None:
            continue
        held = values(grad)
        if held is None:  # nobody can tell what it holds
            continue
        flat = held.detach().reshape(-1)
        if placement.lies(flat):
            there.setdefault(flat.device, []).append(flat)
        else:
            nonzero += bool(torch.count_nonzero(flat[:_STALE_HEAD])) or bool(torch.count_nonzero(flat))
    return (nonzero + sum(_nonzero_there(flats) for flats in there.values())) / len(tensors)


def _nonzero_there(flats: list[Tensor]) -> int:
    """Return how many tensors of a device, 1-D, are not zero. Waits once or twice, not once for each."""
    heads = torch.stack([torch.count_nonzero(flat[:_STALE_HEAD]) for flat in flats]).tolist()
    left = [flat for flat, head in zip(flats, heads, strict=True) if not head and len(flat) > _STALE_HEAD]
    whole = torch.stack([torch.count_nonzero(flat) for flat in left]).tolist() if left else []
    return sum(map(bool, heads)) + sum(map(bool, whole))
