"""The gradient norm of a light step: all gradients of an optimizer in one call, or blocks of them if they are too many.

The blocks advance from step to step, so that every element is read within some steps. A NaN is noticed sooner: it is in
the weights after the step, and in the loss and the other gradients at the next.

If steps are so short that the norm is not read at each, a few of the gradients are, from the front to the end of the
model: a spike in a backward pass shows in them, and then the full norm is read as well.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.weak_references import named
from neuraldbg.capture.parameters.batched_reads import Gradients, plain
from neuraldbg.capture.parameters.device_gradient_norm import ELEMENTS_A_SECOND as ON_A_DEVICE
from neuraldbg.capture.parameters.device_gradient_norm import DeviceNorm, awaited
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from neuraldbg.capture.guest.weak_references import TensorRef
    from neuraldbg.capture.parameters.batched_reads import Refs
    from neuraldbg.capture.parameters.usual_norm import Usual
    from neuraldbg.capture.statistics.device.pending import Awaited
    from neuraldbg.capture.statistics.watched_parameter import Watched

ELEMENTS_A_SECOND = 4e9
"""Elements that native code reads per second at least on one current core, by the benchmark ``kernel.py``."""
_LEAST = 8 * operation.BLOCK
"""Elements of one gradient that are read in any case."""
_FEW = 4
"""Gradients that are sampled in each step."""
_GLANCE = 2 * operation.BLOCK
"""Elements sampled of each: any of them show a gradient's size, and each block is a cache miss."""


class Norm:
    """The norm of the gradients of some parameters, the same at each step.

    ``seconds`` may be spent on a reading; ``usual`` is the usual norm of a few of the gradients; ``before`` is the
    ``Norm`` that this one replaces.
    """

    def __init__(self, watched: list[Watched], seconds: float, usual: Usual, before: Norm | None = None) -> None:
        self.outdated = False
        """True if the parameters have changed, so that a new ``Norm`` is needed."""
        self._rows: list[npt.NDArray[np.float64]] = []
        tensors = [w.weak for w in watched if plain(w.ref)]
        most = int(seconds * ELEMENTS_A_SECOND)
        self._few = self._some(_a_few(tensors), _GLANCE)
        there = [w.weak for w in watched if placement.plain(w.ref)]
        self._usual = usual
        whole = sum(named(ref).numel() for ref in tensors) <= most
        self._gradients = self._some(tensors, 0 if whole else max(most // len(tensors), _LEAST))
        self._devices = _on_devices(there, seconds, before)
        self._few_there = _on_devices(_a_few(there), 0.0, before, few=True)

    def _some(self, tensors: list[TensorRef], cap: int) -> Gradients:
        rows = np.tile(operation.BLANK, (len(tensors), 1))
        self._rows.append(rows)  # keeps the memory alive that native code writes to
        return Gradients(tensors, [int(rows.ctypes.data) + operation.ROW * i for i in range(len(tensors))], cap)

    def seems_odd(self) -> bool:
        """Read a few of the gradients. Return True if they are far larger than usual, or not finite."""
        found = self._few.read()
        return found is not None and (found[1] > 0 or self._usual.odd(math.sqrt(found[0])))

    @property
    def waits(self) -> bool:
        """True if gradients are on other devices."""
        return bool(self._devices)

    @property
    def stands(self) -> bool:
        """True if native code can read all of it by its plans."""
        return native is not None and bool(self._gradients.tensors) and not self.outdated

    @property
    def plans(self) -> tuple[tuple[int, Refs], tuple[int, Refs]]:
        """(address, tensors) of the plan for a few gradients, and of the plan for all."""
        return self._few.plan, self._gradients.plan

    def awaited(self, scale: Tensor | float) -> Awaited | None:
        """Read all gradients, those of other devices by a launch whose numbers arrive later. Return None if there is
        none. ``scale`` divides the norm.
        """
        found = self.read()
        by = scale if isinstance(scale, float) else 1.0
        here = ((found[0] / by) ** 2, float(found[1])) if found is not None else None
        there = [part for part in (each.read() for each in self._devices) if part is not None]
        late = scale if not isinstance(scale, float) else None
        return awaited(here, there, late) if there or here is not None else None

    def glance(self, scale: Tensor | float) -> Awaited | None:
        """Read a few of the gradients of other devices. If they are far larger than usual, or not finite, their norm is
        reported for that of all, which is at least as large; else none is reported.
        """
        there = [part for part in (each.read() for each in self._few_there) if part is not None]
        late = None if isinstance(scale, float) else scale
        return awaited(None, there, late, self._usual.odd) if there else None

    def read(self) -> tuple[float, int] | None:
        """Return (L2 norm, NaN if an element is not finite; number of those), None if no gradient was read."""
        if not self._gradients.tensors:
            return None
        found = self._gradients.read()
        if found is None:
            self.outdated = self._gradients.outdated()
            return self._with_torch()
        squares, nonfinite = found
        return (math.nan if nonfinite else math.sqrt(squares)), int(nonfinite)

    def _with_torch(self) -> tuple[float, int] | None:
        """Read with torch's operators, where a NaN makes the norm NaN."""
        if operation.transforming():
            return None
        grads = [named(ref).grad for ref in self._gradients.tensors]
        here = [grad.detach() for grad in grads if grad is not None and plain(grad)]
        if not here:
            return None
        wide = torch.float64 if any(grad.dtype is torch.float64 for grad in here) else torch.float32  # narrows none
        norms = torch._foreach_norm(here, 2, dtype=wide)  # noqa: SLF001 (as torch's clipping)
        total = float(torch.linalg.vector_norm(torch.stack(norms)))
        return (total, 0) if math.isfinite(total) else (math.nan, 1)


def _a_few(tensors: list[TensorRef]) -> list[TensorRef]:
    """Return some tensors, spread from front to end."""
    return tensors[:: max(1, -(-len(tensors) // (_FEW - 1)))][: _FEW - 1] + tensors[-1:]


def _on_devices(
    tensors: list[TensorRef], seconds: float, before: Norm | None, *, few: bool = False
) -> list[DeviceNorm]:
    """Return one reader of gradients per device, reusing those of ``before`` that still hold."""
    by_device: dict[torch.device, list[TensorRef]] = {}
    for ref in tensors:
        by_device.setdefault(named(ref).device, []).append(ref)
    planned = [] if before is None else before._few_there if few else before._devices  # noqa: SLF001
    known = {each.device: each for each in planned}
    made = []
    for device, some in by_device.items():
        most = int(seconds * ON_A_DEVICE)
        share = max(most // len(some), _LEAST)
        # A power of two, so that a plan holds from one stretch of light steps to the next.
        cap = 0 if sum(named(ref).numel() for ref in some) <= most else 1 << (share.bit_length() - 1)
        old = known.get(device)
        same = old is not None and old.cap == cap and len(old.tensors) == len(some)
        same = same and old is not None and all(a is b for a, b in zip(old.tensors, some, strict=True))
        made.append(old if old is not None and same else DeviceNorm(some, cap))
    return made
