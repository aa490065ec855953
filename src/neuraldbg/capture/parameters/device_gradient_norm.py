"""The gradient norm of a light step for gradients on a device: one launch, and numbers that arrive later.

With Triton all gradients are read by one launch into a small table, or, if they are too many, blocks of them that
advance from step to step; torch reads them whole by its own operation for many norms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.guest.weak_references import named
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.pending import Awaited
from neuraldbg.capture.statistics.device.table import DeviceTable
from neuraldbg.capture.statistics.device.tensor_group import TensorGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from neuraldbg.capture.guest.weak_references import TensorRef
    from neuraldbg.capture.statistics.raw_rows import Raw

ELEMENTS_A_SECOND = 1e11
"""Elements that a device reads per second at least: 400 GB/s of float32. Not measured by us."""


class DeviceNorm:
    """Reads the gradients of some parameters of one device, all ``placement.plain``, at most ``cap`` elements of each
    (0 for all).
    """

    def __init__(self, tensors: list[TensorRef], cap: int) -> None:
        self.tensors, self.cap = tensors, cap
        like = [named(ref) for ref in tensors]
        self.device = like[0].device
        self._table = DeviceTable(self.device, len(tensors))
        self._group = TensorGroup(self._table, like, range(len(tensors)), [cap] * len(tensors))
        self._turn = 0

    def read(self) -> Tensor | None:
        """Queue the reading. Return the tensor that ``squares`` takes once it has arrived, None without a gradient."""
        grads, _ = placement.gradients([named(ref) for ref in self.tensors])
        there = [grad for grad in grads if grad is not None]
        if not there:
            return None
        if self._table.kind == "torch":
            there = [grad.detach() for grad in there]
            wide = torch.float64 if any(grad.dtype is torch.float64 for grad in there) else torch.float32
            return torch.stack(torch._foreach_norm(there, 2, dtype=wide))  # noqa: SLF001 (as torch's clipping)
        self._turn += 1
        self._table.clear(len(grads))
        self._group.observe(grads, self._turn)
        return self._table.table


def squares(found: Any) -> tuple[float, float]:
    """Return the sum of squares over all gradients, and the number of non-finite values read. ``found`` are rows, shape
    (gradients, operation.WIDTH), or norms, shape (gradients,).
    """
    return (float(found @ found), float((~np.isfinite(found)).sum())) if found.ndim == 1 else operation.squares(found)


def awaited(
    here: tuple[float, float] | None,
    there: list[Tensor],
    scale: Tensor | None,
    tells: Callable[[float], bool] = lambda norm: True,
) -> Awaited:
    """Return the pending norm over the gradients read ``here``, as (sum of squares, non-finite elements), and
    ``there``.

    ``scale`` divides it, if gradients are unscaled only inside of the step. ``tells`` returns True for a norm to
    report.
    """

    def land(values: list[Any], taken: Raw | None) -> dict[str, float]:
        by = float(values[-1]) if scale is not None else 1.0
        parts = [squares(value) for value in values[: len(there)]]
        if here is not None:
            parts.append(here)
        bad = sum(part[1] for part in parts)
        norm = math.nan if bad else math.sqrt(sum(part[0] for part in parts)) / by
        return {"grad_norm": norm} if tells(norm) else {}

    return Awaited((*there, *(() if scale is None else (scale,))), land)
