"""Many CPU tensors read in one call: the weights of an optimizer before its step, its gradients, what the step changed.

A plan names each tensor's memory, its row, and where a sample of it is kept over the step. With the native kernel that
is one call for all of them; without it the same is done tensor by tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from neuraldbg.capture import op
from neuraldbg.capture.kernel import CODES, dense, native

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_ALIGNED = 8
"""Bytes: samples of float64 and float32 lie in one buffer."""


class Item(NamedTuple):
    """A tensor to read: ``plain`` ones only."""

    tensor: Tensor
    row: int
    cap: int
    """Elements to read at most, 0 for all."""


def plain(x: Tensor) -> bool:
    """Whether the memory of ``x`` can be read as it lies: an ordinary, dense CPU tensor of a dtype that we read."""
    return type(x) in op.ORDINARY and x.is_cpu and op.observable(x) and dense(x)


class Samples:
    """What was read of some tensors, kept over a step: one buffer, and one more for what the step before left."""

    def __init__(self) -> None:
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._turn = 0
        self.items: list[Item] = []
        self._offsets: list[int] = []
        self._ends: list[int] = []
        self._left: tuple[list[Item], list[int]] | None = None
        self._plan = np.empty((0, 6), np.int64)

    def take(self, items: Sequence[Item], rows: op.Rows) -> None:
        """Set the rows of some tensors, and keep what was read of them."""
        self._left = (self.items, self._offsets) if self.items else None
        self._turn = 1 - self._turn
        self.items = list(items)
        sizes = [_kept(item) for item in items]
        ends = np.cumsum(sizes, dtype=np.int64).tolist() if sizes else []
        self._offsets = [0, *ends[:-1]] if ends else []
        self._ends = ends
        if ends and len(self._buffers[self._turn]) < ends[-1]:
            self._buffers[self._turn] = np.empty(ends[-1], np.uint8)
        if native is None:
            for item, at, end in zip(items, self._offsets, self._ends, strict=True):
                flat = _sample(item)
                self._view(at, end, flat.dtype)[: flat.numel()] = flat.numpy()
                _replace(flat, item, rows)
            return
        base = self._buffers[self._turn].ctypes.data
        self._plan = _plan(items, rows, [base + at for at in self._offsets])
        native.observe_many(self._plan.ctypes.data, len(self._plan), 0)

    def compare(self, items: Sequence[Item], rows: op.Rows) -> bool:
        """Set the rows of what the same tensors are now less what was kept, and keep what they are now.

        False, and nothing is done, if they are not the same.
        """
        if not self._holds(items):
            self.items = []
            return False
        if native is None:
            for item, at, end in zip(items, self._offsets, self._ends, strict=True):
                flat = _sample(item)
                kept = self._view(at, end, flat.dtype)[: flat.numel()]
                _replace(flat - torch.from_numpy(kept), item, rows)
                kept[:] = flat.numpy()
            return True
        base = self._buffers[self._turn].ctypes.data
        self._plan = _plan(items, rows, [base + at for at in self._offsets])
        native.difference_many(self._plan.ctypes.data, len(self._plan), 0)
        return True

    def _holds(self, items: Sequence[Item]) -> bool:
        """Whether these tensors are those that were taken, at their size: ``.data`` may have been replaced."""
        sizes = [end - at for at, end in zip(self._offsets, self._ends, strict=True)]
        return (
            len(items) == len(self.items)
            and all(_same(a, b) for a, b in zip(items, self.items, strict=True))
            and sizes == [_kept(item) for item in items]
        )

    def forget(self) -> None:
        """What is kept says nothing of the step to come: steps in between were not read."""
        self.items, self._left = [], None

    def change_outside(self, most: int, compared: int) -> float:
        """Return the largest change of a tensor of up to ``most`` elements between the last step and this reading,
        relative to its size; 0 for none or unknown. About ``compared`` elements are looked at first.
        """
        if self._left is None:
            return 0.0
        items, offsets = self._left
        if offsets != self._offsets or not all(_same(a, b) for a, b in zip(items, self.items, strict=True)):
            return 0.0
        small = [i for i, item in enumerate(self.items) if item.tensor.numel() <= most]
        before, now = self._buffers[1 - self._turn], self._buffers[self._turn]
        words = [slice(self._offsets[i] // 4, self._ends[i] // 4) for i in small]
        every = sum(word.stop - word.start for word in words) // max(1, compared) | 1  # odd: both halves of a float64
        a, b = (buffer[: len(buffer) // 4 * 4].view(np.uint32) for buffer in (before, now))
        if all(np.array_equal(a[word][::every], b[word][::every]) for word in words):
            return 0.0
        shares = [_change(before[self._offsets[i] :], now[self._offsets[i] :], self.items[i]) for i in small]
        return max((share for share in shares if np.isfinite(share)), default=0.0)

    def _view(self, at: int, end: int, dtype: torch.dtype) -> npt.NDArray[np.floating]:
        kind = np.float64 if dtype is torch.float64 else np.float32
        view: npt.NDArray[np.floating] = self._buffers[self._turn][at:end].view(kind)
        return view


def observe_many(items: Sequence[Item], rows: op.Rows) -> tuple[float, float]:
    """Set the rows of many tensors in one call. Returns the sum of squares over all, estimated where samples were read,
    and how many of the elements read are not finite.
    """
    if native is not None:
        if not items:
            return 0.0, 0.0
        plan = _plan(items, rows, [0] * len(items))
        found: tuple[float, float] = native.observe_many(plan.ctypes.data, len(plan), 0)
        return found
    for item in items:
        _replace(_sample(item), item, rows)
    raw = rows.values[[item.row for item in items]]
    squares = raw[:, op.SQUARES] / np.maximum(raw[:, op.COUNT], 1) * raw[:, op.TOTAL]
    return float(squares.sum()), float(raw[:, op.NONFINITE].sum())


def _plan(items: Sequence[Item], rows: op.Rows, kept: list[int]) -> npt.NDArray[np.int64]:
    """Return what the kernel reads: address, dtype, numel, cap, address of the row, where to keep what was read."""
    plan = np.empty((len(items), 6), np.int64)
    plan[:, 0] = [item.tensor.data_ptr() for item in items]
    plan[:, 1] = [CODES[item.tensor.dtype] for item in items]
    plan[:, 2] = [item.tensor.numel() for item in items]
    plan[:, 3] = [item.cap for item in items]
    plan[:, 4] = [rows.address + item.row * op.ROW for item in items]
    plan[:, 5] = kept
    return plan


def _same(a: Item, b: Item) -> bool:
    return a.tensor is b.tensor and a.cap == b.cap


def _count(item: Item) -> int:
    numel = item.tensor.numel()
    return numel if not 0 < item.cap < numel else max(item.cap // op.BLOCK, 1) * min(op.BLOCK, item.cap)


def _kept(item: Item) -> int:
    size = _count(item) * (8 if item.tensor.dtype is torch.float64 else 4)
    return -(-size // _ALIGNED) * _ALIGNED


def _sample(item: Item) -> Tensor:
    x = item.tensor.detach()
    flat = op.sample(op.in_memory_order(x), item.cap or x.numel())
    return flat if x.dtype in (torch.float32, torch.float64) else flat.float()


def _replace(flat: Tensor, item: Item, rows: op.Rows) -> None:
    rows.values[item.row] = op.BLANK
    op.observe_cpu(flat, rows, item.row, 0)
    rows.values[item.row, op.TOTAL] = item.tensor.numel()


def _change(before: npt.NDArray[np.uint8], now: npt.NDArray[np.uint8], item: Item) -> float:
    kind = np.float64 if item.tensor.dtype is torch.float64 else np.float32
    size = _count(item) * np.dtype(kind).itemsize
    a, b = (x[:size].view(kind).astype(np.float64) for x in (before, now))
    with np.errstate(all="ignore"):  # weights that have blown up
        norm = float(np.linalg.norm(a))
        return float(np.linalg.norm(b - a)) / norm if norm else float("inf")
