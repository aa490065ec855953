"""Numbers of the program as floats, read without running any of its code, and without a wait for a collective."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.program_objects import package_of


def number(value: object) -> float | None:
    """Return a number as a float, None if the value is not a number. The element of a one-element tensor is fetched,
    which synchronises its device.
    """
    kind = type(value)
    if kind is float or issubclass(kind, (int, float)):
        return _of_builtin(value)
    if issubclass(kind, (np.floating, np.integer)) and package_of(kind) == "numpy":
        return float(value)  # type: ignore[arg-type]
    if issubclass(kind, Tensor):
        held = tensor_memory.readable(value)  # never `float` of a DTensor: a collective, which other ranks may not join
        single = held is not None and held.numel() == 1 and not held.is_complex() and held.shape == Tensor.size(value)  # type: ignore[call-overload]
        single = single and not tensor_memory.is_addend(value)
        return float(held.detach()) if held is not None and single else None
    return None


def _of_builtin(value: Any) -> float:
    return float.__float__(value) if issubclass(type(value), float) else float(int.__int__(value))
