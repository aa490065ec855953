"""Measures of inputs: the scale of columns, the grid of pixel values, the difference between train and eval levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.capture.statistics.sample_hashes import ROWS

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

_ROWS, _COLUMNS = 16, 4
"""Rows and columns from which on the scale of columns can be told."""
_STILL = 1e-12
_LEVELS = 255
_GRID = 2e-3
_EXACT = 1e-5
_CONTRAST = 0.02
"""Standard deviation below which little contrast of a standardised picture is left."""
_DROWNED = 20.0
"""Offset in standard deviations."""


def columns(x: Tensor) -> dict[str, Any] | None:
    """Return a description of the columns of a table, from one batch: spreads, and the largest offset in spreads. None
    if the batch is too small or too large.
    """
    if x.shape[0] < 4 or x.numel() > ROWS * 4096:
        return None
    wide = x.detach().double()
    std, mean = wide.std(0, unbiased=False), wide.mean(0)
    moving = (std > 1e-12 * mean.abs().clamp_min(1e-30)) & std.isfinite()
    if not bool(moving.any()):
        return None
    offset = mean[moving].abs() / std[moving]
    worst = int(moving.nonzero()[int(offset.argmax())])
    return {
        "std_min": float(std[moving].min()),
        "std_max": float(std[moving].max()),
        "offset": float(offset.max()),
        "worst": worst,
        "worst_mean": float(mean[worst]),
        "worst_std": float(std[worst]),
        "count": int(x.shape[1]),
        "constant": int((~moving).sum()),
    }


def grid(values: npt.NDArray[np.float32]) -> str:
    """Return the grid of pixel values: ``bytes`` (0..255), ``unit`` (k/255), ``twice`` (k/255/255), ``shrunk`` (k/255
    minus 127.5, divided by 127.5), ``faint`` (divided by 255 once too often before standardising), ""
    for none.
    """
    low, high = float(values.min()), float(values.max())
    if len(np.unique(values[:4096])) < 6:
        return ""
    wide = values.astype(np.float64)

    def on(scaled: npt.NDArray[np.float64]) -> bool:
        return bool(np.abs(scaled - np.round(scaled)).max() < 100 * _GRID and scaled.max() - scaled.min() > 20)

    if low >= 0 and high <= _LEVELS and high > 8 and on(wide):
        return "bytes"
    if low >= 0 and high <= 1.001 and high > 1.5 / _LEVELS and on(wide * _LEVELS):
        return "unit"
    if low == 0 and abs(high * _LEVELS - 1) < _EXACT:
        return "twice"  # from 0 to exactly 1 / 255, on any grid: values from 0 to 1 were divided by 255
    if low >= 0 and high <= 1.001 / _LEVELS and high > 0.03 / _LEVELS and on(wide * _LEVELS * _LEVELS):
        return "twice"
    if low >= -1.0001 and high <= -0.99 and on((wide * 127.5 + 127.5) * _LEVELS):
        return "shrunk"
    return "faint" if _faint(wide) else ""


def _faint(values: npt.NDArray[np.float64]) -> bool:
    """Return True if one division by 255 less turns these into standardised values: (x / 255 - mean) / std, x from 0 to
    1.

    The lowest value is -mean / std with or without the division, since x is 0 there.
    """
    mean, std, low = float(values.mean()), float(values.std()), float(values.min())
    if not 0 < std < _CONTRAST or abs(mean) < _DROWNED * std or low >= 0 or len(np.unique(values)) > _LEVELS + 1:
        return False
    undone = low + _LEVELS * (values - low)
    # pictures of one kind may be dark or flat: their mean is off that of all pictures
    return abs(float(undone.mean())) < 1.0 and 0.4 < float(undone.std()) < 1.6


def column_scale(rows: npt.NDArray[np.float32]) -> tuple[float, float] | None:
    """Return the mean squared mean and the mean variance of the columns of a batch, shape (rows, columns), that are not
    constant; None if there are too few rows or columns.
    """
    if rows.shape[0] < _ROWS or rows.shape[1] < _COLUMNS:
        return None
    wide = rows.astype(np.float64)
    mean, variance = wide.mean(0), wide.var(0)
    moving = variance > _STILL * (mean**2 + 1e-30)
    if moving.sum() < _COLUMNS:
        return None
    return float((mean[moving] ** 2).mean()), float(variance[moving].mean())


def middle(
    stats: list[tuple[float, float, float, float]], by_column: list[tuple[float, float]] | None = None
) -> dict[str, Any] | None:
    """Return the medians of the passes' levels, their range, and the spread of their means; None without a pass."""
    if not stats:
        return None
    table = np.asarray(stats)
    columns_of = np.median(np.asarray(by_column), axis=0).tolist() if by_column else (None, None)
    return {
        "column_offset": columns_of[0],
        "column_variance": columns_of[1],
        "mean": float(np.median(table[:, 0])),
        "std": float(np.median(table[:, 1])),
        "low": float(table[:, 2].min()),
        "high": float(table[:, 3].max()),
        "passes": len(stats),
        "wander": float(np.median(np.abs(table[:, 0] - np.median(table[:, 0])))),
    }


def skewed(stats: dict[bool, list[tuple[float, float, float, float]]]) -> float:
    """Return the share of evaluation passes whose mean or spread is outside of those of all training passes."""
    train, evals = np.asarray(stats[False]), np.asarray(stats[True])
    if len(train) < 3 or not len(evals):
        return 0.0
    mean, std = evals[:, 0], evals[:, 1]
    outside = (std < 0.8 * train[:, 1].min()) | (std > 1.25 * train[:, 1].max())
    edge = 0.25 * np.median(train[:, 1])
    outside |= (mean < train[:, 0].min() - edge) | (mean > train[:, 0].max() + edge)
    return float(outside.mean())
