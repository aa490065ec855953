"""Bring what a source has to what a network takes, with a sentence for every change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neural.data.input_names import TARGETS, keyed
from neural.data.input_shapes import fitted_input
from neural.data.samples import Samples, counted
from neural.data.targets import fitted_targets
from neural.errors import DataUnfit

if TYPE_CHECKING:
    from neural.data.samples import Array, Found
    from neural.plan import Plan

_SHOWN = 5


def fitted(plan: Plan, found: Found) -> Samples:
    """Return what a source has, as the network takes it. DataUnfit is raised where that cannot be."""
    notes = list(found.notes)
    for key, each in keyed(plan):
        if key not in found.inputs:
            raise DataUnfit(f"{found.source} has nothing for the input {each.name} of {plan.name}: give a file .npz")
    inputs = {key: fitted_input(plan, each, found, found.inputs[key], notes) for key, each in keyed(plan)}
    arrays = {**inputs, TARGETS: fitted_targets(plan, found, inputs, notes)}
    arrays = {name: _readable(array) for name, array in arrays.items()}
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise DataUnfit(f"{found.source}: the arrays have different numbers of samples: {told}")
    lone = _lone_samples(plan, len(arrays[TARGETS]))
    if lone:
        notes.append("a sample is left out, as it would be alone in a batch, where BatchNormalization has no deviation")
        arrays = {name: array[lone:] for name, array in arrays.items()}
    kept = _counted(plan, found, len(arrays[TARGETS]), notes)
    _notice_order(plan, found, arrays[TARGETS], kept, notes)
    # A value that is not finite stays: it is one of the faults that the debugger is there to find.
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            wrong = int((~np.isfinite(array)).reshape(len(array), -1).any(axis=1).sum())
            holds, stays = ("holds", "stays as it is") if wrong == 1 else ("hold", "stay as they are")
            notes.append(f"{counted(wrong, 'sample')} of {name} {holds} NaN or infinity, and {stays}")
    return Samples(arrays, found.source, found.synthetic, tuple(notes))


def _readable(array: Array) -> Array:
    """Return an array of a type that torch reads: of this machine's byte order, and without types that it lacks."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "f" and size > 8:
        return array.astype(np.float64)
    if kind == "u" and size > 1:
        return array.astype(np.int64 if not array.size or array.max() <= np.iinfo(np.int64).max else np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _kept(plan: Plan, count: int) -> int:
    """Return the number of samples that are trained on, as the compiled model splits them."""
    return int(count * round(1 - float(plan.training["validation_split"]), 12))


def _lone_samples(plan: Plan, count: int) -> int:
    """Return the number of samples to leave out so that none is alone in the last batch, which torch refuses."""
    batch = int(plan.training["batch_size"])
    if batch == 1 or not any(each.type == "BatchNormalization" and len(each.shape) == 1 for each in plan.walk()):
        return 0
    few = range(min(count, batch))
    return next((left for left in few if _kept(plan, count - left) % batch != 1), 0)


def _counted(plan: Plan, found: Found, count: int, notes: list[str]) -> int:
    """Return the number of samples that are trained on, and notice when they are few."""
    split, kept = float(plan.training["validation_split"]), _kept(plan, count)
    if not kept:
        raise DataUnfit(f"{found.source} has {counted(count, 'sample')}, and none is left beside those for validation")
    if split and kept == count:
        are = f"{counted(count, 'sample')} {'is' if count == 1 else 'are'}"
        notes.append(f"{are} too few for a validation with {split:g} of them: there is none")
    batch = int(plan.training["batch_size"])
    if kept < batch:
        are = f"{counted(kept, 'sample')} {'is' if kept == 1 else 'are'} trained on"
        notes.append(f"{are}, fewer than a batch of {batch:,}: an epoch has one batch")
    return kept


def _notice_order(plan: Plan, found: Found, targets: Array, kept: int, notes: list[str]) -> None:
    """Notice samples that are sorted by class: the last ones, which are for validation, then have other classes."""
    if found.synthetic or kept == len(targets) or "categorical" not in plan.loss.type or plan.layers[-1].shape[1:]:
        return
    classes = targets if targets.ndim == 1 else targets.argmax(axis=-1)
    missing = [str(each) for each in np.setdiff1d(classes[kept:], classes[:kept])]
    if (np.diff(classes) >= 0).all() and classes[0] != classes[-1]:
        notes.append("the samples are sorted by class, and the last ones are for validation: shuffle them")
    elif missing:
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        notes.append(f"only the last samples, which are for validation, have these classes: {shown}")
