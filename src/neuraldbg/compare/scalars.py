"""One scalar of one optimizer in two runs, aligned. Light steps, whose sites were not read, have scalars as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.compare.alignment import Stretches, stretches
from neuraldbg.nouns import nonfinite_of
from neuraldbg.nouns.comparison import LossPair

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.comparison import Tolerance

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

APART = 0.1
"""Share of the larger loss by which two losses must differ to be different curves for a person."""

_SUMMED = 1e-12


@dataclass(frozen=True)
class ScalarPair:
    """The values of one scalar of one optimizer in both runs, over their common stretches."""

    name: str
    stream: int
    time: Stretches
    one: Floats
    other: Floats
    """Values of the second run, shape (G,); means over thinned steps."""
    relative: Floats
    """Relative difference, shape (G,); infinite if only one value is finite, 0 if neither is."""
    beyond: Bools
    """True if the difference is beyond the tolerance, shape (G,)."""
    differs: Bools
    """True if any bit differs, shape (G,); for means over thinned steps, which are summed in different orders, more
    than the last one."""


def scalar_pair(
    runs: tuple[RunRecord, RunRecord], name: str, stream: int | None, tol: Tolerance, *, whole: bool = True
) -> ScalarPair | None:
    """Return one scalar of both runs, of one optimizer or of all; None if one run has not measured it at a step of the
    other.
    """
    keep, values = [], []
    for run in runs:
        column = run.history.scalars.get(name)
        if column is None:
            return None
        bad = run.history.scalars.get(nonfinite_of(name))
        mine = np.ones(len(column), np.bool_) if stream is None else run.history.stream == stream
        keep.append((~np.isnan(column) | (bad > 0 if bad is not None else False)) & mine)
        values.append(column)
    time = stretches(runs[0].history, runs[1].history, (keep[0], keep[1]), whole=whole)
    if not len(time):
        return None
    one, other = (
        _mean(column, run.history.width, side.rows, side.starts)
        for column, run, side in zip(values, runs, (time.one, time.other), strict=True)
    )
    finite = np.isfinite(one), np.isfinite(other)
    relative = np.zeros(len(time))
    both = finite[0] & finite[1] & (one != other)
    off = np.abs(one[both] - other[both])
    relative[both] = off / np.maximum(np.abs(one[both]), np.abs(other[both]))
    relative[finite[0] != finite[1]] = np.inf
    beyond = relative > tol.rtol
    beyond[both] &= off > tol.atol
    differs = relative > np.where(time.width > 1, _SUMMED, 0.0)
    return ScalarPair(name, stream or 0, time, one, other, relative, beyond, differs)


def _mean(
    values: Floats, width: npt.NDArray[np.int64], rows: npt.NDArray[np.intp], starts: npt.NDArray[np.intp]
) -> Floats:
    if len(rows) == len(starts):
        return values[rows]
    weight = width[rows]
    found: Floats = np.add.reduceat(values[rows] * weight, starts) / np.add.reduceat(weight, starts)
    return found


def usual(run: RunRecord, name: str, stream: int) -> int | None:
    """Return the most frequent value of a count over the steps of an optimizer; None if there is none.

    A batch is that of one forward pass: two passes over 64 samples are no batch of 128. Thinned rows hold means, and
    are left out.
    """
    history = run.history
    values = history.scalars.get(name)
    if values is None:
        return None
    passes = history.scalars.get("forwards") if name == "batch_size" else None
    with np.errstate(all="ignore"):
        each = values / np.where(passes > 0, passes, 1.0) if passes is not None else values
    kept = each[(history.stream == stream) & (history.width == 1) & np.isfinite(each)]
    if not len(kept):
        return None
    found, times = np.unique(np.round(kept).astype(np.int64), return_counts=True)
    most = int(found[times.argmax()])
    return most if most or name != "batch_size" else None


def loss_pair(pair: ScalarPair) -> LossPair:
    """Summarise the losses of one optimizer."""
    one, other = pair.one, pair.other
    with np.errstate(invalid="ignore"):  # both may be infinite
        far = np.abs(one - other) > APART * np.maximum(np.abs(one), np.abs(other))
    far |= np.isfinite(one) != np.isfinite(other)
    near, apart = np.flatnonzero(~far), np.flatnonzero(far)
    start = int(near[-1]) + 1 if len(near) else 0
    parted = np.flatnonzero(pair.beyond)
    return LossPair(
        pair.stream,
        (_last(one), _last(other)),
        (_over_finite(np.min, one), _over_finite(np.min, other)),
        (_over_finite(np.mean, one), _over_finite(np.mean, other)),
        int(pair.time.steps[parted[0]]) if len(parted) else None,
        int(pair.time.steps[start]) if start < len(one) else None,
        int(pair.time.steps[apart[0]]) if len(apart) else None,
        int(pair.time.width[far].sum()),
        int(pair.time.width.sum()),
    )


def _last(values: Floats) -> float:
    finite = np.flatnonzero(np.isfinite(values))
    return float(values[finite[-1]]) if len(finite) else float("nan")


def _over_finite(reduce: Callable[[Floats], np.float64], values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(reduce(finite)) if len(finite) else float("nan")
