"""The row of a site for a tensor that was handed over: the numbers that the live tool reads from the same tensor.

It is computed by the live tool's own accumulators. Its native code sums float32 in chunks, so that mean, std and rms
differ from these by up to 1e-6 of the rms; everything else is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg.nouns.accumulators import BLANK, SATURATED, add, derived

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.toolbox.given_arrays import Given

_IMAGE_AXES = 4
"""Axes from which on the second one holds channels, as for the live tool's layers of an unknown type."""


class UnitActivity(NamedTuple):
    """The units of a layer's output, and which of them were positive in one reading. Of many readings those units are
    dead that were positive in none: join ``positive`` by "or", and add ``rows``.
    """

    positive: npt.NDArray[np.bool_]
    """True for each unit that was above zero in any row, shape (units,)."""
    rows: int
    """Number of rows read: images of a convolution, tokens of a sequence."""


def row_of(tensor: Given, *, bound: float = 0.0, centre: float = 0.0) -> npt.NDArray[np.float64]:
    """Return the row of a site, shape (len(STATS),), for one tensor. ``bound`` > 0 counts elements farther than that
    from ``centre`` as saturated (0.49 from 0.5 for a sigmoid, 0.98 from 0 for tanh). Complex elements are represented
    by their magnitudes. The columns of units are 0: they need several steps.

    >>> from neuraldbg.nouns import column
    >>> row_of(given([3.0, float("nan"), -1.0]))[[column("count"), column("nonfinite"), column("mean")]].tolist()
    [3.0, 1.0, 1.0]
    """
    with np.errstate(all="ignore"):
        return np.asarray(derived(raw_row_of(tensor, bound=bound, centre=centre)))


def raw_row_of(tensor: Given, *, bound: float = 0.0, centre: float = 0.0) -> npt.NDArray[np.float64]:
    """Return the accumulators of a site, shape (WIDTH,), from which ``row_of`` derives its row: many are derived
    together in a fraction of the time.
    """
    raw = BLANK.copy()
    flat = tensor.values.reshape(-1)
    with np.errstate(all="ignore"):  # the largest float64 have infinite squares, here as in the live tool
        flat = np.abs(flat) if flat.dtype.kind == "c" else flat
        add(flat.astype(np.float64), raw, tensor.size)
        if bound:
            raw[SATURATED] = np.count_nonzero(np.abs(_at_least_float32(flat) - centre) > bound)
    return raw


def _at_least_float32(flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return flat.astype(np.result_type(flat.dtype, np.float32))


def unit_axis(shape: tuple[int, ...]) -> int | None:
    """Return the axis that holds the units of an output whose layer is unknown: the second one of images (four axes or
    more), else the last one. None if it has fewer than two axes.

    >>> unit_axis((8, 3, 32, 32)), unit_axis((8, 10)), unit_axis((8,))
    (1, 1, None)
    """
    if len(shape) < 2:
        return None
    return 1 if len(shape) >= _IMAGE_AXES else len(shape) - 1


def unit_activity(tensor: Given, axis: int | None = None) -> UnitActivity | None:
    """Return which units of an output were positive; None for a sample, and for a tensor without units or elements.
    ``axis`` holds the units, that of ``unit_axis`` if None.

    >>> unit_activity(given([[1.0, 0.0], [2.0, 0.0]]))
    UnitActivity(positive=array([ True, False]), rows=2)
    """
    axis = unit_axis(tensor.shape) if axis is None else axis
    if axis is None or not tensor.whole or not tensor.size or tensor.values.dtype.kind == "c":
        return None
    axis %= len(tensor.shape)
    others = tuple(one for one in range(len(tensor.shape)) if one != axis)
    return UnitActivity(np.asarray((tensor.values > 0).any(axis=others)), tensor.size // tensor.shape[axis])
