"""Gradients that are left over from the previous step, because the program did not clear them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.statistics.device import placement

if TYPE_CHECKING:
    from torch import Tensor

ALWAYS_CHECKED = 16
"""Steps from the first that are all checked."""
CHECK_EVERY = 25
"""Steps from one check to the next after those."""
_STALE_HEAD = 4096
"""Elements of a gradient that are read first."""


def values(grad: Tensor) -> Tensor | None:
    """Return the tensor that holds the numbers of a gradient: the values of a sparse one, the local part of a DTensor.
    None if they cannot be read.
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
        if held is None:  # unreadable: counted as cleared
            continue
        flat = held.detach().reshape(-1)
        if placement.lies(flat):
            there.setdefault(flat.device, []).append(flat)
        else:
            nonzero += bool(torch.count_nonzero(flat[:_STALE_HEAD])) or bool(torch.count_nonzero(flat))
    return (nonzero + sum(_nonzero_there(flats) for flats in there.values())) / len(tensors)


def _nonzero_there(flats: list[Tensor]) -> int:
    """Return the number of a device's 1-D tensors that are not zero. Synchronises once or twice, not per tensor."""
    heads = torch.stack([torch.count_nonzero(flat[:_STALE_HEAD]) for flat in flats]).tolist()
    left = [flat for flat, head in zip(flats, heads, strict=True) if not head and len(flat) > _STALE_HEAD]
    whole = torch.stack([torch.count_nonzero(flat) for flat in left]).tolist() if left else []
    return sum(map(bool, heads)) + sum(map(bool, whole))
