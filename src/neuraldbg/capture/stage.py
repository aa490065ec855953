"""Samples put aside in a hook and reduced together at the step's end.

A reduction over a few thousand elements costs its dispatch, not its arithmetic: in a hook, between two operations of
the user's, each of five reductions finds every cache cold. So a hook copies one bounded sample, and all samples are
reduced in a handful of vectorised passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from neuraldbg.capture import op

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

_ROWS = 64
"""Samples held before they are reduced: two megabytes, which stay in the processor's cache."""
_PARTS = 1024
"""Small tensors held before they are reduced: a recurrent cell may be called thousands of times in one step."""
_SAFE = 1e18
"""Largest magnitude whose square is far from float32's largest value, so that sums of squares may be taken there."""


class Stage:
    """Holds samples of CPU tensors until ``settle`` adds their statistics to the rows of a table."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._blocks = max(cap // op.BLOCK, 1)
        self._width = min(op.BLOCK, cap) * self._blocks
        """Elements of a sample of a large tensor; the same as ``op.sample`` takes."""
        self._full: Tensor | None = None
        self._slots: list[Tensor] = []
        self._values: npt.NDArray[np.float32] | None = None
        self._full_rows: list[tuple[int, int]] = []
        self._parts: list[Tensor] = []
        self._part_rows: list[int] = []

    def __len__(self) -> int:
        return len(self._full_rows) + len(self._parts)

    def put(self, x: Tensor, row: int) -> bool:
        """Copy a sample of a detached tensor; False if its dtype needs the wider way of ``op.observe_cpu``."""
        if x.dtype is torch.float64:
            return False
        numel = x.numel()
        if numel <= self.cap and numel != self._width:
            self._parts.append(x.flatten() if x.dtype is torch.float32 and not x.is_contiguous() else _copied(x))
            self._part_rows.append(row)
            return True
        if not x.is_contiguous():
            return False
        if self._full is None:
            self._full = torch.empty((_ROWS, self._width), device="cpu")
            size = self._width // self._blocks
            self._slots = [row.view(self._blocks, size) for row in self._full]
            self._values = self._full.numpy()
        size = self._width // self._blocks
        step = (numel - size) // max(self._blocks - 1, 1)
        source = x.as_strided((self._blocks, size), (step, 1), x.storage_offset())
        self._slots[len(self._full_rows)].copy_(source)
        self._full_rows.append((row, numel))
        return True

    @property
    def crowded(self) -> bool:
        """Whether the next sample may not fit."""
        return len(self._full_rows) == _ROWS or len(self._parts) == _PARTS

    def settle(self, table: npt.NDArray[np.float64]) -> None:
        """Add the statistics of all samples to the table, shape (rows, op.WIDTH), and forget them."""
        if self._full_rows:
            assert self._values is not None
            values = self._values[: len(self._full_rows)]
            rows, totals = zip(*self._full_rows, strict=True)
            _add(table, np.array(rows), _reduced(values, np.array(totals)))
            self._full_rows.clear()
        if self._parts:
            sizes = np.array([part.numel() for part in self._parts])
            flat = torch.cat(self._parts).double().numpy()
            _add(table, np.array(self._part_rows), segments(flat, sizes))
            self._parts.clear()
            self._part_rows.clear()


def _copied(x: Tensor) -> Tensor:
    return x.reshape(-1).clone() if x.dtype is torch.float32 else x.reshape(-1).float()


def _reduced(values: npt.NDArray[np.float32], totals: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Reduce samples of equal size, shape (samples, elements), to raw columns, shape (samples, op.WIDTH)."""
    out = np.zeros((len(values), op.WIDTH))
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = values.min(axis=1), values.max(axis=1)
        wild = ~((low > -_SAFE) & (high < _SAFE)) | (np.maximum(np.abs(low), np.abs(high)) < 1 / _SAFE)
        out[:, op.COUNT] = values.shape[1]
        out[:, op.SUM] = values.sum(axis=1)
        out[:, op.SQUARES] = np.einsum("ij,ij->i", values, values)
    out[:, op.MIN], out[:, op.MAX] = low, high
    out[:, op.ZEROS] = [np.count_nonzero(zero) for zero in values == 0]  # with an axis it takes twice the time
    for i in np.flatnonzero(wild):  # NaN, Inf, or squares beyond float32's range
        out[i] = segments(values[i].astype(np.float64), np.array([values.shape[1]]))[0]
    out[:, op.TOTAL] = totals
    return out


def segments(values: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Reduce tensors that lie one after the other to raw columns, shape (tensors, op.WIDTH). Sizes must be positive."""
    starts = np.concatenate([[0], np.cumsum(sizes[:-1])])
    finite = np.isfinite(values)
    out = np.zeros((len(sizes), op.WIDTH))
    out[:, op.TOTAL] = out[:, op.COUNT] = sizes
    low = high = values
    if not finite.all():
        out[:, op.NONFINITE] = np.add.reduceat(~finite, starts, dtype=np.int64)
        low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
        values = np.where(finite, values, 0.0)
    out[:, op.SUM] = np.add.reduceat(values, starts)
    out[:, op.SQUARES] = np.add.reduceat(values * values, starts)
    out[:, op.MIN] = np.minimum.reduceat(low, starts)
    out[:, op.MAX] = np.maximum.reduceat(high, starts)
    out[:, op.ZEROS] = np.add.reduceat((values == 0) & finite, starts, dtype=np.int64)
    return out


def _add(table: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], new: npt.NDArray[np.float64]) -> None:
    """Accumulate raw columns into rows; a row may come several times."""
    low, high = new[:, op.MIN].copy(), new[:, op.MAX].copy()
    new[:, [op.MIN, op.MAX]] = 0.0
    np.add.at(table, rows, new)
    np.minimum.at(table[:, op.MIN], rows, low)
    np.maximum.at(table[:, op.MAX], rows, high)
