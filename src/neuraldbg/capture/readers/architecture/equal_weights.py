"""The reader of equal weights: matrices of one shape that hold the same numbers while they are trained.

Two networks of an ensemble that were made with one seed, and see the same batches, stay copies of each other. A few
values of each trained matrix are compared. Where each network has an optimizer of its own, one of two copies is a step
ahead at times, so that copies are equal at some readings, with other values each time, and not at all of them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from torch import Tensor

    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.statistics.watched_parameter import Watched

_VALUES = 32
"""Values of a matrix that are compared."""
_MATRICES = 256
"""Matrices that are compared at most."""
_PAIRS = 1024
_SMALLEST = 8
"""Elements below which two matrices may be equal by chance."""
_LOOKS = 8
"""Readings after which matrices that were never equal are compared no more."""
_TOLD = 16


@dataclass(eq=False)
class _Pair:
    """Two matrices that were equal once, and moved meanwhile."""

    read: int = 0
    equal: int = 0
    moved: int = 0
    """Readings at which they were equal, with other values than when they were equal before."""
    first: int = 0
    last: int = 0
    values: bytes = b""


class EqualWeights(Reader):
    """Compares the trained matrices with each other at the end of a step."""

    sampled = frozenset({"step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._pairs: dict[tuple[str, str], _Pair] = {}
        self._known = self._looks = self._matrices = 0
        """Parameters that are watched, readings since that number changed, and matrices among them."""
        self._told = False

    def step_closes(self) -> None:
        """Compare the matrices, or those that were equal before."""
        every = self.scene.params.by_id
        if len(every) != self._known:  # a model was added
            self._known, self._looks = len(every), 0
        self._looks += 1
        if self._looks > _LOOKS and not self._pairs:
            return
        matrices = [w for w in every.values() if _fits(w)]
        self._matrices = len(matrices)
        if self._looks > _LOOKS:
            wanted = {name for pair in self._pairs for name in pair}
            matrices = [w for w in matrices if w.name in wanted]
        self._compare(matrices)
        if self._told or any(pair.moved > 1 for pair in self._pairs.values()):
            self._log()

    def _compare(self, matrices: list[Watched]) -> None:
        by_shape: dict[tuple[int, ...], list[Watched]] = {}
        for w in matrices:
            by_shape.setdefault(tuple(w.ref.shape), []).append(w)
        chosen: list[list[Watched]] = []
        for alike in by_shape.values():
            if len(alike) > 1 and sum(map(len, chosen)) + len(alike) <= _MATRICES:
                chosen.append(alike)
        every = [w for alike in chosen for w in alike]
        seen = dict(zip((w.name for w in every), _values([w.ref for w in every]), strict=True))
        for alike in chosen:
            equal: dict[bytes, list[str]] = {}
            for w in alike:
                if values := seen[w.name]:
                    equal.setdefault(values, []).append(w.name)
            for names in equal.values():
                for both in itertools.pairwise(names):
                    if len(self._pairs) < _PAIRS:
                        self._pairs.setdefault(both, _Pair(first=self.scene.step))
        for (one, other), pair in self._pairs.items():
            if one in seen and other in seen:
                pair.read += 1
                pair.last = self.scene.step
                if seen[one] and seen[one] == seen[other]:
                    pair.equal += 1
                    pair.moved += bool(pair.values) and pair.values != seen[one]
                    pair.values = seen[one]

    def summarise(self) -> None:
        """Log the pairs."""
        if self._told:
            self._log()

    def _log(self) -> None:
        self._told = True
        models = {w.name: w.model for w in self.scene.params.by_id.values()}
        told = [
            {
                "names": list(names), "models": [models.get(name, "") for name in names], "read": pair.read,
                "equal": pair.equal, "moved": pair.moved, "first": pair.first, "last": pair.last,
            }
            for names, pair in sorted(self._pairs.items(), key=lambda item: -item[1].moved)[:_TOLD]
            if pair.moved
        ]  # fmt: skip
        self.scene.log(FactKey.EQUAL_WEIGHTS, {"pairs": told, "matrices": self._matrices})


def _fits(w: Watched) -> bool:
    ref = w.ref
    return (
        w.rate is not None
        and ref.dim() > 1
        and ref.requires_grad
        and ref.numel() >= _SMALLEST
        and operation.observable(ref)
    )


def _values(matrices: list[Tensor]) -> list[bytes]:
    """Return some elements of each matrix as bytes; b"" if all of them are equal, or one is not finite. The distance
    between them is odd, so that they are not all of a few columns, whose inputs may be zero. All are copied together,
    as each copy from a device waits.
    """
    held = [operation.spaced(x.detach(), x.numel() // _VALUES | 1, _VALUES).float() for x in matrices]
    if not held:
        return []
    apart = len({x.device for x in held}) > 1
    whole = torch.cat([x.cpu() for x in held] if apart else held).cpu()
    return [_bytes(x) for x in whole.split([len(x) for x in held])]


def _bytes(x: Tensor) -> bytes:
    if not bool(x.isfinite().all()) or bool((x == x[0]).all()):
        return b""
    return x.numpy().tobytes()


READER = EqualWeights
