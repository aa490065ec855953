"""Arrays of targets: numbers, classes, one-hot classes, or the input again, as the loss takes them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neural.data.input_shapes import fits
from neural.data.memory import within_memory
from neural.data.samples import counted
from neural.errors import DataUnfit
from neural.plan import shape_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neural.data.samples import Array, Found
    from neural.plan import Plan, Shape

_SPARSE, _ONE_HOT, _BINARY = "sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy"
_SHOWN = 8
_ROUNDED = 0.01
"""How far from 1 shares of classes may be together, as floats of 16 bits round them."""


def fitted_targets(plan: Plan, found: Found, inputs: Mapping[str, Array], notes: list[str]) -> Array:
    """Return the targets as the loss takes them. DataUnfit is raised where that cannot be.

    A class that the network has no output for is always an error, also in a file of the user's own: a cross entropy
    would end at it, before there is a step to look at.
    """
    shape, targets = plan.layers[-1].shape, found.targets
    again = _input_again(plan, inputs)
    if targets is None:
        if again is None:
            raise DataUnfit(
                f"{found.source} holds {', '.join(inputs)}: give the inputs as `x`, or each under its name, and the "
                "targets as `y`"
            )
        notes.append("there is no y: the inputs are the targets, as of an autoencoder")
        return _in_range(plan, found, again, notes)
    if plan.loss.type in {_SPARSE, _ONE_HOT}:
        return _classes(plan, found, targets, notes)
    if fits(tuple(targets.shape[1:]), shape) or (shape == (1,) and targets.ndim == 1):
        return _in_range(plan, found, targets, notes)
    if again is not None and targets.ndim == 1:
        notes.append("the output has the shape of the input: the inputs are the targets, as of an autoencoder")
        return _in_range(plan, found, again, notes)
    if targets.ndim == 1 and len(shape) == 1 and targets.dtype.kind in "iub" and shape[0] is not None:
        numbers = _within(found, targets.astype(np.int64), shape[0], notes)
        within_memory(len(numbers) * shape[0] * 4, f"{len(numbers):,} one-hot targets", "take fewer samples")
        notes.append(f"classes are given as {shape[0]} numbers, one of them 1")
        return np.eye(shape[0], dtype=np.float32)[numbers]
    if None not in shape and targets.size and math.prod(targets.shape[1:]) == math.prod(size or 0 for size in shape):
        notes.append(f"targets of {shape_text(targets.shape[1:])} are reshaped to {shape_text(shape)}")
        return _in_range(plan, found, targets.reshape(len(targets), *(size or 0 for size in shape)), notes)
    raise _unfit(plan, found, tuple(targets.shape[1:]), shape)


def _unfit(plan: Plan, found: Found, given: tuple[int, ...], shape: Shape) -> DataUnfit:
    return DataUnfit(
        f"a target of {found.source} has the shape {shape_text(given)}, and the output of {plan.name} is "
        f"{shape_text(shape)} under {plan.loss.type}: change the last layer, or the data"
    )


def _input_again(plan: Plan, inputs: Mapping[str, Array]) -> Array | None:
    """Return the input if the output has its shape, None if it has not."""
    alone = next(iter(inputs.values()))
    if len(inputs) > 1 or plan.loss.type in {_SPARSE, _ONE_HOT}:
        return None
    return alone if fits(tuple(alone.shape[1:]), plan.layers[-1].shape) else None


# ---------------------------------------------------------------- numbers


def _in_range(plan: Plan, found: Found, targets: Array, notes: list[str]) -> Array:
    """Return targets of a binary cross entropy from 0 to 1: two other labels become 0 and 1."""
    if plan.loss.type != _BINARY or not targets.size:
        return targets
    finite = targets[np.isfinite(targets)]
    if not finite.size or (finite.min() >= 0 and finite.max() <= 1):
        if len(finite) > 1 and finite.min() == finite.max():
            notes.append(f"all targets are {finite.min():g}: there is nothing to tell apart")
        return targets
    labels = np.unique(finite)
    if len(labels) == 2 and len(finite) == targets.size:
        notes.append(f"labels {labels[0]:g} and {labels[1]:g} became 0 and 1")
        return np.asarray(targets == labels[1], np.float32)
    if targets.dtype.kind == "f":
        has, advice = f"targets from {labels[0]:g} to {labels[-1]:g}", 'scale them, or take loss: "mse"'
    else:
        has = _from_to(labels)
        advice = f'give {plan.name} Output({max(len(labels), 3)}, "softmax") and categorical_crossentropy'
    raise DataUnfit(f"{found.source} has {has}, and binary_crossentropy takes 0, 1 and what is between: {advice}")


def _from_to(labels: Array) -> str:
    if len(labels) == 1:
        return f"the single class {labels[0]}"
    return f"{len(labels)} classes from {labels[0]} to {labels[-1]}"


# ---------------------------------------------------------------- classes


def _classes(plan: Plan, found: Found, targets: Array, notes: list[str]) -> Array:
    """Return numbers of classes for a cross entropy, or one-hot targets if it takes them."""
    shape = plan.layers[-1].shape
    outputs = shape[-1]
    if targets.ndim == len(shape) + 1 and outputs is not None and targets.shape[-1] == outputs > 1:
        if not fits(tuple(targets.shape[1:]), shape):
            raise _unfit(plan, found, tuple(targets.shape[1:]), shape)
        if plan.loss.type == _ONE_HOT:
            return _shares(found, targets, notes)
        targets = _from_one_hot(found, targets, notes)
    if targets.ndim == len(shape) + 1 and targets.shape[-1] == 1:
        targets = targets[..., 0]
    if not fits(tuple(targets.shape[1:]), shape[:-1]):
        raise DataUnfit(
            f"{found.source} has targets of the shape {shape_text(targets.shape[1:])}, and {plan.name} gives "
            f"{shape_text(shape)}: a class for each of {shape_text(shape[:-1])} is needed"
        )
    if targets.dtype.kind == "f" and (not np.isfinite(targets).all() or (targets != np.round(targets)).any()):
        raise DataUnfit(
            f"{found.source}: the loss {plan.loss.type} takes classes, and the targets are no whole numbers: for "
            'numbers take loss: "mse"'
        )
    if targets.size and (targets.max() > np.iinfo(np.int64).max or targets.min() < np.iinfo(np.int64).min):
        raise DataUnfit(f"{found.source} has the target {targets.max():g}, which is too large for a class")
    numbers = targets.astype(np.int64)
    if outputs is None:
        return numbers
    if plan.loss.type == _ONE_HOT:  # the compiled model makes them one-hot, in 8 bytes each
        needed = numbers.size * outputs * 8
        within_memory(needed, f"{numbers.size:,} one-hot targets", 'take loss: "sparse_categorical_crossentropy"')
    return _within(found, numbers, outputs, notes)


def _shares(found: Found, targets: Array, notes: list[str]) -> Array:
    """Return the targets of a categorical cross entropy: the share of each class, which are 1 together."""
    finite = targets[np.isfinite(targets).all(axis=-1)]
    if finite.size and finite.min() < 0:
        raise DataUnfit(
            f"{found.source} has targets from {finite.min():g} to {finite.max():g}, and categorical_crossentropy takes "
            'shares of classes from 0 to 1: give one-hot targets, or for numbers take loss: "mse"'
        )
    wrong = int((np.abs(finite.sum(axis=-1, dtype=np.float64) - 1) > _ROUNDED).sum())
    if wrong:
        does = "does" if wrong == 1 else "do"
        notes.append(
            f"{counted(wrong, 'target')} {does} not sum to 1, as shares of classes do: for several classes at once "
            'take sigmoids and loss: "binary_crossentropy"'
        )
    return targets


def _from_one_hot(found: Found, targets: Array, notes: list[str]) -> Array:
    """Return the number of the class of each row, in which one number is 1 and all others are 0."""
    if not ((targets == 0) | (targets == 1)).all() or (targets.sum(axis=-1, dtype=np.float64) != 1).any():
        raise DataUnfit(
            f"{found.source} has {targets.shape[-1]} numbers for each target that are not one-hot, and "
            "sparse_categorical_crossentropy takes numbers of classes: for shares of classes take loss: "
            '"categorical_crossentropy", for numbers "mse"'
        )
    notes.append("one-hot targets became numbers of classes")
    numbers: Array = targets.argmax(axis=-1)
    return numbers


def _within(found: Found, numbers: Array, outputs: int, notes: list[str]) -> Array:
    """Return numbers from 0 to below `outputs`: labels that are as many, and count otherwise, are numbered anew."""
    labels = np.unique(numbers)
    if not labels.size or (labels[0] >= 0 and labels[-1] < outputs):
        return numbers
    if len(labels) == outputs:
        if labels[0] == 1 and labels[-1] == outputs:
            notes.append(f"labels from 1 to {outputs} count from 0")
        else:
            shown = ", ".join(f"{label} became {place}" for place, label in enumerate(labels[:_SHOWN]))
            notes.append(f"labels count from 0: {shown}{', ...' if outputs > _SHOWN else ''}")
        return np.searchsorted(labels, numbers)
    named = f"; they are {', '.join(found.classes[:_SHOWN])}{', ...' if len(found.classes) > _SHOWN else ''}"
    enough = len(labels) if labels[-1] >= 2 * len(labels) else int(labels[-1]) + 1
    otherwise = "" if labels[0] == 0 and labels[-1] + 1 == enough else ", or number the classes from 0"
    raise DataUnfit(
        f"{found.source} has {_from_to(labels)}, and the last layer has {outputs} "
        f"outputs: give it {enough}{otherwise}{named if found.classes else ''}"
    )
