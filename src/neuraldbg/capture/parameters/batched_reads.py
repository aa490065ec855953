"""Many CPU tensors read in one call: the weights of an optimizer before its step, its gradients, and its updates.

A plan names each tensor's memory, its row, and the place of its sample in a buffer that lasts over the step. The plan
is made once and holds for as long as the tensors keep their memory. Native code reads all of them in one call; without
it they are read one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.native import CODES, dense, native
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.weak_references import TensorRef, named
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement

if TYPE_CHECKING:
    import weakref
    from collections.abc import Sequence

    import numpy.typing as npt

    Refs: TypeAlias = tuple[weakref.ref[Tensor], ...]
    """The tensors of a plan: who steps them holds them, and no plan does."""

_ALIGNED = 8
"""Alignment of samples in bytes: those of float64 and float32 are in one buffer."""


class Item(NamedTuple):
    """A ``plain`` tensor to read, and its row."""

    tensor: Tensor | weakref.ref[Tensor]
    row: int
    cap: int
    """Elements to read at most, 0 for all."""


def plain(x: Tensor) -> bool:
    """Return True if the memory of ``x`` can be read in place: an ordinary, dense CPU tensor of a dtype that we read,
    or a DTensor whose local part is one.
    """
    if type(x) not in tensor_memory.ORDINARY and not tensor_memory.is_sharded(x):
        return False
    held = operation.shown(x)
    return held is not None and not placement.lies(held) and dense(held)


def _there(x: Tensor | weakref.ref[Tensor]) -> Tensor:
    return x if is_a(x, Tensor) else named(x)  # type: ignore[arg-type]


def _weak(x: Tensor | weakref.ref[Tensor]) -> weakref.ref[Tensor]:
    return TensorRef(x) if is_a(x, Tensor) else x  # type: ignore[return-value]


def _held(x: Tensor | weakref.ref[Tensor]) -> Tensor:
    """Return the local tensor of ``x``. Raises RuntimeError if it can no longer be read."""
    held = tensor_memory.local(_there(x))
    if held is None:
        raise RuntimeError("its memory cannot be read any more")
    return held


class Samples:
    """The samples read of some tensors before a step and after it, kept during the step and until the next one.

    ``updates`` are the rows for the changes made by a step. Two buffers alternate: one with the current samples, one
    with those left by the previous step.
    """

    def __init__(self, items: Sequence[Item], updates: Sequence[int], rows: operation.Rows) -> None:
        self._tensors = tuple(_weak(item.tensor) for item in items)
        self._items, self._rows = [Item(x, i.row, i.cap) for x, i in zip(self._tensors, items, strict=True)], rows
        self._changes = [Item(i.tensor, row, i.cap) for i, row in zip(self._items, updates, strict=True)]
        self._lent = False
        """True if some of the memory is ``tensor_memory.lent``."""
        self._places = self._where()
        ends = np.cumsum([_kept(item) for item in items], dtype=np.int64)
        self._offsets = [0, *ends[:-1].tolist()] if len(ends) else []
        self._buffers = [np.empty(int(ends[-1]) if len(ends) else 0, np.uint8) for _ in range(2)]
        addresses = [[int(buffer.ctypes.data) + at for at in self._offsets] for buffer in self._buffers]
        self._before = [_plan(self._items, rows, kept) for kept in addresses]
        self._after = [_plan(self._changes, rows, kept) for kept in addresses]
        self._addresses = [
            (int(b.ctypes.data), int(a.ctypes.data)) for b, a in zip(self._before, self._after, strict=True)
        ]
        self._turn = 0
        self._taken = self._left = False
        """True if one buffer holds samples taken before this step, and the other those left by the step before."""

    @property
    def plans(self) -> tuple[tuple[int, int, int, int], Refs, bool]:
        """The two plans before a step and the two after it, by address; the tensors; and True if some of their memory
        is ``tensor_memory.lent``. Native code uses them alternately.
        """
        (before, after), (before_, after_) = self._addresses
        return (before, before_, after, after_), self._tensors, self._lent

    def follows(self) -> bool:
        """Update the plans for tensors whose ``.data`` was replaced. Return False if a tensor has another size or
        dtype, or can no longer be read in place.
        """
        if native is not None and native.stand(self._addresses[0][0], self._tensors, self._lent):
            return True
        if not all(plain(named(ref)) for ref in self._tensors):
            return False
        places = self._where()
        if places == self._places:
            return True
        n = len(self._tensors)
        dtypes = [CODES.get(named(ref).dtype, -1) for ref in self._tensors]
        if places[n:] != self._places[n:] or dtypes != self._before[0][:, 1].tolist():
            return False
        self._places = places
        for plan in (*self._before, *self._after):
            plan[:, 0] = places[:n]
        return True

    def take(self) -> None:
        """Set the rows of the tensors, and keep their samples."""
        self._left, self._taken = self._taken, True
        self._turn = 1 - self._turn
        if native is not None:
            native.observe_many(self._addresses[self._turn][0], len(self._items), 0)
            return
        for at, item in zip(self._offsets, self._items, strict=True):
            flat = _sample(item)
            self._view(at, flat)[:] = operation.numbers(flat)
            _replace(flat, item, self._rows)

    def compare(self) -> bool:
        """Set the rows of the updates: samples now minus the kept ones, then keep those of now.

        Return False without reading if the tensors were not taken or have changed in kind.
        """
        if not self._taken or not self.follows():
            self.forget()
            return False
        if native is not None:
            native.difference_many(self._addresses[self._turn][1], len(self._changes), 0)
            return True
        for at, item in zip(self._offsets, self._changes, strict=True):
            flat = _sample(item)
            kept = self._view(at, flat)
            _replace(flat - torch.from_numpy(kept), item, self._rows)
            kept[:] = operation.numbers(flat)
        return True

    def resume(self, turn: int) -> None:
        """Continue from samples that native code has taken into the buffer ``turn``."""
        self._turn, self._taken, self._left = turn, True, False

    def forget(self) -> None:
        """Drop the kept samples: steps that were not read come before the next reading."""
        self._taken = self._left = False

    def change_outside(self, most: int) -> float:
        """Return the largest change, relative to its size, of a tensor of up to ``most`` elements between the last step
        and this reading; 0 if there is none or it is not known.
        """
        if not self._left:
            return 0.0
        if native is not None:
            now, before = self._addresses[self._turn][0], self._addresses[1 - self._turn][0]
            return float(native.changed(now, before, len(self._items), most))
        before_, now_ = self._buffers[1 - self._turn], self._buffers[self._turn]
        every = zip(self._offsets, self._items, strict=True)
        small = [(at, i) for at, i in every if _held(i.tensor).numel() <= most and _count(i) == _held(i.tensor).numel()]
        shares = [_change(before_[at:], now_[at:], item) for at, item in small]
        return max((share for share in shares if np.isfinite(share)), default=0.0)

    def _where(self) -> list[int]:
        held = [_held(tensor) for tensor in self._tensors]
        self._lent = any(map(tensor_memory.lent, held))
        return [x.data_ptr() for x in held] + [x.numel() for x in held]

    def _view(self, at: int, flat: Tensor) -> npt.NDArray[np.floating]:
        kind = np.float64 if flat.dtype is torch.float64 else np.float32
        size = flat.numel() * np.dtype(kind).itemsize
        view: npt.NDArray[np.floating] = self._buffers[self._turn][at : at + size].view(kind)
        return view


class Gradients:
    """The gradients of some tensors, read at each step: whole, or ``cap`` elements of each.

    If ``cap`` leaves some out, the blocks that are read advance from step to step, so that every element is read within
    some steps.
    """

    def __init__(self, tensors: Sequence[Tensor | weakref.ref[Tensor]], addresses: Sequence[int], cap: int) -> None:
        self.tensors = tuple(_weak(x) for x in tensors)
        self._turn = 0
        self._plan = np.zeros((len(self.tensors), 6), np.int64)
        if self.tensors:
            self._plan[:, 1] = [CODES[named(ref).dtype] for ref in self.tensors]
            self._plan[:, 2] = [_held(tensor).numel() for tensor in self.tensors]
            self._plan[:, 3] = cap
            self._plan[:, 4] = addresses
        self._address = int(self._plan.ctypes.data)

    @property
    def plan(self) -> tuple[int, Refs]:
        """The address of the plan, valid while this object lives, and the tensors."""
        return self._address, self.tensors

    def read(self) -> tuple[float, float] | None:
        """Return the sum of squares over all gradients, estimated where samples are read, and the number of non-finite
        elements among those read.

        Return None without reading if there is no native code, or a gradient cannot be read in place: it is sparse,
        expanded, or of another size or dtype than its tensor had when this object was made.
        """
        if native is None or operation.transforming():
            return None
        held = native.find_gradients(self._address, self.tensors)  # held: another thread may clear .grad
        if held is None:
            held = [named(ref).grad for ref in self.tensors]
            kinds = self._plan[:, 1:3].tolist()
            addresses = [_address(x, code, numel) for x, (code, numel) in zip(held, kinds, strict=True)]
            if -1 in addresses:
                return None
            self._plan[:, 0] = addresses
        self._turn += 1
        found: tuple[float, float] = native.observe_many(self._address, len(held), self._turn)
        return found

    def outdated(self) -> bool:
        """Return True if a tensor has another size or dtype than when this object was made."""
        now = [(tensor_memory.local(x), CODES.get(x.dtype, -1)) for x in map(named, self.tensors)]
        return bool(self._plan[:, 1:3].tolist() != [[code, x.numel() if x is not None else -1] for x, code in now])

    def missing(self) -> list[int]:
        """Return the indices of tensors that had no gradient when they were last read."""
        return np.flatnonzero(self._plan[:, 0] == 0).tolist()


def _address(grad: Tensor | None, code: int, numel: int) -> int:
    """Return the address of a gradient, 0 for none, -1 if it is not dense or has another size or dtype."""
    if grad is None:
        return 0
    if not plain(grad):
        return -1
    held = _held(grad)
    return held.data_ptr() if CODES[held.dtype] == code and held.numel() == numel else -1


def observe_many(items: Sequence[Item], rows: operation.Rows) -> tuple[float, float]:
    """Set the rows of many tensors in one call. Return the sum of squares over all, estimated where samples were read,
    and the number of non-finite elements among those read.
    """
    if native is not None:
        if not items:
            return 0.0, 0.0
        plan = _plan(items, rows, [0] * len(items))
        found: tuple[float, float] = native.observe_many(plan.ctypes.data, len(plan), 0)
        return found
    for item in items:
        _replace(_sample(item), item, rows)
    return operation.squares(rows.values[[item.row for item in items]])


def _plan(items: Sequence[Item], rows: operation.Rows, kept: list[int]) -> npt.NDArray[np.int64]:
    """Return the plan that native code reads, int64 of shape (items, 6): address, dtype, numel, cap, address of the
    row, address of the kept sample.
    """
    plan = np.empty((len(items), 6), np.int64)
    held = [_held(item.tensor) for item in items]
    plan[:, 0] = [x.data_ptr() for x in held]
    plan[:, 1] = [CODES[x.dtype] for x in held]
    plan[:, 2] = [x.numel() for x in held]
    plan[:, 3] = [item.cap for item in items]
    plan[:, 4] = [rows.address + item.row * operation.ROW for item in items]
    plan[:, 5] = kept
    return plan


def _count(item: Item) -> int:
    numel = _held(item.tensor).numel()
    return numel if not 0 < item.cap < numel else max(item.cap // operation.BLOCK, 1) * min(operation.BLOCK, item.cap)


def _kept(item: Item) -> int:
    size = _count(item) * (8 if _there(item.tensor).dtype is torch.float64 else 4)
    return -(-size // _ALIGNED) * _ALIGNED


def _sample(item: Item) -> Tensor:
    x = _held(item.tensor).detach()
    flat = operation.sample(operation.in_memory_order(x), item.cap or x.numel())
    return flat if x.dtype in (torch.float32, torch.float64) else flat.float()


def _replace(flat: Tensor, item: Item, rows: operation.Rows) -> None:
    rows.values[item.row] = operation.BLANK
    operation.observe_cpu(flat, rows, item.row, 0)
    rows.values[item.row, operation.TOTAL] = _held(item.tensor).numel()


def _change(before: npt.NDArray[np.uint8], now: npt.NDArray[np.uint8], item: Item) -> float:
    kind = np.float64 if _there(item.tensor).dtype is torch.float64 else np.float32
    size = _count(item) * np.dtype(kind).itemsize
    if np.array_equal(before[:size], now[:size]):
        return 0.0
    a, b = (x[:size].view(kind).astype(np.float64) for x in (before, now))
    with np.errstate(all="ignore"):  # weights may have diverged
        norm = float(np.linalg.norm(a))
        return float(np.linalg.norm(b - a)) / norm if norm else float("inf")
