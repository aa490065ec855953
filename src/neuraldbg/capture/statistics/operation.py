"""The one statistics operation: a tensor in, one row of a table grows.

Eager hooks call ``observe_cpu`` or ``observe_device`` directly; the operators of compiled graphs are in
``compiled/operators.py``. ``nouns/accumulators.py`` has the columns of a row, and the statistics that it becomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.native import CODES, dense, native
from neuraldbg.nouns.accumulators import (
    BLANK,
    COUNT,
    HALF_OVER,
    HALF_UNDER,
    MAX,
    MIN,
    NONFINITE,
    OVER,
    SATURATED,
    SQUARES,
    SUM,
    TOTAL,
    UNDER,
    WIDTH,
    ZEROS,
    add,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "BLANK", "BLOCK", "COUNT", "HALF_OVER", "HALF_UNDER", "MAX", "MIN", "NONFINITE", "OVER", "ROW", "SATURATED",
    "SQUARES", "SUM", "SUMMED", "TOTAL", "UNDER", "WIDTH", "ZEROS", "Rows", "hidden", "in_memory_order", "numbers",
    "observable", "observe_cpu", "observe_device", "rows_of", "sample", "shown", "spaced", "squares", "transforming",
]  # fmt: skip

SUMMED = (TOTAL, COUNT, NONFINITE, SUM, SQUARES, ZEROS, SATURATED, UNDER, OVER)
"""Columns that are added when two rows are merged."""
BLOCK = 128
"""Elements of one contiguous block: eight cache lines, so that a sample of a few thousand spreads over the tensor."""

ROW = WIDTH * 8
"""Bytes of a row."""


class Rows(NamedTuple):
    """A table on the CPU: as a numpy array, and as an address for native code."""

    values: npt.NDArray[np.float64]
    """Accumulators, shape (rows, WIDTH)."""
    address: int


def rows_of(table: Tensor) -> Rows:
    """Return the writable rows of a CPU table of shape (rows, WIDTH)."""
    return Rows(table.numpy(), table.data_ptr())


def squares(raw: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the sum of squares over the tensors of some rows, shape (rows, WIDTH), estimated where samples were read,
    and the number of elements read that are not finite.
    """
    read = raw[raw[:, COUNT] > 0]
    return float((read[:, SQUARES] / read[:, COUNT] * read[:, TOTAL]).sum()), float(read[:, NONFINITE].sum())


def sample(x: Tensor, cap: int) -> Tensor:
    """Return a 1-D tensor of at most about ``cap`` elements of ``x``, in evenly spaced contiguous blocks.

    A small tensor comes back whole. Deterministic, draws no random numbers, and never copies more than it returns.
    """
    numel = x.numel()
    if numel <= cap:
        return x.reshape(-1)
    if not x.is_contiguous() and dense(x):  # another memory format: take blocks of neighbours in memory
        x = x.as_strided((numel,), (1,), x.storage_offset())
    if not x.is_contiguous():
        # Rows of the first dimension stay blocks whatever the memory format; a sliced row is copied, not the tensor.
        while x.dim() > 1 and x.shape[0] == 1:
            x = x[0]
        x = x[:: -(-numel // cap)] if x.shape[0] * cap >= numel else x[:1]
        return sample(x.contiguous(), cap) if x.numel() <= 4 * cap else sample(x[0], cap)
    blocks = max(cap // BLOCK, 1)
    size = min(BLOCK, cap)
    step = (numel - size) // max(blocks - 1, 1)
    return x.as_strided((blocks, size), (step, 1), x.storage_offset()).reshape(-1)


def spaced(x: Tensor, step: int, count: int) -> Tensor:
    """Return every ``step``-th element in order, ``count`` at most, 1-D. Copies no more than it returns, whatever the
    strides: an expanded tensor may have more elements than the memory of the machine.
    """
    if x.is_contiguous():
        return x.reshape(-1)[::step][:count]
    places = torch.arange(0, min(x.numel(), step * count), step, device=x.device)
    return x[torch.unravel_index(places, x.shape)]


_READABLE = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})


def observable(x: Any) -> TypeGuard[Tensor]:
    """Return True if the statistics of ``x`` can be read: a strided, real, non-empty tensor of torch's own class, whose
    memory is there.
    """
    return tensor_memory.present(x) and x.dtype in _READABLE and x.numel() > 0


def shown(x: object) -> Tensor | None:
    """Return the tensor whose statistics can be read for ``x``: ``x`` itself, the part of it on this rank, the values
    of a jagged tensor, or a view of a subclass; None if there is none.
    """
    held = tensor_memory.readable(x)
    if held is None:
        held = tensor_memory.jagged(x)
    return held if held is not None and held.dtype in _READABLE and held.numel() else None


def hidden(x: Tensor) -> bool:
    """Return True if ``x`` has elements, but ``shown`` returns None for it."""
    held = tensor_memory.readable(x)
    if held is None:
        held = tensor_memory.jagged(x)
    return held is None or (held.dtype not in _READABLE and held.numel() > 0)


transforming = torch._C._are_functorch_transforms_active  # noqa: SLF001 (no public name)
"""Return True inside a function transform, where even plain operations are not what they seem. Reads a flag of the
thread: a query for the level of transforms would create the thread's list of them, which autograd then copies for each
node of each backward pass, as long as the program runs."""


def observe_cpu(x: Tensor, rows: Rows, row: int, cap: int, bound: float = 0.0, centre: float = 0.0) -> None:
    """Add the statistics of a CPU tensor to a row of a table.

    Of a tensor with more than ``cap`` > 0 elements a sample is read. ``bound`` > 0 counts elements farther than that
    from ``centre`` as saturated.
    """
    if native is None:
        _observe(x, rows.values[row], cap, bound, centre)
        return
    numel = x.numel()
    address = rows.address + row * ROW
    if dense(x):
        native.observe(x.data_ptr(), CODES[x.dtype], numel, cap, address, bound, centre)
        return
    flat = sample(x, cap or numel).resolve_neg().contiguous()
    native.observe(flat.data_ptr(), CODES[x.dtype], flat.numel(), 0, address, bound, centre)
    rows.values[row, TOTAL] += numel - flat.numel()


def _observe(x: Tensor, row: npt.NDArray[np.float64], cap: int, bound: float, centre: float) -> None:
    """Add the statistics with torch's and numpy's operators, without native code."""
    flat = sample(in_memory_order(x), cap or x.numel())
    if flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    flat = flat.resolve_neg()
    if bound:
        row[SATURATED] += int(torch.count_nonzero((flat - centre).abs() > bound))
    add(numbers(flat.double()), row, x.numel())


def numbers(x: Tensor) -> npt.NDArray[Any]:
    """Return a copy of a tensor as a numpy array. Never call ``numpy()`` on memory of the program: torch then forbids
    for ever to resize that storage, and a program that offloads its weights ends with an error.
    """
    return x.detach().clone().resolve_neg().numpy()


def in_memory_order(x: Tensor) -> Tensor:
    """Return a dense tensor as a 1-D view in memory order, so that Python samples it as native code does."""
    return x.as_strided((x.numel(),), (1,), x.storage_offset()) if dense(x) else x


def observe_device(x: Tensor, table: Tensor, row: int, cap: int, bound: float = 0.0, centre: float = 0.0) -> None:
    """Add the statistics of a tensor on any device to ``table[row]`` on the same device, without a synchronisation."""
    # Float64, which no dtype can overflow; MPS has no float64.
    flat = sample(x, cap)
    wide = flat.double() if flat.device.type != "mps" else flat.float()
    finite = wide.isfinite()
    safe = torch.where(finite, wide, 0)
    inf = float("inf")
    far = ((wide - centre).abs() > bound).sum() if bound else finite.new_zeros((), dtype=torch.int64)
    new = torch.stack(
        [
            wide.new_full((), float(x.numel())),  # a fill: a number copied over would be waited for
            wide.new_full((), float(flat.numel())),
            (~finite).sum().to(wide.dtype),
            safe.sum(),
            (safe * safe).sum(),
            torch.where(finite, wide, inf).min(),
            torch.where(finite, wide, -inf).max(),
            (wide == 0).sum().to(wide.dtype),
            far.to(wide.dtype),
            ((wide != 0) & (wide.abs() <= HALF_UNDER)).sum().to(wide.dtype),
            (finite & (wide.abs() >= HALF_OVER)).sum().to(wide.dtype),
        ]
    ).to(table.dtype)
    # A row accumulates: extremes are compared, all other columns added.
    old = table[row]
    summed = old + new
    summed[MIN] = torch.minimum(old[MIN], new[MIN])
    summed[MAX] = torch.maximum(old[MAX], new[MAX])
    table[row] = summed
