"""Numbers that people give by hand: lists, arrays or tensors of any framework enter, numpy arrays leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from neuraldbg.show.forms import Floats


def numbers(values: Any, what: str, axes: int = 1) -> Floats:
    """Convert numbers to float64, flat or with ``axes`` axes. Other values raise ConfigError; ``what`` names them."""
    try:
        found = _array(values)
        if found.dtype.kind in "cSUmM":  # numpy would make numbers of words, and drop imaginary parts
            raise TypeError  # noqa: TRY301
        real: Floats = found.astype(np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{what} are not real numbers: give a list, an array or a tensor of them") from None
    if axes == 1:
        return real.ravel()
    if real.ndim != axes:
        raise ConfigError(f"{what} have {real.ndim} axes: give a matrix, rows by columns")
    return real


def _array(values: Any) -> Any:
    if hasattr(values, "detach"):  # a tensor of torch, on whatever device and of a type that numpy may not know
        return values.detach().cpu().double().numpy()
    if isinstance(values, (list, tuple)) and any(hasattr(value, "detach") for value in values):
        return np.asarray([_array(value) for value in values])
    return np.asarray(values)
