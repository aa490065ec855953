"""The predicate before every reading of a tensor: True if the tensor's numbers are in memory that can be read.

A pointer is not enough. FakeTensor, AsyncCollectiveTensor, DTensor and any class made by ``_make_wrapper_subclass``
have a shape and no memory of their own; tensors inside vmap, grad and jvp represent many values; and a storage may have
been freed under its views (``untyped_storage().resize_(0)``: offloading, FSDP). Native code that reads such a tensor
crashes the process. So does a read of weights in a file that was truncated under its mapping, or on protected pages:
for ``lent`` memory that no operation has written to, the operating system is queried first. ``kernel/tensor_memory.h``
has the same predicate (``memory_of``); tests compare the two.

A tensor enters, and the ordinary tensor that holds its numbers leaves: itself, the local part of a DTensor, or a view
of a Tensor subclass that stores its numbers as Tensor does. None for all others, whose code is never called. Call these
functions inside of ``tensor_kinds.unheard``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_kinds
from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.program_objects import is_a, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

ORDINARY = (Tensor, torch.nn.Parameter)
"""The classes whose numbers are at their data pointer. A buffer is a Tensor."""

_transformed = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 (no public name)
_batched = torch._C._functorch.is_legacy_batchedtensor  # noqa: SLF001 (nor for this)
dtype_of: Callable[[Tensor], torch.dtype] = Tensor.dtype.__get__  # type: ignore[attr-defined]
_keys, _python = torch._C._dispatch_keys, torch._C.DispatchKey.Python  # noqa: SLF001 (nor for these)


def wrapped(x: Tensor) -> bool:
    """Return True if ``x`` represents many values and has no storage of its own: a tensor inside vmap, grad or jvp, or
    a gradient of ``torch.autograd.grad(..., is_grads_batched=True)``.
    """
    return _transformed(x) or _batched(x)


def present(x: object) -> TypeGuard[Tensor]:
    """Return True if ``x`` is a strided tensor of one of the ``ORDINARY`` classes, of any dtype, and its storage holds
    all of it: torch's operations on it read no other memory.
    """
    if type(x) not in ORDINARY or not is_a(x, Tensor) or wrapped(x):
        return False
    return x.layout is torch.strided and not x.is_nested and not x.is_meta and covers(x)


def stored(x: Tensor) -> bool:
    """Return True if a tensor is ``present``, and so is the whole storage that it is a view of: a deep copy of a tensor
    copies its storage.
    """
    if not present(x) or not lent(x):
        return present(x)
    return present(torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage()))


def covers(x: Tensor) -> bool:
    """Return True if the storage of a strided tensor of an ``ORDINARY`` class, on any device, holds all of it, and if a
    leaf in ``lent`` memory is on readable pages (checked on Linux with native code; assumed elsewhere).
    """
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


def lent(x: Tensor) -> bool:
    """Return True if the memory of an ordinary tensor may not come from torch's own allocator, and may vanish while the
    tensor lives: it belongs to a file (``torch.load(mmap=True)``) or to another library (``from_numpy``). Torch reports
    the same for all that ``torch.load`` has made, and after a call of ``.numpy()``.
    """
    return not x.untyped_storage().resizable()


def readable(x: object) -> Tensor | None:
    """Return the ordinary tensor that holds the numbers of ``x``, None if there is none that can be read."""
    if type(x) in ORDINARY:
        return x if present(x) else None
    held = local(x)
    return held if held is not None and present(held) else None


def local(x: object) -> Tensor | None:
    """Return a tensor of an ``ORDINARY`` class unchanged, the local part of a DTensor, a view of a Tensor subclass
    without a dispatch of its own; None for any other.
    """
    if type(x) in ORDINARY:
        return x  # type: ignore[return-value]
    if is_sharded(x):
        part: Tensor = x._local_tensor  # type: ignore[attr-defined] # noqa: SLF001 (`to_local` makes a node)
        return part if type(part) in ORDINARY else None
    if not is_a(x, Tensor) or not tensor_kinds.readable(x) or _keys(x).has(_python):
        return None
    held = Tensor.detach(x)
    return held if type(held) in ORDINARY else None


def jagged(x: object) -> Tensor | None:
    """Return the ordinary tensor, of one axis less, that holds the values of a nested tensor in the jagged layout; None
    for any other, and for one with holes. ``readable`` returns None for jagged tensors, so that no reader takes the
    rows for samples.
    """
    kind = _class("torch.nested._internal.nested_tensor", "NestedTensor")
    if kind is None or type(x) is not kind or x._lengths is not None:  # type: ignore[attr-defined] # noqa: SLF001
        return None
    held = x._values  # type: ignore[attr-defined] # noqa: SLF001 (`values` makes a node)
    return held if present(held) else None


def is_sharded(x: object) -> bool:
    """Return True if ``x`` is a DTensor: one ordinary tensor on each rank."""
    kind = _dtensor()
    return kind is not None and type(x) is kind


def is_addend(x: object) -> bool:
    """Return True if ``x`` is a DTensor whose sum or mean over the ranks is pending: the local tensor of each rank is
    an addend of the numbers, not the numbers.
    """
    return is_sharded(x) and any(placement.is_partial() for placement in x._spec.placements)  # type: ignore[attr-defined] # noqa: SLF001


def is_part(x: object) -> bool:
    """Return True if ``x`` is a DTensor of which each rank holds a different part."""
    return is_sharded(x) and any(placement.is_shard() for placement in x._spec.placements)  # type: ignore[attr-defined] # noqa: SLF001


_known: dict[str, type] = {}
"""Classes of torch that hold other tensors, once the program has imported them."""


def _class(module: str, name: str) -> type | None:
    known = _known.get(name)
    if known is None:
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type):
            known = _known[name] = found
    return known


def _dtensor() -> type | None:
    met = "DTensor" in _known
    kind = _class("torch.distributed.tensor", "DTensor")
    if kind is not None and not met and native is not None:
        native.meet_shards(kind)
    return kind


def floating(x: Tensor) -> bool:
    """Return True if ``x`` has a floating-point dtype, without running code of the tensor's class."""
    return dtype_of(x).is_floating_point


def measures(x: Tensor) -> bool:
    """Return True if ``x`` holds floating-point, complex or quantised numbers: no counts, masks or indices."""
    dtype = dtype_of(x)
    return dtype.is_floating_point or dtype.is_complex or dtype in _QUANTISED


_QUANTISED = frozenset({torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4})


def shape_of(x: Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor, empty for a nested one, whose ``shape`` raises."""
    return () if x.is_nested else tuple(x.shape)


def why_not(x: object) -> str:
    """Return the reason why a tensor is not ``readable``, as the end of a sentence about several of its kind."""
    if is_sharded(x):
        if is_addend(x):
            return "are DTensors whose sum over the ranks is still to be made"
        return "are DTensors whose parts are no ordinary tensors, or whose memory was freed"
    if type(x) not in ORDINARY or not is_a(x, Tensor):
        return f"are of the class {name_of(x)}"
    if wrapped(x):
        return "are inside of a function transform"
    if x.is_meta:
        return "are on the meta device"
    if x.layout is not torch.strided or x.is_nested:
        return f"are {'nested' if x.is_nested else str(x.layout).removeprefix('torch.')} tensors"
    if x._is_zerotensor():  # noqa: SLF001 (no public name)
        return "are zero tensors, which have no memory"
    if not present(x):
        return "had no memory any more, or it cannot be read"
    return f"are of the dtype {dtype_of(x)}".replace("torch.", "")


def some(names: list[str]) -> str:
    """Return the first few names, as a sentence lists them."""
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


class Unread:
    """The account of tensors that could not be read, by kind, reason and name, for the coverage report."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], dict[str, int]] = {}
        """Number of times that each name was not read, by (kind, reason)."""

    def note(self, kind: str, x: object, place: str) -> None:
        """Count a tensor that was not ``readable``: a parameter, gradient, output or loss, by its name."""
        places = self._places.setdefault((kind, why_not(x)), {})
        places[place] = places.get(place, 0) + 1

    def take_back(self, kind: str, x: object, place: str) -> None:
        """Count a tensor once less: it will be read again in the same step."""
        key = (kind, why_not(x))
        places = self._places.get(key, {})
        if places.get(place, 0) > 1:
            places[place] -= 1
        else:
            places.pop(place, None)
        if not places:
            self._places.pop(key, None)

    def times(self, kind: str) -> int:
        """Return the number of times that tensors of one kind were not read."""
        return sum(sum(places.values()) for (noted, _), places in self._places.items() if noted == kind)

    def told(self, kinds: Collection[str], least: int = 1) -> dict[str, str]:
        """Return sentences as {subject: rest}, one for each kind and reason not read at least ``least`` times."""
        found = {}
        for (kind, reason), places in self._places.items():
            names = [place for place, times in places.items() if times >= least]
            if kind in kinds and names:
                listed = some([name for name in names if name])
                times = max(places.values())
                often = "in one step" if times == 1 else f"{times} times"
                found[f"{kind} of {listed}" if listed else kind] = f"{reason}: not read {often}"
        return found


_NAMED = 4
"""Names that a sentence lists at most."""
