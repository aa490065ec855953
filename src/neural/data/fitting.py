"""Bring arrays to what a network takes: shapes of inputs, forms of targets, and a sentence for every change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neural.data.samples import Samples
from neural.errors import DataUnfit, nearest
from neural.plan import shape_text

if TYPE_CHECKING:
    from neural.data.samples import Array, Found
    from neural.plan import InputPlan, Plan, Shape

TARGETS = "y"
_SPARSE, _ONE_HOT = "sparse_categorical_crossentropy", "categorical_crossentropy"


def fitted(plan: Plan, found: Found) -> Samples:
    """Return what a source has, as the network takes it. DataUnfit is raised where that cannot be."""
    notes = list(found.notes)
    inputs = {name: _input(each, array, found, notes) for name, each, array in _paired(plan, found)}
    targets = _targets(plan, found, inputs, notes)
    counts = {name: len(array) for name, array in {**inputs, TARGETS: targets}.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise DataUnfit(f"{found.source}: the arrays have different numbers of samples: {told}")
    count = len(targets)
    kept = int(count * (1 - float(plan.training["validation_split"])))
    if not kept:
        raise DataUnfit(f"{found.source} has {count} samples, and none is left beside those for validation")
    for name, array in inputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            wrong = int((~np.isfinite(array)).reshape(count, -1).any(axis=1).sum())
            notes.append(f"{wrong:,} samples of {name} hold NaN or infinity, and stay as they are")
    return Samples({**inputs, TARGETS: targets}, found.source, found.synthetic, tuple(notes))


# ---------------------------------------------------------------- inputs


def _paired(plan: Plan, found: Found) -> list[tuple[str, InputPlan, Array]]:
    if len(plan.inputs) == 1:
        if len(found.inputs) != 1:
            raise DataUnfit(f"{found.source} has {', '.join(found.inputs)}, and {plan.name} has one input: call it x")
        return [("x", plan.inputs[0], next(iter(found.inputs.values())))]
    pairs = []
    for each in plan.inputs:
        if each.name not in found.inputs:
            near = nearest(each.name, found.inputs)
            hint = f"; is it {near}?" if near else ""
            raise DataUnfit(
                f"{found.source} has no array for the input {each.name}: it has {', '.join(found.inputs)}{hint}"
            )
        pairs.append((each.name, each, found.inputs[each.name]))
    return pairs


def _input(plan: InputPlan, array: Array, found: Found, notes: list[str]) -> Array:
    wanted = plan.shape
    if plan.ids:
        if array.dtype.kind not in "iub":
            if not np.isfinite(array).all() or (array != np.round(array)).any():
                raise DataUnfit(f"{found.source}: {plan.name} is read by an Embedding, which takes whole numbers")
            array = array.astype(np.int64)
    elif array.dtype.kind in "iub":
        array = array.astype(np.float32)
    given = tuple(array.shape[1:])
    if fits(given, wanted):
        return array
    changed = _image(array, wanted, notes) if found.images else None
    if changed is None:
        changed = _reshaped(array, wanted, notes)
    if changed is None:
        raise DataUnfit(
            f"a sample of {found.source} has the shape {shape_text(given)}, and the input of the network is "
            f"{shape_text(wanted)}: change `input:` to {shape_text(given)}, or the data"
        )
    return changed


def fits(given: tuple[int, ...], wanted: Shape) -> bool:
    """Return True if an array of samples of one shape can be given to an input of another, None being any size."""
    return len(given) == len(wanted) and all(size in (None, one) for one, size in zip(given, wanted, strict=True))


def _reshaped(array: Array, wanted: Shape, notes: list[str]) -> Array | None:
    """Return the same numbers in another shape, None if there is no such."""
    if None in wanted or int(np.prod(array.shape[1:])) != int(np.prod([size or 0 for size in wanted])):
        return None
    notes.append(f"samples of {shape_text(array.shape[1:])} are reshaped to {shape_text(wanted)}")
    return array.reshape(len(array), *(size or 0 for size in wanted))


def _image(array: Array, wanted: Shape, notes: list[str]) -> Array | None:
    """Return images of another size or another number of channels, None if the input takes no image."""
    if len(wanted) != 3 or None in wanted:
        return None
    rows, columns, channels = (int(size or 0) for size in wanted)
    before = array.shape[1:]
    if before[2] != channels:
        if before[2] == 1:
            array = np.repeat(array, channels, axis=3)
        elif channels == 1:
            array = array.mean(axis=3, keepdims=True)
        else:
            return None
    array = array[:, _nearest(before[0], rows)][:, :, _nearest(before[1], columns)]
    notes.append(f"images of {shape_text(before)} are brought to {shape_text(wanted)}")
    return np.ascontiguousarray(array)


def _nearest(before: int, after: int) -> np.ndarray[Any, Any]:
    """Return the nearest old index of each new one."""
    return ((np.arange(after) + 0.5) * before / after).astype(np.int64).clip(0, before - 1)


# ---------------------------------------------------------------- targets


def _targets(plan: Plan, found: Found, inputs: dict[str, Array], notes: list[str]) -> Array:
    shape, targets = plan.layers[-1].shape, found.targets
    if plan.loss.type in (_SPARSE, _ONE_HOT):
        return _classes(plan, found, notes)
    if targets.dtype.kind not in "buif":
        raise DataUnfit(f"{found.source}: the targets are {targets.dtype}, and the loss {plan.loss.type} takes numbers")
    if fits(tuple(targets.shape[1:]), shape) or (shape == (1,) and targets.ndim == 1):
        return targets
    alone = next(iter(inputs.values()))
    if len(inputs) == 1 and fits(tuple(alone.shape[1:]), shape) and targets.ndim == 1:
        notes.append("the output has the shape of the input: the inputs are the targets, as of an autoencoder")
        return alone
    if targets.ndim == 1 and len(shape) == 1 and targets.dtype.kind in "iub":
        return _one_hot(targets, shape[0] or 0, found, notes)
    if int(np.prod(targets.shape[1:])) == int(np.prod([size or 0 for size in shape])):
        notes.append(f"targets of {shape_text(targets.shape[1:])} are reshaped to {shape_text(shape)}")
        return targets.reshape(len(targets), *(size or 0 for size in shape))
    raise DataUnfit(
        f"a target of {found.source} has the shape {shape_text(targets.shape[1:])}, and the output of {plan.name} is "
        f"{shape_text(shape)}: change the last layer, or the data"
    )


def _one_hot(targets: Array, outputs: int, found: Found, notes: list[str]) -> Array:
    _within(targets, outputs, found)
    notes.append(f"classes are given as {outputs} numbers, one of them 1")
    return np.eye(outputs, dtype=np.float32)[targets.astype(np.int64)]


def _classes(plan: Plan, found: Found, notes: list[str]) -> Array:
    """Return numbers of classes for a cross entropy: one-hot targets become numbers, and labels count from 0."""
    targets, shape = found.targets, plan.layers[-1].shape
    outputs = shape[-1]
    if targets.ndim == len(shape) + 1 and outputs is not None and targets.shape[-1] == outputs > 1:
        if plan.loss.type == _ONE_HOT:
            return targets
        notes.append("one-hot targets became numbers of classes")
        targets = targets.argmax(axis=-1)
    if targets.ndim == len(shape) + 1 and targets.shape[-1] == 1:
        targets = targets[..., 0]
    if not fits(tuple(targets.shape[1:]), shape[:-1]):
        raise DataUnfit(
            f"{found.source} has targets of the shape {shape_text(targets.shape[1:])}, and {plan.name} gives "
            f"{shape_text(shape)}: a class for each of {shape_text(shape[:-1])} is needed"
        )
    if targets.dtype.kind == "f":
        if not np.isfinite(targets).all() or (targets != np.round(targets)).any():
            raise DataUnfit(
                f"{found.source}: the loss {plan.loss.type} takes classes, and the targets are no whole numbers"
            )
        targets = targets.astype(np.int64)
    if outputs is None:
        return targets
    present = np.unique(targets)
    if present.size and present[0] >= 0 and present[-1] < outputs:
        return targets
    if present.size <= outputs and present.size == present[-1] - present[0] + 1 and present[0] == 1:
        notes.append(f"labels from 1 to {present[-1]} count from 0")
        return targets - 1
    _within(targets, outputs, found)
    return targets


def _within(targets: Array, outputs: int, found: Found) -> None:
    if len(targets) and (targets.min() < 0 or targets.max() >= outputs):
        count = len(np.unique(targets))
        raise DataUnfit(
            f"{found.source} has {count} classes from {targets.min()} to {targets.max()}, and the last layer "
            f"has {outputs} outputs: give it {int(targets.max()) + 1}, or number the classes from 0"
        )
