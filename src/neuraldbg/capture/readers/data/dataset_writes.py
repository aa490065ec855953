"""The reader of datasets that change: the arrays and tensors that a dataset holds, compared from one pass to the next.

When an iterator of a DataLoader is made, some numbers of each array of its dataset are compared with those of the time
before. An array that is another object than before is new data. Datasets in worker processes are copies; what those
write is not seen.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import DataLoader, Subset

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.program_objects import (
    Identities,
    attribute,
    attributes,
    class_member,
    is_a,
    name_of,
    sequence,
)
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

    Floats = npt.NDArray[np.float64]

_NUMBERS, _ARRAYS, _ITEMS = 4096, 8, 16
"""Numbers of an array, arrays of a dataset, and items of a list that are compared at most."""
_FEW = 8
"""Numbers that differ from which on they tell whether they are like what they were."""
_APART = 16
"""Steps between two comparisons of a dataset, at least."""
_LEAST = 64
"""Numbers from which on an array says something."""
_TOLD = ("dataset", "name", "item", "passes", "changed", "first", "share", "likeness", "means", "stds")
_PASSES = 64
"""Passes whose mean and spread are kept: the newest, beside the first."""


@dataclass(eq=False)
class _Held:
    """One array of a dataset over the passes."""

    dataset: str
    name: str
    item: list[int]
    object: weakref.ref[Any] | int
    """A weak reference to it, since another one may lie at its address later; of a list, which allows none, its id."""
    sample: Floats
    passes: int = 1
    changed: int = 0
    first: int = -1
    share: float = 0.0
    likeness: float = 1.0
    means: list[float] = field(default_factory=list)
    stds: list[float] = field(default_factory=list)


class DatasetWrites(Reader):
    """Compares the arrays of datasets at the beginning of each pass."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._of: Identities[Any, dict[str, _Held]] = Identities()
        self._compared: Identities[Any, int] = Identities()
        """Step at which a dataset was last compared: a program may make an iterator for each batch."""
        self._logged = 0

    def patches(self) -> Iterable[Patch]:
        """Return the wrapper of the beginning of a pass."""
        return [(DataLoader, "__iter__", self._iterate)]

    def _iterate(self, loader: Any) -> Around:
        if self.scene.switch.here():
            self.seen(self._compare, loader)
        yield

    def _compare(self, loader: Any) -> None:
        dataset = attribute(loader, "dataset")
        while is_a(dataset, Subset):
            dataset = attribute(dataset, "dataset")
        # A list, or an object without a place for weak references, holds no arrays by name.
        if attribute(loader, "num_workers") or not class_member(type(dataset), "__weakref__"):
            return
        known = self._of.get(dataset)
        if known is None:
            known = self._of[dataset] = {}
        elif 0 <= self.scene.step - self._compared.get(dataset) < _APART:
            return
        self._compared[dataset] = self.scene.step
        for name, value in _arrays(dataset):
            sample, item = _sample(value)
            if sample is None or len(sample) < _LEAST or not np.isfinite(sample).all():
                continue
            held = known.get(name)
            if held is None or not _is(held.object, value) or len(held.sample) != len(sample):
                known[name] = held = _Held(name_of(dataset), name, item, _reference(value), sample)
            else:
                self._again(held, sample)
            for course, now in ((held.means, sample.mean()), (held.stds, sample.std())):
                course.append(float(now))
                del course[1:-_PASSES]
        changed = sum(one.changed for one in self._all())
        if changed >= 2 * max(1, self._logged):
            self._log()

    def _again(self, held: _Held, sample: Floats) -> None:
        """Compare an array with what it held a pass before."""
        held.passes += 1
        other = held.sample != sample
        if other.any():
            held.changed += 1
            held.first = self.scene.step if held.first < 0 else held.first
            held.share = float(other.mean())
            before, after = held.sample[other], sample[other]
            if len(before) >= _FEW and after.std() > 0:
                filled = before.std() == 0  # a buffer, perhaps
                held.likeness = min(held.likeness, 0.0 if filled else float(np.corrcoef(before, after)[0, 1]))
            # else all became one number: they were erased, and what is left is what it was
        held.sample = sample

    def _all(self) -> list[_Held]:
        return [held for _, known in self._of.items() for held in known.values()]

    def summarise(self) -> None:
        """Log what changed."""
        if any(one.changed for one in self._all()):
            self._log()

    def _log(self) -> None:
        found = [one for one in self._all() if one.changed]
        self._logged = sum(one.changed for one in found)
        told = [{key: getattr(one, key) for key in _TOLD} for one in found[:_ARRAYS]]
        self.scene.log(FactKey.DATASET_WRITES, {"arrays": told})

    def stop(self) -> None:
        """Drop all samples."""
        self._of, self._compared = Identities(), Identities()


def _reference(value: Any) -> weakref.ref[Any] | int:
    return id(value) if is_a(value, list) else weakref.ref(value)


def _is(kept: weakref.ref[Any] | int, value: Any) -> bool:
    """Return True if a value is the object that was kept."""
    return kept == id(value) if isinstance(kept, int) else kept() is value


def _arrays(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a dataset with their names, those of tuples and the items of lists among them."""
    count = 0
    for name, value in list(attributes(dataset).items()):
        parts = list(sequence(value)) if is_a(value, tuple) and len(value) <= _ARRAYS else [value]
        for at, part in enumerate(parts):
            if count >= _ARRAYS:
                return
            if _is_array(part) or (is_a(part, list) and part and _is_array(part[0])):
                count += 1
                yield (f"{name}[{at}]" if is_a(value, tuple) else name), part


def _is_array(value: Any) -> bool:
    if type(value) is np.ndarray:
        return bool(value.dtype.kind in "fiu" and value.flags.c_contiguous)
    held = tensor_memory.readable(value)
    return held is not None and not held.is_complex() and held.device.type == "cpu" and held.is_contiguous()


def _sample(value: Any) -> tuple[Floats | None, list[int]]:
    """Return some numbers of an array, and the shape of one of its items."""
    if is_a(value, list):
        places = range(0, len(value), max(1, len(value) // _ITEMS))
        parts = [_numbers(value[at], _NUMBERS // _ITEMS) for at in list(places)[:_ITEMS] if _is_array(value[at])]
        return (np.concatenate(parts) if parts else None), list(value[0].shape)
    return _numbers(value, _NUMBERS), list(value.shape[1:])


def _numbers(value: Any, most: int) -> Floats:
    if type(value) is np.ndarray:
        flat = value.reshape(-1)  # a view of a contiguous array
        return flat[:: max(1, math.ceil(flat.size / most))].astype(np.float64)
    held = tensor_memory.readable(value)
    assert held is not None
    step = max(1, math.ceil(held.numel() / most))
    return operation.spaced(held.detach(), step, most).double().numpy().copy()


READER = DatasetWrites
