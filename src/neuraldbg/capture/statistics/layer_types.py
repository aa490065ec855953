"""Facts that follow from a module's type: the axis that holds its units, and where a bounded output saturates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import attribute, is_a

if TYPE_CHECKING:
    from torch import Tensor

RECTIFIERS = (nn.ReLU, nn.ReLU6)
"""Modules whose units are silent, and untrainable, where the output is zero."""

_CHANNELS_SECOND = (
    nn.modules.conv._ConvNd,  # noqa: SLF001 (the common base of all convolutions is not exported)
    nn.modules.batchnorm._BatchNorm,  # noqa: SLF001
    nn.GroupNorm,
)
_IMAGE_DIMS = 4

# An output counts as saturated within 1% of the range of a bound: there the slope of a sigmoid is below 4% of its
# largest (s(1 - s) <= 0.0099 against 0.25), so that the gradient through it is all but gone.
_BOUNDS: tuple[tuple[type[nn.Module], float, float], ...] = (
    (nn.Sigmoid, 0.5, 0.49),
    (nn.Hardsigmoid, 0.5, 0.49),
    (nn.Tanh, 0.0, 0.98),
    (nn.Softsign, 0.0, 0.98),
)
PRE_ACTIVATION = {"sigmoid": 4.595, "tanh": 2.298}
"""|input| beyond which a functional activation is within 1% of its bounds: logit(0.99) and atanh(0.98)."""


def unit_axis(module: nn.Module, x: Tensor) -> int | None:
    """Return the axis of ``x`` that holds the module's units, None if it has none (fewer than two axes)."""
    if x.dim() < 2:
        return None
    if is_a(module, _CHANNELS_SECOND) or (x.dim() >= _IMAGE_DIMS and not is_a(module, nn.Linear)):
        return 1
    return x.dim() - 1


def saturation(module: nn.Module) -> tuple[float, float]:
    """Return (bound, centre): an output farther than ``bound`` from ``centre`` is saturated; (0, 0) if the output is
    not bounded.
    """
    for kind, centre, bound in _BOUNDS:
        if is_a(module, kind):
            return bound, centre
    if is_a(module, nn.Hardtanh) and not is_a(module, nn.ReLU6):
        high, low = number(attribute(module, "max_val")), number(attribute(module, "min_val"))
        if high is not None and low is not None:
            return (high - low) * 0.49, (high + low) / 2
    return 0.0, 0.0
