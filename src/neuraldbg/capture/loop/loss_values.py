"""The values of a step's losses: as numbers, or as tensors still pending on a device."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.pending import Awaited

Kept: TypeAlias = "tuple[Tensor | float | None, float]"
"""(loss, None if it cannot be read; the loss scale it was multiplied by)."""


def value_of(root: Tensor) -> Tensor | float | None:
    """Return the loss as a number if that needs no synchronisation, else as a small tensor that the end of the step
    reads; None if it cannot be read. None also for a DTensor with different parts: each rank would have another number.
    """
    if type(root) in tensor_memory.ORDINARY and root.layout is not torch.strided:
        root = root.detach().to_dense()
    held = tensor_memory.readable(root)
    if held is None or held.shape != root.shape or tensor_memory.is_addend(root):
        return None
    if not placement.lies(held) and held.dim() == 0 and held.is_floating_point():
        return float(held.item())
    value = held.detach()
    value = value.real if value.is_complex() else value
    if value.dim():
        return value.double().mean()
    return value.clone() if placement.lies(value) else float(value.item())


def mean_loss(kept: list[Kept], *, closure: bool) -> tuple[float, int] | None:
    """Return a step's loss, and the number of its losses that were not finite; see ``Losses.loss``."""
    if not kept:
        return None
    values = [float(value) / scale for value, scale in kept if value is not None]  # synchronises a device
    if not values:
        return None
    bad = sum(1 for value in values if not math.isfinite(value))
    return (values[0] if closure else sum(values) / len(values)), bad


def loss_of(kept: list[Kept], *, closure: bool) -> tuple[dict[str, float], Awaited | None]:
    """Return the scalars of a step's losses, and those still pending on a device, None if there are none."""
    if not awaits(kept):
        return _told(kept, closure=closure), None
    there = tuple(value for value, _ in kept if is_a(value, Tensor))
    scales = [(is_a(value, Tensor), value, scale) for value, scale in kept if value is not None]

    def land(values: list[Any], taken: object) -> dict[str, float]:
        arrived = iter(values)
        known: list[Kept] = [(float(next(arrived)) if late else value, scale) for late, value, scale in scales]
        return _told(known, closure=closure)

    return {}, Awaited(there, land)


def awaits(kept: list[Kept]) -> bool:
    """Return True if a loss of a step is on a device."""
    for value, _ in kept:  # noqa: SIM110 (at every light step: a generator would cost more than the rest)
        if type(value) is not float and is_a(value, Tensor) and placement.lies(value):
            return True
    return False


def _told(kept: list[Kept], *, closure: bool) -> dict[str, float]:
    loss = mean_loss(kept, closure=closure)
    return {"loss": loss[0], "loss_nonfinite": loss[1]} if loss is not None else {}
