"""Whether a tensor lies on a device whose values cannot be looked at without waiting for it.

One place decides, so that tests can have tensors of the CPU treated as if they lived on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture import device_plan, op

if TYPE_CHECKING:
    from torch import Tensor


def lies(x: Tensor) -> bool:
    """Whether to look at a value of ``x`` is to wait."""
    return not x.is_cpu


def plain(x: Tensor) -> bool:
    """Whether one launch can read ``x`` together with others as it lies: ordinary, dense, of a dtype that we read."""
    return type(x) in op.ORDINARY and lies(x) and op.observable(x) and device_plan.dense(x)
