"""A batch of inputs that is recorded by hand: its shape, and the scale of its columns if it is a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.batch import BatchLeaf

if TYPE_CHECKING:
    from neuraldbg.toolbox.given_arrays import Given

_TABLE, _IMAGE = 2, 4
"""Axes of a table, samples by features, and of a batch of images."""


def batch_leaf(found: Given) -> BatchLeaf:
    """Return the description of a batch, as a watched training records it. Statistics of columns are those of the
    finite values of a table of real numbers, with two rows at least; whole numbers have their extremes.

    >>> batch_leaf(given([[1.0, 5.0], [3.0, 5.0]])).column_std_max
    1.0
    """
    values = found.values
    leaf = BatchLeaf(shape=found.shape, dtype=found.dtype, image=len(found.shape) == _IMAGE)
    if values.dtype.kind in "iu" and values.size:
        return BatchLeaf(
            shape=leaf.shape, dtype=leaf.dtype, image=leaf.image, min=int(values.min()), max=int(values.max())
        )
    if values.dtype.kind != "f" or values.ndim != _TABLE or len(values) < 2 or not np.isfinite(values).any():
        return leaf
    wide = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    wide = wide[:, np.isfinite(wide).any(axis=0)]
    mean, std = np.nanmean(wide, axis=0), np.nanstd(wide, axis=0)
    moving = std[std > 0]
    return BatchLeaf(
        shape=leaf.shape,
        dtype=leaf.dtype,
        column_std_min=float(moving.min()) if len(moving) else 0.0,
        column_std_max=float(std.max()),
        column_mean_absmax=float(np.abs(mean).max()),
    )
