"""The way of a table's rows from a device to the CPU, without waiting: asked for at one step, taken at a later one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

_MOST = 64
"""Copies on their way at most. The program's launches fill the driver's queue long before that."""


class _Slot:
    """Pinned memory for one copy, and the event that tells when it has arrived."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self.host = torch.empty(shape, dtype=dtype, device="cpu", pin_memory=cuda)
        self.event = torch.cuda.Event() if cuda else None
        self.rows = 0

    def start(self, table: Tensor, rows: int) -> None:
        self.rows = rows
        self.host[:rows].copy_(table[:rows], non_blocking=self.event is not None)
        if self.event is not None:
            self.event.record(torch.cuda.current_stream(table.device))

    def arrived(self) -> bool:
        return self.event is None or self.event.query()

    def read(self) -> npt.NDArray[np.float64]:
        """Return a copy of the rows; waits for them."""
        if self.event is not None:
            self.event.synchronize()
        return self.host[: self.rows].numpy().astype(np.float64)


class Fetches:
    """Copies of a table's rows on their way, first in, first out. Two slots serve a loop that takes at every step."""

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._under_way: deque[_Slot] = deque()
        self._free: list[_Slot] = []
        self.lost = 0
        """Copies that nobody took in time."""

    def __len__(self) -> int:
        return len(self._under_way)

    def start(self, rows: int) -> None:
        """Copy the first rows, when the stream gets there."""
        if len(self._under_way) == _MOST:  # its memory may be written again: the stream keeps the order
            self._free.append(self._under_way.popleft())
            self.lost += 1
        slot = self._free.pop() if self._free else _Slot(self._table.shape, self._table.dtype, self._table.device)
        slot.start(self._table, rows)
        self._under_way.append(slot)

    def ready(self) -> bool:
        """Whether the oldest copy has arrived."""
        return bool(self._under_way) and self._under_way[0].arrived()

    def take(self, *, wait: bool = False) -> npt.NDArray[np.float64] | None:
        """Return the oldest copy, float64 (rows, op.WIDTH); None if there is none, or it has not arrived."""
        if not self._under_way or not (wait or self._under_way[0].arrived()):
            return None
        slot = self._under_way.popleft()
        found = slot.read()
        self._free.append(slot)
        return found
