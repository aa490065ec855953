"""Numbers that people give by hand: lists, arrays or tensors of any framework enter, float64 arrays leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.errors import ConfigError
from neuraldbg.foreign_arrays import read

if TYPE_CHECKING:
    from neuraldbg.show.forms import Floats


def numbers(values: Any, what: str, axes: int = 1) -> Floats:
    """Convert numbers to float64, flat or with ``axes`` axes. Other values raise ConfigError; ``what`` names them."""
    real: Floats = read(values, what, real=True).values.astype(np.float64)
    if axes == 1:
        return real.ravel()
    if real.ndim != axes:
        raise ConfigError(f"{what} have {real.ndim} axes: give a matrix, rows by columns")
    return real
