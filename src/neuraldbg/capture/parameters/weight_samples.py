"""A few weights of an optimizer, and a few elements of each, for readers to whom the whole would cost too much.

The elements are evenly spaced and the same in every step, so that samples of different steps may be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from neuraldbg.capture.guest.module_tree import tensors
from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor
    from torch.optim import Optimizer

    from neuraldbg.capture.parameters.parameters import Params
    from neuraldbg.capture.statistics.watched_parameter import Watched

ELEMENTS = 128
"""Elements of one parameter."""
MEMBERS = 4
"""Parameters of one optimizer."""
STREAMS = 4
"""Optimizers whose samples a reader keeps from one reading to the next."""


def chosen(params: Params, opt: Optimizer, members: int = MEMBERS) -> list[Watched]:
    """Return matrices that an optimizer trains, evenly spaced over its list; vectors if it has no matrix. Embeddings
    come last: most of their rows have no gradient in a step.
    """
    owned = params.owned(tensors(opt))
    owned = [
        w for w in owned if operation.observable(w.ref) and w.ref.grad is not None and operation.observable(w.ref.grad)
    ]
    found = [w for w in owned if w.ref.dim() > 1 and not w.rows] or [w for w in owned if not w.rows] or owned
    if len(found) <= members:
        return found
    places = np.linspace(0, len(found) - 1, members).round().astype(int)
    return [found[i] for i in places]


def elements(x: Tensor, like: Tensor | None = None) -> Tensor:
    """Return up to ``ELEMENTS`` evenly spaced elements, 1-D, at the same places as in the layout of ``like``."""
    numel = x.numel()
    step = max(1, numel // ELEMENTS)
    count = min(numel, ELEMENTS)
    if x.is_contiguous() and (like is None or like.is_contiguous()):
        return x.as_strided((count,), (step,), x.storage_offset())
    return operation.spaced(x, step, count)


def joined(tensors: Sequence[Tensor], likes: Sequence[Tensor] | None = None) -> npt.NDArray[np.float32]:
    """Return the elements of several detached tensors as one vector. Synchronises another device."""
    pairs = zip(tensors, likes, strict=True) if likes is not None else ((x, None) for x in tensors)
    flat = torch.cat([elements(x, like) for x, like in pairs])
    found: npt.NDArray[np.float32] = flat.to("cpu", torch.float32).numpy()
    return found


def cosine(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    """Return the cosine of two vectors, NaN if one is zero or not finite."""
    size = float(np.dot(a, a)) * float(np.dot(b, b))
    return float(np.dot(a, b)) / size**0.5 if np.isfinite(size) and size > 0 else float("nan")
