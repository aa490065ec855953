"""The histogram of the values of a tensor: values enter, borders and counts leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.errors import ConfigError
from neuraldbg.show.forms import Scale, View

if TYPE_CHECKING:
    from neuraldbg.show.forms import Floats, Ints

MOST = 1000
"""Bins: more are narrower than a dot of the picture."""

VALUES = Scale("value")


@dataclass(frozen=True, kw_only=True)
class Histogram(View):
    """A histogram of values that a person gave; no run has this form."""

    edges: Floats
    """Borders of the bins, shape (B + 1,)."""
    counts: Ints
    """Number of values in each bin, shape (B,)."""
    mean: float
    std: float
    scale: Scale = VALUES


def counted(title: str, values: Floats, bins: int, notes: tuple[str, ...]) -> Histogram:
    """Count the finite values in bins of equal width. ConfigError for a number of bins that cannot be."""
    if not 1 <= bins <= MOST:
        raise ConfigError(f"a histogram cannot have {bins} bins: give 1 to {MOST:,}")
    found = values[np.isfinite(values)]
    if not len(found):
        why = "no values were given" if not len(values) else f"none of the {len(values):,} values is finite"
        nothing = np.zeros(0)
        return Histogram(
            name="histogram",
            title=title,
            edges=nothing,
            counts=nothing.astype(np.int64),
            mean=np.nan,
            std=np.nan,
            notes=notes,
            empty=why,
        )
    low, high = float(found.min()), float(found.max())
    if not np.isfinite(high - low):
        raise ConfigError("the range of the values is too wide for bins of equal width")
    largest = max(abs(low), abs(high))
    if high - low <= 4 * bins * np.spacing(largest):  # all but equal: bins would be narrower than a float can say
        around = 0.5 * largest or 0.5
        low, high = low - around, high + around
    counts, edges = np.histogram(found, bins=bins, range=(low, high))
    center = found / largest if largest else found  # squares of large numbers would overflow
    return Histogram(
        name="histogram",
        title=title,
        edges=edges,
        counts=counts.astype(np.int64),
        mean=float(center.mean() * (largest or 1.0)),
        std=float(center.std() * (largest or 1.0)),
        notes=notes,
    )
