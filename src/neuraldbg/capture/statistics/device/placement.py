"""Whether a tensor lies on a device whose values cannot be looked at without waiting for it.

One place decides, so that tests can have tensors of the CPU treated as if they lived on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import block_layout

if TYPE_CHECKING:
    from collections.abc import Sequence


def lies(x: Tensor) -> bool:
    """Return True if reading a value of ``x`` would wait for its device."""
    return not x.is_cpu


def plain(x: Tensor) -> bool:
    """Return True if one launch can read ``x`` together with others as it lies: ordinary, dense, of a dtype that we
    read.
    """
    return type(x) in tensor_memory.ORDINARY and lies(x) and operation.observable(x) and block_layout.dense(x)


def gradients(tensors: Sequence[Tensor]) -> tuple[list[Tensor | None], list[int]]:
    """Return the gradients of tensors that are ``plain``, None where there is none or one of another kind, and the
    places of the latter.
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
    """Return True if a gradient is what nearly all are. There are hundreds of them at each step, and this costs
    little.
    """
    strided = type(grad) is Tensor and grad.layout is torch.strided
    alike = strided and grad.dtype is tensor.dtype and grad.is_contiguous() and not grad.is_neg()
    return alike and tensor_memory.covers(grad)


def _plain_too(grad: Tensor, tensor: Tensor) -> bool:
    return plain(grad) and grad.device == tensor.device
