"""The statistics table of one device. Tensors of that device in, rows of raw accumulators out.

On CUDA and ROCm a tensor costs one launch of a Triton kernel, and a step one asynchronous copy; nothing waits. Where
Triton is missing or does not work, torch's own operations give the same rows with about thirty launches a tensor.
``backend`` names the one in use, ``why_torch`` the reason.

Tensors must be ``operation.observable`` and detached. The launches of a step must come before its rows are sent
(``pending.py``), on the stream that is then current or on one that it waits for: this holds at an optimizer's step.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import torch

from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import block_layout
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

Backend = Literal["triton", "torch"]
_captured: dict[int, Tensor] = {}
"""Tables that a captured CUDA graph writes to, by address. They are never freed: no callback reports the last replay,
and the memory would belong to another tensor by then."""


def backend(device: torch.device) -> Backend:
    """Return the backend that reads tensors of a device. The first call runs the kernel there, and waits for it."""
    return "torch" if why_torch(device) else "triton"


def why_torch(device: torch.device) -> str:
    """Return the reason why Triton does not read tensors of a device, for ``neuraldbg doctor``; empty if it does."""
    if device.type != "cuda":
        return f"Triton's kernels run on CUDA and ROCm, not on {device.type}"
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return tried(device)


@lru_cache(maxsize=64)
def tried(device: torch.device) -> str:
    """Try Triton on a device. Return the reason to use torch there, empty if there is none."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton"
    if os.environ.get("TRITON_INTERPRET", "0") == "1":
        return "TRITON_INTERPRET=1 is set: Triton would compute on the CPU"
    try:
        return compared(device)
    except Exception as error:  # noqa: BLE001 (no compiler, an old GPU, another version: torch does it then)
        let_pass(error)
        return f"Triton does not work here: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def compared(device: torch.device) -> str:
    """Read one tensor by Triton and by torch; return an empty string if both agree, else the reason to use torch."""
    x = torch.linspace(-2, 3, 300, device=device, dtype=torch.float32)
    by_triton, by_torch = blank(1, device), blank(1, device)
    _launch(x, by_triton, 0, 0, 0.0, 0.0)
    operation.observe_device(x, by_torch, 0, x.numel())
    same = torch.allclose(by_triton.cpu(), by_torch.cpu(), rtol=1e-9, atol=1e-9)
    return "" if same else "Triton's kernel gives other results than torch here"


def _launch(x: Tensor, table: Tensor, row: int, cap: int, bound: float, centre: float) -> None:
    from neuraldbg.capture.statistics.device import triton_kernels  # noqa: PLC0415 (imports Triton)

    numel, sample = x.numel(), block_layout.readable(x, cap)
    places = block_layout.blocks(numel if sample is x else sample.numel(), cap if sample is x else 0)
    triton_kernels.one(sample, numel, places, table, row, bound, centre)


def blank(rows: int, device: torch.device) -> Tensor:
    """Return an empty table, shape (rows, operation.WIDTH): float64, or float32 where the device has no wider dtype."""
    table = torch.zeros(
        (rows, operation.WIDTH), dtype=torch.float32 if device.type == "mps" else torch.float64, device=device
    )
    table[:, operation.MIN].fill_(float("inf"))
    table[:, operation.MAX].fill_(-float("inf"))
    return table


class DeviceTable:
    """The accumulator rows of one device. ``table`` keeps its address: compiled code and CUDA graphs write to it."""

    def __init__(self, device: torch.device | str, rows: int, kind: Backend | None = None) -> None:
        self.device = torch.device(device)
        self.kind: Backend = kind if kind is not None else backend(self.device)
        """The backend that reads tensors of this device."""
        self.table = blank(rows, self.device)
        """Accumulators, shape (rows, operation.WIDTH)."""
        self._blank = blank(rows, self.device)
        self.turn = 0
        """Counter of clears; a second reading at the same count replaces the first."""

    # -- reading ------------------------------------------------------------------------------------------------

    def observe(self, x: Tensor, row: int, cap: int, bound: float = 0.0, centre: float = 0.0) -> None:
        """Add the statistics of a tensor to a row: of evenly spaced blocks if it has more than ``cap`` > 0 elements.

        ``bound`` > 0 counts elements farther than that from ``centre`` as saturated.
        """
        if x.numel() == 0:
            return
        if capturing(self.device):
            _captured[self.table.data_ptr()] = self.table
        if self.kind == "triton":
            _launch(x, self.table, row, cap, bound, centre)
        else:
            _by_torch(x, self.table, row, cap, bound, centre)

    # -- handing over -------------------------------------------------------------------------------------------

    def reset(self, rows: Iterable[int]) -> None:
        """Clear some rows."""
        for row in rows:
            self.table[row].copy_(self._blank[row])

    def clear(self, rows: int) -> None:
        """Clear the first ``rows`` rows."""
        self.table[:rows].copy_(self._blank[:rows])
        self.turn += 1


def layout(x: Tensor | None) -> tuple[torch.dtype, torch.Size, tuple[int, ...]] | None:
    """Return dtype, shape and strides of a tensor, None for None."""
    return None if x is None else (x.dtype, x.shape, x.stride())


def _by_torch(x: Tensor, table: Tensor, row: int, cap: int, bound: float, centre: float) -> None:
    operation.observe_device(block_layout.in_order(x), table, row, cap if cap > 0 else x.numel(), bound, centre)


def capturing(device: torch.device) -> bool:
    """Return True if a CUDA graph is being captured on the current stream."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
