"""The accumulators of one step, as they leave the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from neuraldbg.nouns import StepHistograms


class Raw(NamedTuple):
    """One step's accumulators, copied."""

    raw: npt.NDArray[np.float64]
    """Shape (sites, op.WIDTH)."""
    highest: npt.NDArray[np.float32] | None
    """Shape (units of all watched sites,): each unit's highest output, -inf where its site was not seen. None where
    units were not read."""
    histograms: StepHistograms | None = None
    """None in all but a few steps."""
