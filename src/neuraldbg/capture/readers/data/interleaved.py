"""The test whether the channels of images are interleaved: the order of channels, rows and columns is not the shape's.

An image of shape (H, W, C) that is viewed as (C, H, W) keeps the order of its numbers: neighbours along its last axis
are the channels of one pixel, and the next pixel is C numbers away. In images neighbouring pixels are alike, so that
numbers at a distance of C are more alike than those at the distances C - 1 and C + 1. In an image whose shape is right
numbers are less alike, the farther they lie apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

CHANNELS = (3, 4)
"""Numbers of channels of images. Of two a checkerboard would look interleaved."""
SIDE = 6
"""Least height and width."""
SAMPLES, NUMBERS = 32, 4096
"""Images of one batch that are read, and numbers of each, at most."""


def fits(shape: tuple[int, ...]) -> bool:
    """Return True for a batch of images of shape (N, C, H, W)."""
    return len(shape) == 4 and shape[0] > 0 and shape[1] in CHANNELS and min(shape[2:]) >= SIDE


def first_rows(x: Tensor) -> Tensor:
    """Return the first rows of the first channel of the first images, shape (n, numbers): numbers that follow each
    other in an image of shape (C, H, W), ``NUMBERS`` of each image at most.
    """
    rows = max(1, NUMBERS // x.shape[3])
    return x.detach()[:SAMPLES, 0, :rows, :NUMBERS].flatten(1)


def likeness(numbers: npt.NDArray[np.float32], channels: int) -> tuple[float, float] | None:
    """Return the correlations of the numbers of images, shape (n, numbers), in the order of the shape: the larger one
    of those C - 1 and C + 1 apart, and that of those C apart. None if they are constant or not finite.
    """
    flat = numbers.astype(np.float64)
    flat = flat - flat.mean(1, keepdims=True)
    size = float((flat**2).mean())
    if not np.isfinite(size) or size <= 0:
        return None
    before, at, behind = (
        float((flat[:, lag:] * flat[:, :-lag]).mean() / size) for lag in (channels - 1, channels, channels + 1)
    )
    return max(before, behind), at
