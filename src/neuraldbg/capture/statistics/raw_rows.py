"""The accumulators of one step, as a value that leaves the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from neuraldbg.nouns import StepHistograms


class Raw(NamedTuple):
    """A copy of the accumulators of one step, with units and histograms."""

    raw: npt.NDArray[np.float64]
    """Accumulators, shape (sites, operation.WIDTH)."""
    highest: npt.NDArray[np.float32] | None
    """Each unit's highest output, shape (units of all watched sites,), -inf where the site was not read. None if no
    units were read in this step."""
    histograms: StepHistograms | None = None
    """Counts of the step, None in all but a few steps."""
