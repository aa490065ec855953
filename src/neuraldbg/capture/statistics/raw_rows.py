"""The accumulators of one step, as a value that leaves the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from neuraldbg.nouns import StepHistograms


class UnitReading(NamedTuple):
    """The units of all watched sites as they were read in one step."""

    highest: npt.NDArray[np.float32]
    """Each unit's highest output, shape (units of all watched sites,), -inf where the site was not read."""
    rows: npt.NDArray[np.int64]
    """Number of rows read of each watched site, shape (watched sites,)."""


class Raw(NamedTuple):
    """A copy of the accumulators of one step, with units and histograms."""

    raw: npt.NDArray[np.float64]
    """Accumulators, shape (sites, operation.WIDTH)."""
    units: UnitReading | None
    """Units. None if none were read in this step."""
    histograms: StepHistograms | None = None
    """Counts of the step, None in all but a few steps."""
