"""Arrays of inputs: shapes, sizes of images, and ids that an Embedding has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neural.data.input_names import vocabulary
from neural.data.memory import within_memory
from neural.errors import DataUnfit
from neural.plan import shape_text

if TYPE_CHECKING:
    from neural.data.samples import Array, Found
    from neural.plan import InputPlan, Plan, Shape


def fitted_input(plan: Plan, given: InputPlan, found: Found, array: Array, notes: list[str]) -> Array:
    """Return the array of one input as the network takes it. DataUnfit is raised where that cannot be."""
    if given.ids:
        array = _ids(plan, given, found, array)
    elif array.dtype.kind in "iub":
        array = array.astype(np.float32)
    wanted, before = given.shape, tuple(array.shape[1:])
    if fits(before, wanted):
        return array
    changed = _reshaped(array, wanted, notes)
    if changed is None and found.images:
        changed = _image(array, wanted, found, notes)
    if changed is not None:
        return changed
    named = "the input" if len(plan.inputs) == 1 else f"the input {given.name}"
    advice = (
        f"change `input:` to {shape_text(before)}, or the data" if before else "give a sample an axis for its values"
    )
    raise DataUnfit(
        f"a sample of {found.source} has the shape {shape_text(before)}, and {named} of the network is "
        f"{shape_text(wanted)}: {advice}"
    )


def fits(given: tuple[int, ...], wanted: Shape) -> bool:
    """Return True if an array of samples of one shape can be given to an input of another, None being any size."""
    return len(given) == len(wanted) and all(size in (None, one) for one, size in zip(given, wanted, strict=True))


def _ids(plan: Plan, given: InputPlan, found: Found, array: Array) -> Array:
    """Return ids of words as integers, which the Embedding must have: any other would end the training."""
    if array.dtype.kind == "f" and (not np.isfinite(array).all() or (array != np.round(array)).any()):
        raise DataUnfit(f"{found.source}: {given.name} is read by an Embedding, which takes whole numbers")
    size = vocabulary(plan, given)
    if array.size and size is not None and (array.min() < 0 or array.max() >= size):
        raise DataUnfit(
            f"{found.source} has ids from {array.min():g} to {array.max():g} for {given.name}, and its Embedding has "
            f"those from 0 to {size - 1}: give it input_dim={int(array.max()) + 1}, or number the words anew"
        )
    return array.astype(np.int64)


def _reshaped(array: Array, wanted: Shape, notes: list[str]) -> Array | None:
    """Return the same numbers in another shape, None if it is not clear which number would go where."""
    before = tuple(array.shape[1:])
    open_axes = [place for place, size in enumerate(wanted) if size is None]
    if not before:
        before, array = (1,), array.reshape(-1, 1)
    known = math.prod(size for size in wanted if size is not None)
    total = math.prod(before)
    if len(open_axes) > 1 or not total or total % known or (not open_axes and total != known):
        return None
    after = tuple(total // known if size is None else size for size in wanted)
    if len(before) == 3 == len(after) and after == (*before[1:], before[0]):  # channels first, as torch has them
        notes.append(f"the channels of {shape_text(before)} come last: {shape_text(after)}")
        return np.ascontiguousarray(np.moveaxis(array, 1, -1))
    flat = len(after) == 1 or (len(before) == 1 and not (open_axes and known > 1))
    if not flat and [size for size in before if size != 1] != [size for size in after if size != 1]:
        return None
    notes.append(f"samples of {shape_text(before)} are reshaped to {shape_text(after)}")
    return array.reshape(len(array), *after)


# ---------------------------------------------------------------- images


def _image(array: Array, wanted: Shape, found: Found, notes: list[str]) -> Array | None:
    """Return images of another size or another number of channels, None if the input takes no image."""
    before = tuple(array.shape[1:])
    size = _image_size(wanted, before[2])
    if size is None:
        return None
    rows, columns, channels = size
    if before[2] != channels:
        if before[2] == 1:
            array = np.repeat(array, channels, axis=3)
        elif channels == 1:
            array = array.mean(axis=3, keepdims=True)
        else:
            return None
    needed = len(array) * rows * columns * channels * array.itemsize
    within_memory(needed, f"the images of {found.source} as {shape_text(size)}", "give the network a smaller input")
    array = array[:, _nearest(before[0], rows)][:, :, _nearest(before[1], columns)]
    notes.append(f"images of {shape_text(before)} are brought to {shape_text(size)}")
    if len(wanted) != 3:
        notes.append(f"and reshaped to {shape_text(wanted)}")
    return np.ascontiguousarray(array).reshape(len(array), *(each or 0 for each in wanted))


def _image_size(wanted: Shape, channels: int) -> tuple[int, int, int] | None:
    """Return rows, columns and channels of an input, of a flat one those of a square; None if it takes no image."""
    sizes = [size for size in wanted if size is not None]
    if len(sizes) < len(wanted) or len(sizes) > 3:
        return None
    if len(sizes) == 3:
        return sizes[0], sizes[1], sizes[2]
    if len(sizes) == 2:
        return sizes[0], sizes[1], 1
    for each in dict.fromkeys((channels, 1)):
        side = math.isqrt(sizes[0] // each)
        if side > 1 and side * side * each == sizes[0]:
            return side, side, each
    return None


def _nearest(before: int, after: int) -> Array:
    """Return the nearest old index of each new one."""
    return ((np.arange(after) + 0.5) * before / after).astype(np.int64).clip(0, before - 1)
