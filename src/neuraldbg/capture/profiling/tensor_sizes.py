"""The bytes of parameters, gradients and optimizer state of each layer; storages that are shared count once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import registered, state_of
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.weak_references import TensorRef
from neuraldbg.capture.statistics.nested_tensors import leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.loop.reader_context import Scene


def storage_of(x: object) -> tuple[int, int] | None:
    """Return address and bytes of the storage of a tensor, or of the local part of a sharded one; None if it has no
    memory that can be told.
    """
    held = x if tensor_memory.present(x) else tensor_memory.readable(x) if is_a(x, Tensor) else None
    if held is None:
        return None
    storage = held.untyped_storage()
    address = storage.data_ptr()
    return (address, int(storage.nbytes())) if address else None


@dataclass
class Sizes:
    """Bytes by layer."""

    parameters: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Of parameters and buffers."""
    gradients: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    optimizer: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def sizes(scene: Scene, *, expected: bool = False) -> Sizes:
    """Return the bytes of all watched models. With ``expected``, a gradient that was cleared meanwhile counts as large
    as its parameter.
    """
    found, seen = Sizes(), set[int]()
    optimizers = [opt for stream in scene.optimizers.streams if (opt := stream.opt()) is not None]
    for watched in list(scene.params.by_id.values()):
        p = watched.ref
        _add(found.parameters, watched.layer, p, seen)
        grad = p.grad
        if grad is not None:
            _add(found.gradients, watched.layer, grad, seen)
        elif expected and watched.had_grad and (size := storage_of(p)) is not None:
            found.gradients[watched.layer] += size[1]
        for opt in optimizers:
            for _, x in leaves(state_of(opt, p)):
                _add(found.optimizer, watched.layer, x, seen)
    for path, module in scene.hooks.modules.items():
        for _, buffer in registered(module, "_buffers"):
            _add(found.parameters, path, buffer, seen)
    return found


def gradients(scene: Scene) -> list[tuple[TensorRef, TensorRef, int]]:
    """Return the parameters that have a gradient now, each with that and the bytes of its storage."""
    found = []
    for watched in list(scene.params.by_id.values()):
        grad = watched.ref.grad
        size = storage_of(grad)
        if grad is not None and size is not None:
            found.append((TensorRef(watched.ref), TensorRef(grad), size[1]))
    return found


def gradient_bytes(scene: Scene) -> int:
    """Return the bytes of the gradients that are there now."""
    seen: set[int] = set()
    return sum(_fresh(watched.ref.grad, seen) for watched in list(scene.params.by_id.values()))


def output_bytes(output: object, known: Iterable[int]) -> tuple[int, set[int]]:
    """Return the bytes of the tensors in a layer's output whose storages are not ``known``, and their addresses."""
    seen = set(known)
    before = set(seen)
    total = sum(_fresh(x, seen) for _, x in leaves(output, closed=True))
    return total, seen - before


def _fresh(x: object, seen: set[int]) -> int:
    size = storage_of(x)
    if size is None or size[0] in seen:
        return 0
    seen.add(size[0])
    return size[1]


def _add(to: dict[str, int], layer: str, x: object, seen: set[int]) -> None:
    if (size := _fresh(x, seen)) or layer not in to:
        to[layer] += size
