"""The test for tensors on a device whose values cannot be read without a synchronisation.

All code asks here, so that tests can treat CPU tensors as if they were on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.native import dense
from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from collections.abc import Sequence


def lies(x: Tensor) -> bool:
    """Return True if reading a value of ``x`` would synchronise its device."""
    return not x.is_cpu


def plain(x: Tensor) -> bool:
    """Return True if one launch can read ``x`` together with other tensors, in place: of torch's own class, dense, of a
    dtype that we read.
    """
    return type(x) in tensor_memory.ORDINARY and lies(x) and operation.observable(x) and dense(x)


def gradients(tensors: Sequence[Tensor]) -> tuple[list[Tensor | None], list[int]]:
    """Return the gradients of tensors that are ``plain``, None where there is none or one of another kind, and the
    indices of the latter.
    """
    found: list[Tensor | None] = []
    odd: list[int] = []
    careful = operation.transforming()
    for place, tensor in enumerate(tensors):
        grad = tensor.grad
        if grad is not None and (careful or not _usual(grad, tensor)) and not _plain_too(grad, tensor):
            odd.append(place)
            grad = None
        found.append(grad)
    return found, odd


def _usual(grad: Tensor, tensor: Tensor) -> bool:
    """Return True if a gradient is of the usual kind: strided, contiguous, of its tensor's dtype. Cheap, because it
    runs for hundreds of gradients at each step.
    """
    strided = type(grad) is Tensor and grad.layout is torch.strided
    alike = strided and grad.dtype is tensor.dtype and grad.is_contiguous() and not grad.is_neg()
    return alike and tensor_memory.covers(grad)


def _plain_too(grad: Tensor, tensor: Tensor) -> bool:
    return plain(grad) and grad.device == tensor.device
