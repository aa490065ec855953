"""The predicate before every reading of a tensor: whether its numbers lie in memory that is there.

A pointer is not enough. FakeTensor, AsyncCollectiveTensor, DTensor and any class made by ``_make_wrapper_subclass``
have a shape and no memory of their own; tensors inside vmap, grad and jvp stand for many values; and a storage may have
been given back under its views (``untyped_storage().resize_(0)``: offloading, FSDP). Native code that reads such a
tensor ends the process. ``_kernel_tensor.h`` says the same of what it reads (``memory_of``); tests hold the two
together.

A tensor enters, and the ordinary tensor that holds its numbers leaves: itself, this rank's part of a DTensor, or a view
of a subclass of Tensor that keeps its numbers where Tensor does. None for all others, whose code is never called. All
of it is to be asked inside of ``tensor_kinds.unheard``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from neuraldbg.capture import tensor_kinds
from neuraldbg.capture.kernel import native
from neuraldbg.capture.program_objects import is_a, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

ORDINARY = (Tensor, torch.nn.Parameter)
"""The classes whose numbers lie where their pointer says. A buffer is a Tensor."""

# Tensors inside vmap, grad and jvp stand for many values and have no storage of their own.
wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 (no public name)
dtype_of: Callable[[Tensor], torch.dtype] = Tensor.dtype.__get__  # type: ignore[attr-defined]
_keys, _python = torch._C._dispatch_keys, torch._C.DispatchKey.Python  # noqa: SLF001 (nor for these)


def present(x: object) -> TypeGuard[Tensor]:
    """Return True if ``x`` is a strided tensor of one of the ``ORDINARY`` classes, of any dtype, and its storage holds
    all of it: torch's operations on it read nothing else.
    """
    if type(x) not in ORDINARY or not is_a(x, Tensor) or wrapped(x):
        return False
    return x.layout is torch.strided and not x.is_nested and not x.is_meta and covers(x)


def covers(x: Tensor) -> bool:
    """Return True if the storage of a strided tensor of an ``ORDINARY`` class, on any device, holds all of it."""
    elements = x.numel()
    if not elements:
        return True
    if not x.is_contiguous():
        elements = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    if not x.data_ptr():
        return False
    if native is not None:
        return bool(native.covers(x, elements, x.element_size()))
    return (x.storage_offset() + elements) * x.element_size() <= x.untyped_storage().nbytes()


def readable(x: object) -> Tensor | None:
    """Return the ordinary tensor that holds the numbers of ``x``, None where there is none that can be looked at."""
    if type(x) in ORDINARY:
        return x if present(x) else None
    held = local(x)
    return held if held is not None and present(held) else None


def local(x: object) -> Tensor | None:
    """Return a tensor of an ``ORDINARY`` class as it is, of a DTensor this rank's part, of a subclass of Tensor without
    a dispatch of its own a view; None for any other.
    """
    if type(x) in ORDINARY:
        return x  # type: ignore[return-value]
    if is_sharded(x):
        return _part(x)
    if not is_a(x, Tensor) or not tensor_kinds.readable(x) or _keys(x).has(_python):
        return None
    held = Tensor.detach(x)
    return held if type(held) in ORDINARY else None


def is_sharded(x: object) -> bool:
    """Return True if ``x`` is a DTensor: an ordinary tensor on each rank, and what they make together."""
    kind = _dtensor()
    return kind is not None and type(x) is kind


def is_part(x: object) -> bool:
    """Return True if ``x`` is a DTensor of which each rank holds another part."""
    return is_sharded(x) and any(placement.is_shard() for placement in x._spec.placements)  # type: ignore[attr-defined] # noqa: SLF001


def _part(x: Any) -> Tensor | None:
    """Return this rank's part of a DTensor, without a collective and without a node in its graph. None where a sum over
    the ranks is still to be made: the part is none of the tensor then.
    """
    if any(placement.is_partial() for placement in x._spec.placements):  # noqa: SLF001 (`to_local` makes a node)
        return None
    part: Tensor = x._local_tensor  # noqa: SLF001
    return part if type(part) in ORDINARY else None


_known: list[Any] = []
"""DTensor, once the program has imported it."""


def _dtensor() -> Any:
    if not _known:
        module = sys.modules.get("torch.distributed.tensor")
        kind = getattr(module, "DTensor", None)
        if not isinstance(kind, type):
            return None
        _known.append(kind)
        if native is not None:
            native.meet_shards(kind)
    return _known[0]


def floating(x: Tensor) -> bool:
    """Return True if ``x`` is of a dtype of floating-point numbers; asked of torch and not of the tensor's class."""
    return dtype_of(x).is_floating_point


def why_not(x: object) -> str:
    """Return why a tensor is not ``readable``, as the rest of a sentence about several of its kind."""
    if is_sharded(x):
        spec: Any = getattr(x, "_spec", None)
        if any(placement.is_partial() for placement in spec.placements):
            return "are DTensors whose sum over the ranks is still to be made"
        return "are DTensors whose parts are no ordinary tensors, or whose memory was given back"
    if type(x) not in ORDINARY or not is_a(x, Tensor):
        return f"are of the class {name_of(x)}"
    if wrapped(x):
        return "are inside of a function transform"
    if x.is_meta:
        return "are on the meta device"
    if x.layout is not torch.strided or x.is_nested:
        return f"are {'nested' if x.is_nested else str(x.layout).removeprefix('torch.')} tensors"
    return "had given their memory back"


class Unread:
    """Keeps account of what could not be read, by kind, reason and place, for ``coverage``."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], dict[str, int]] = {}
        """By kind and reason: how many times each was not read, by its name."""

    def note(self, kind: str, x: object, place: str) -> None:
        """Note a tensor that was not ``readable``: one of the parameters, gradients, outputs or losses, by its name."""
        places = self._places.setdefault((kind, why_not(x)), {})
        places[place] = places.get(place, 0) + 1

    def times(self, kind: str) -> int:
        """Return how many times one of a kind was not read."""
        return sum(sum(places.values()) for (noted, _), places in self._places.items() if noted == kind)

    def told(self, kinds: Collection[str], least: int = 1) -> dict[str, str]:
        """Return a subject for each kind and reason that was not read ``least`` times, and the rest of its sentence."""
        found = {}
        for (kind, reason), places in self._places.items():
            names = [place for place, times in places.items() if times >= least]
            if kind in kinds and names:
                some = ", ".join(filter(None, names[:_NAMED])) + (", ..." if len(names) > _NAMED else "")
                times = max(places.values())
                often = "in one step" if times == 1 else f"{times} times"
                found[f"{kind} of {some}" if some else kind] = f"{reason}: not read {often}"
        return found


_NAMED = 4
"""Names that are given of many."""
