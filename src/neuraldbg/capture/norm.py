"""The gradient norm of a light step: all gradients of an optimizer in one call, or blocks of them where there are too
many.

The blocks move on from step to step, so that every element is read within some steps. A NaN does not wait for that: it
is in the weights after the step, and in the loss and the other gradients at the next.

Where steps are so short that the norm is not read at each, a few of the gradients are, from the front to the end of the
model: a spike in a backward pass shows in them, and then the norm is read after all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from neuraldbg.capture import op
from neuraldbg.capture.bulk import Gradients, plain

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from neuraldbg.capture.governor import Usual
    from neuraldbg.capture.params import Watched

ELEMENTS_A_SECOND = 4e9
"""What the kernel reads at least on one core of today, as of the benchmark ``kernel.py``."""
_LEAST = 8 * op.BLOCK
"""Elements of one gradient that are read in any case."""
_FEW = 4
"""Gradients that are looked at in each step."""


class Norm:
    """The norm of the gradients of some parameters, the same at each step.

    ``seconds`` may be spent on it; ``usual`` is what the norm of a few of them usually is.
    """

    def __init__(self, watched: list[Watched], seconds: float, usual: Usual) -> None:
        self.outdated = False
        """Whether the parameters are no longer what they were: a new one of these is needed."""
        self._rows: list[npt.NDArray[np.float64]] = []
        tensors = [w.ref for w in watched if plain(w.ref)]
        most = int(seconds * ELEMENTS_A_SECOND)
        few = tensors[:: max(1, -(-len(tensors) // (_FEW - 1)))][: _FEW - 1] + tensors[-1:]
        self._few = self._some(few, _LEAST)
        self._usual = usual
        whole = sum(tensor.numel() for tensor in tensors) <= most
        self._gradients = self._some(tensors, 0 if whole else max(most // len(tensors), _LEAST))

    def _some(self, tensors: list[Tensor], cap: int) -> Gradients:
        rows = np.tile(op.BLANK, (len(tensors), 1))
        self._rows.append(rows)  # the kernel writes there
        return Gradients(tensors, [int(rows.ctypes.data) + op.ROW * i for i in range(len(tensors))], cap)

    def seems_odd(self) -> bool:
        """Look at a few of the gradients: whether they are larger than usual by far, or not finite."""
        found = self._few.read()
        return found is not None and (found[1] > 0 or self._usual.odd(math.sqrt(found[0])))

    def read(self) -> tuple[float, int] | None:
        """Return the L2 norm, NaN if an element is not finite, and how many are not; None where nothing was read."""
        if not self._gradients.tensors:
            return None
        found = self._gradients.read()
        if found is None:
            self.outdated = self._gradients.outdated()
            return self._with_torch()
        squares, nonfinite = found
        return (math.nan if nonfinite else math.sqrt(squares)), int(nonfinite)

    def _with_torch(self) -> tuple[float, int] | None:
        """Read with torch's operators: a NaN shows in the norm."""
        if op.transforming():
            return None
        grads = [tensor.grad for tensor in self._gradients.tensors]
        here = [grad.detach() for grad in grads if grad is not None and plain(grad)]
        if not here:
            return None
        norms = torch._foreach_norm(here, 2, dtype=torch.float32)  # noqa: SLF001 (as torch's clipping)
        total = float(torch.linalg.vector_norm(torch.stack(norms)))
        return (total, 0) if math.isfinite(total) else (math.nan, 1)
