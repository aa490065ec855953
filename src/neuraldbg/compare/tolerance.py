"""The tolerance within which two statistics count as equal, from the dtypes of the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError
from neuraldbg.nouns.comparison import Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterable

RTOL = {"float64": 1.3e-6, "float32": 1.3e-6, "float16": 1e-3, "bfloat16": 1.6e-2}
"""Relative tolerances of ``torch.testing.assert_close``, by dtype; that of float64 is float32's, because statistics
are stored as float32. If all elements of two tensors agree within ``rtol`` of the elements, then means, standard
deviations, root mean squares and extremes agree within ``rtol`` of the tensor's size. Its absolute tolerance of 1e-5 is
not used: whole gradients and updates are often smaller than that."""
ORDER = ("float64", "float32", "float16", "bfloat16")
"""Names of dtypes from fine to coarse."""


def tolerance_for(dtypes: Iterable[str], rtol: float | None = None, atol: float | None = None) -> Tolerance:
    """Return the given tolerance, else the default of the coarsest dtype, since values computed from it are as coarse.

    Negative numbers raise ConfigError.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < float("inf"):
            raise ConfigError(f"{name} is {value}: it must be a number from 0 on")
    if rtol is not None:
        return Tolerance(rtol, atol or 0.0, "as given")
    known = {dtype for dtype in dtypes if dtype in ORDER}
    coarsest = max(known, key=ORDER.index, default="float32")
    return Tolerance(RTOL[coarsest], atol or 0.0, f"torch.testing.assert_close for {coarsest}")
