"""The gradient norm of a light step: all gradients of an optimizer in one call, or blocks of them where there are too
many.

The blocks move on from step to step, so that every element is read within some steps. A NaN does not wait for that: it
is in the weights after the step, and in the loss and the other gradients at the next.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from neuraldbg.capture import op
from neuraldbg.capture.bulk import plain
from neuraldbg.capture.kernel import CODES, native

if TYPE_CHECKING:
    from torch import Tensor

    from neuraldbg.capture.params import Watched

ELEMENTS_A_SECOND = 4e9
"""What the kernel reads at least on one core of today, as of the benchmark ``kernel.py``."""
_LEAST = 8 * op.BLOCK
"""Elements of one gradient that are read in any case."""
_ADDRESS, _NUMEL, _CAP, _ROW = 0, 2, 3, 4


class Gradients:
    """Reads the gradients of some parameters, the same at each step."""

    def __init__(self, watched: list[Watched], seconds: float) -> None:
        self._members = [w.ref for w in watched if plain(w.ref)]
        self._sizes = [tensor.numel() for tensor in self._members]
        self._turn = 0
        n = len(self._members)
        most = int(seconds * ELEMENTS_A_SECOND)
        cap = 0 if sum(self._sizes) <= most else max(most // n, _LEAST)
        self._row = np.tile(op.BLANK, (max(n, 1), 1))
        self._plan = np.zeros((n, 6), np.int64)
        if n:
            self._plan[:, 1] = [CODES[tensor.dtype] for tensor in self._members]
            self._plan[:, _NUMEL] = self._sizes
            self._plan[:, _CAP] = cap
            self._plan[:, _ROW] = self._row.ctypes.data + op.ROW * np.arange(n)
        self._address = self._plan.ctypes.data

    def read(self) -> tuple[float, int] | None:
        """Return the L2 norm, NaN if an element is not finite, and how many are not; None where nothing was read."""
        if op.transforming() or not self._members:
            return None
        grads = [tensor.grad for tensor in self._members]
        if native is None:
            return self._norm(grads)
        # A gradient has the dtype of its tensor: torch sees to that. It may be sparse, expanded, or of a size that
        # its tensor had before.
        try:
            addresses = [
                grad.data_ptr() if grad is not None and grad.is_contiguous() and grad.numel() == size else 0
                for grad, size in zip(grads, self._sizes, strict=True)
            ]
        except RuntimeError:  # a sparse one is not contiguous in any way
            return self._norm(grads)
        self._plan[:, _ADDRESS] = addresses
        self._turn += 1
        squares, nonfinite = native.observe_many(self._address, len(self._members), self._turn)
        return (math.nan if nonfinite else math.sqrt(squares)), int(nonfinite)

    def _norm(self, grads: list[Tensor | None]) -> tuple[float, int] | None:
        """Read with torch's operators: a NaN shows in the norm."""
        here = [grad.detach() for grad in grads if grad is not None and plain(grad)]
        if not here:
            return None
        norms = torch._foreach_norm(here, 2, dtype=torch.float32)  # noqa: SLF001 (as torch's clipping)
        total = float(torch.linalg.vector_norm(torch.stack(norms)))
        return (total, 0) if math.isfinite(total) else (math.nan, 1)
