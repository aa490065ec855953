"""The steps of fused optimizers under a gradient scaler: their scale, and the count of those that change no weight.

``GradScaler.step`` calls a fused optimizer also if gradients have overflowed. The kernel divides by ``grad_scale``, and
leaves the weights as they were if ``found_inf`` is not 0 (torch/amp/grad_scaler.py, ``_step_supports_amp_scaling``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import attribute, is_a
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.device.pending import Awaited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim import Optimizer

    from neuraldbg.capture.loop.optimizer_stream import Stream


def grad_scale(opt: Optimizer, *, wait: bool) -> Tensor | float:
    """Return the number by which a fused optimizer divides the gradients inside of its step: as a float, or as a copy
    on its device, unless it may ``wait`` for that.
    """
    scale = attribute(opt, "grad_scale")
    if not is_a(scale, Tensor):
        return 1.0
    return scale.detach().clone() if placement.lies(scale) and not wait else float(scale)


def note_overflow(stream: Stream, opt: Optimizer, *, wait: bool) -> None:
    """Count a step that begins if its gradients have overflowed. On a device that is known later, unless it may
    ``wait`` for that.
    """
    found, stream.awaited_overflow, stream.overflowed = attribute(opt, "found_inf"), None, 0
    held = tensor_memory.readable(found) if is_a(found, Tensor) else None
    if held is not None and placement.lies(held) and not wait:
        # The scaler's own tensor is reused by its next step.
        stream.awaited_overflow = Awaited((held.detach().clone(),), functools.partial(_land, stream))
    else:
        stream.overflowed = _count(stream, number(held))


def overflows(streams: Sequence[Stream]) -> tuple[dict[str, float], list[Awaited]]:
    """Return the scalar of a step of some optimizers, and the values of it that are still on a device."""
    most = max((stream.overflowed for stream in streams), default=0)
    waiting = [stream.awaited_overflow for stream in streams if stream.awaited_overflow is not None]
    return ({"overflowed": most} if most else {}), waiting


def _count(stream: Stream, found: float | None) -> int:
    stream.overflows = stream.overflows + 1 if found else 0
    return stream.overflows


def _land(stream: Stream, values: list[Any], _: object) -> dict[str, float]:
    count = _count(stream, float(values[0]))
    return {"overflowed": count} if count else {}
