"""The Triton kernels that compute the statistics of tensors on a GPU. Addresses and ``Blocks`` in; rows of a table
grow.

Import this only where Triton can be imported: ``table.backend`` decides. Each program reads a few thousand elements
with float64 sums, which no dtype can overflow, and adds its part to the row with atomics; counts and extremes are exact
whatever the order of the programs, sums of a tensor that several programs read may differ in the last bits.

No integer argument is specialised by its value, so that a new size or row triggers no compilation. The table is
float64, shape (rows, operation.WIDTH).
"""

# ruff: noqa: ANN001, ANN202 (what is under `triton.jit` is Triton's language: there annotations choose types to compile)
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import block_layout

if TYPE_CHECKING:
    from torch import Tensor

    from neuraldbg.capture.statistics.device.block_layout import Blocks

# Triton reads globals only if they are constexpr.
LANES = tl.constexpr(block_layout.LANES)
ROWS = tl.constexpr(8)
"""Blocks that a program reads at once: 8 elements for each of its 128 threads."""
SPAN = tl.constexpr(64)
"""Blocks of one tensor that one program of a launch over many tensors reads."""
PLAN = tl.constexpr(9)
"""Numbers that describe one tensor of a launch over many, see ``plan_row``."""
WIDTH = tl.constexpr(operation.WIDTH)
TOTAL, COUNT, NONFINITE = (
    tl.constexpr(operation.TOTAL),
    tl.constexpr(operation.COUNT),
    tl.constexpr(operation.NONFINITE),
)
SUM, SQUARES, MIN, MAX = (tl.constexpr(c) for c in (operation.SUM, operation.SQUARES, operation.MIN, operation.MAX))
ZEROS, SATURATED = tl.constexpr(operation.ZEROS), tl.constexpr(operation.SATURATED)
UNDER, OVER = tl.constexpr(operation.UNDER), tl.constexpr(operation.OVER)
HALF_UNDER, HALF_OVER = tl.constexpr(operation.HALF_UNDER), tl.constexpr(operation.HALF_OVER)

_PROGRAMS = 1024
"""Programs of one launch at most; beyond that each reads several tiles."""
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}
"""Launch options, fixed because Triton's default changes in 3.10. Squares of narrow numbers are exact in float64."""
_DTYPES = {
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}

# -- parts of both kernels --------------------------------------------------------------------------------------


@triton.jit
def _places(first, total, size, step, end):
    """Return the offsets of the elements of ROWS blocks, shape (ROWS, LANES), and the mask of those that exist."""
    v, c = first + tl.arange(0, ROWS), tl.arange(0, LANES)
    at = (v.to(tl.int64) * step)[:, None] + c[None, :]
    return at, (v < total)[:, None] & (c < size)[None, :] & (at < end)


@triton.jit
def _begin(WIDE: tl.constexpr):
    """Return empty accumulators, one for each place of a tile."""
    sums = tl.zeros((ROWS, LANES), tl.float64)
    count = tl.zeros((ROWS, LANES), tl.int32)
    low = tl.full((ROWS, LANES), float("inf"), tl.float64 if WIDE else tl.float32)
    return sums, sums, low, -low, count, count, count, count, count


@triton.jit
def _read(
    x, there, sums, squares, low, high, nonfinite, zeros, far, under, over, BOUND: tl.constexpr, CENTRE: tl.constexpr
):
    """Add a tile of values, float32 or float64. NaN compares as false, so it is neither finite nor far."""
    size = tl.abs(x)
    finite = there & (size < float("inf"))
    wide = tl.where(finite, x, 0.0).to(tl.float64)
    sums += wide
    squares += wide * wide
    low = tl.minimum(low, tl.where(finite, x, float("inf")))
    high = tl.maximum(high, tl.where(finite, x, -float("inf")))
    nonfinite += (there ^ finite).to(tl.int32)
    zeros += (there & (x == 0.0)).to(tl.int32)
    under += (finite & (x != 0.0) & (size <= HALF_UNDER)).to(tl.int32)
    over += (finite & (size >= HALF_OVER)).to(tl.int32)
    if BOUND > 0.0:
        far += (there & (tl.abs(x - CENTRE) > BOUND)).to(tl.int32)
    return sums, squares, low, high, nonfinite, zeros, far, under, over


@triton.jit
def _add(row, total, count, sums, squares, low, high, nonfinite, zeros, far, under, over):
    """Add accumulators to a row with atomics: other programs may write to it at the same time."""
    lane = tl.arange(0, 16)
    part = tl.where(lane == TOTAL, total.to(tl.float64), 0.0)
    part = tl.where(lane == COUNT, count.to(tl.float64), part)
    part = tl.where(lane == SUM, tl.sum(tl.sum(sums, 1), 0), part)
    part = tl.where(lane == SQUARES, tl.sum(tl.sum(squares, 1), 0), part)
    part = tl.where(lane == NONFINITE, tl.sum(tl.sum(nonfinite, 1), 0).to(tl.float64), part)
    part = tl.where(lane == ZEROS, tl.sum(tl.sum(zeros, 1), 0).to(tl.float64), part)
    part = tl.where(lane == SATURATED, tl.sum(tl.sum(far, 1), 0).to(tl.float64), part)
    part = tl.where(lane == UNDER, tl.sum(tl.sum(under, 1), 0).to(tl.float64), part)
    part = tl.where(lane == OVER, tl.sum(tl.sum(over, 1), 0).to(tl.float64), part)
    tl.atomic_add(row + lane, part, mask=(part != 0.0) & (lane < WIDTH), sem="relaxed")
    least, most = tl.min(tl.min(low, 1), 0).to(tl.float64), tl.max(tl.max(high, 1), 0).to(tl.float64)
    # Before 3.4 Triton took -0.0 for minus infinity in these atomics (triton-lang/triton#6376), so it becomes +0.0.
    least, most = tl.where(least == 0.0, 0.0, least), tl.where(most == 0.0, 0.0, most)
    tl.atomic_min(row + MIN, least, mask=least < float("inf"), sem="relaxed")
    tl.atomic_max(row + MAX, most, mask=most > -float("inf"), sem="relaxed")


# -- one tensor -------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["row", "numel", "count", "size", "step", "end", "total"])
def _one(
    x,
    table,
    row: tl.int64,
    numel: tl.int64,
    count: tl.int64,
    size: tl.int64,
    step: tl.int64,
    end: tl.int64,
    total: tl.int64,
    WIDE: tl.constexpr,
    BOUND: tl.constexpr,
    CENTRE: tl.constexpr,
):
    pid = tl.program_id(0)
    sums, squares, low, high, nonfinite, zeros, far, under, over = _begin(WIDE)
    for first in range(pid * ROWS, total, tl.num_programs(0) * ROWS):
        at, there = _places(first, total, size, step, end)
        values = tl.load(x + at, mask=there, other=0.0).to(tl.float64 if WIDE else tl.float32)
        sums, squares, low, high, nonfinite, zeros, far, under, over = _read(
            values, there, sums, squares, low, high, nonfinite, zeros, far, under, over, BOUND, CENTRE
        )
    # The first program alone adds the counts: they are per tensor, and each program would add them again.
    once = (pid == 0).to(tl.int64)
    _add(
        table + row * WIDTH,
        once * numel,
        once * count,
        sums,
        squares,
        low,
        high,
        nonfinite,
        zeros,
        far,
        under,
        over,
    )


def one(x: Tensor, numel: int, places: Blocks, table: Tensor, row: int, bound: float, centre: float) -> None:
    """Add the statistics of dense memory to a row; ``numel`` is added to the row's total."""
    programs = min(-(-places.total // ROWS.value), _PROGRAMS)
    count, size, step, end, total = places
    wide = x.dtype is torch.float64
    args = (x, table, row, numel, count, size, step, end, total, wide, float(bound), float(centre))
    with _on(x.device):
        # Triton compiles for the types of arguments, constants, and whether the addresses are aligned.
        key = (x.dtype, x.data_ptr() % 16 == 0, table.data_ptr() % 16 == 0, bound, centre, x.device)
        _launch(_one, key, programs, args)


# -- many tensors -----------------------------------------------------------------------------------------------

OBSERVE, KEEP, SUBTRACT = range(3)
"""Modes of a launch: read; read and keep the values; read the difference from the kept values."""


def plan_row(numel: int, places: Blocks, rows: tuple[int, int], kept: int) -> tuple[int, ...]:
    """Return the numbers that describe one tensor: ``rows`` for its values and for its difference from the kept values,
    ``kept`` the offset of those in the arena.
    """
    return (numel, *places, kept, *rows)


def spans(places: Blocks) -> range:
    """Return the first block of each program that reads a tensor."""
    return range(0, places.total, SPAN.value)


@triton.jit(do_not_specialize=["turn"])
def _many(
    table,
    addresses,
    plans,
    work,
    kept,
    turn: tl.int64,
    DTYPE: tl.constexpr,
    WIDE: tl.constexpr,
    MODE: tl.constexpr,
):
    tensor = tl.load(work + 2 * tl.program_id(0)).to(tl.int64)
    begin = tl.load(work + 2 * tl.program_id(0) + 1)
    address = tl.load(addresses + tensor)
    if address != 0:
        x = address.to(tl.pointer_type(DTYPE))
        plan = plans + tensor * PLAN
        size, step = tl.load(plan + 2), tl.load(plan + 3)
        end, total = tl.load(plan + 4), tl.load(plan + 5)
        # The blocks of a sample advance by their size at each turn; the last one would then reach beyond the end.
        moved = turn % tl.maximum((step + size - 1) // size, 1)
        moved = tl.where((total > 1) & (step > size), moved, 0)
        less = (moved > 0).to(tl.int64)
        x += tl.minimum(moved * size, step - size) * less
        total -= less
        # Each block has its own LANES places in the arena, so the same program finds its kept values again.
        old = kept + tl.load(plan + 6)
        sums, squares, low, high, nonfinite, zeros, far, under, over = _begin(WIDE)
        for first in range(begin, tl.minimum(begin + SPAN, total), ROWS):
            at, there = _places(first, total, size, step, end)
            values = tl.load(x + at, mask=there, other=0.0).to(tl.float64 if WIDE else tl.float32)
            slot = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None] * LANES + tl.arange(0, LANES)[None, :]
            if MODE == 1:
                tl.store(old + slot, values, mask=there)
            if MODE == 2:
                values -= tl.load(old + slot, mask=there, other=0.0)
            sums, squares, low, high, nonfinite, zeros, far, under, over = _read(
                values, there, sums, squares, low, high, nonfinite, zeros, far, under, over, 0.0, 0.0
            )
        # The program of the first span alone adds the counts: they are per tensor.
        once = (begin == 0).to(tl.int64)
        _add(
            table + tl.load(plan + (8 if MODE == 2 else 7)) * WIDTH,
            once * tl.load(plan),
            once * (tl.load(plan + 1) - less * size),
            sums,
            squares,
            low,
            high,
            nonfinite,
            zeros,
            far,
            under,
            over,
        )


def many(
    table: Tensor,
    addresses: Tensor,
    plans: Tensor,
    work: Tensor,
    kept: Tensor,
    dtype: torch.dtype,
    mode: int,
    turn: int,
) -> None:
    """Read many tensors of one dtype in one launch; address 0 is skipped. The blocks of a sample advance with ``turn``.

    ``addresses`` int64 (tensors,), ``plans`` int64 (tensors, PLAN), ``work`` int32 (programs, 2): tensor and first
    block, ``kept`` float32 (float64 for that dtype), all on the table's device.
    """
    wide = dtype is torch.float64
    with _on(table.device):
        args = (table, addresses, plans, work, kept, turn, _DTYPES[dtype], wide, mode)
        _many[(work.shape[0],)](*args, **_OPTIONS)


@triton.jit
def _clear(table, addresses, plans, MODE: tl.constexpr):
    tensor = tl.program_id(0).to(tl.int64)
    if tl.load(addresses + tensor) != 0:
        lane = tl.arange(0, 16)
        blank = tl.where(lane == MIN, float("inf"), tl.where(lane == MAX, -float("inf"), 0.0)).to(tl.float64)
        row = tl.load(plans + tensor * PLAN + (8 if MODE == 2 else 7))
        tl.store(table + row * WIDTH + lane, blank, mask=lane < WIDTH)


def clear(table: Tensor, addresses: Tensor, plans: Tensor, mode: int) -> None:
    """Clear the rows that ``many`` adds to in this mode."""
    with _on(table.device):
        _clear[(plans.shape[0],)](table, addresses, plans, mode, **_OPTIONS)


# -- launching --------------------------------------------------------------------------------------------------


def _takes_constants() -> bool:
    """Return True if a compiled kernel is launched with all arguments, constants too: not before Triton 3.3."""
    try:
        return "*bound_args.values()" in inspect.getsource(triton.runtime.JITFunction.run)
    except (AttributeError, OSError):
        return False


_DIRECT = _takes_constants()
_compiled: dict[tuple[object, ...], Any] = {}
"""Cache of compiled kernels: Triton's own launch path took 47 us of the thread, this 4, with a driver that launches
nothing."""


def _launch(kernel: Any, key: tuple[object, ...], programs: int, args: tuple[object, ...]) -> None:
    """Launch a kernel that was compiled for such arguments, or compile and launch it."""
    known = _compiled.get(key)
    if known is not None:
        known[programs, 1, 1](*args)
        return
    known = kernel[programs,](*args, **_OPTIONS)
    if _DIRECT and known is not None:  # the interpreter returns None
        _compiled[key] = known


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which ``device`` is current: Triton launches on the current device and stream."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return _HERE
    return torch.cuda.device(device)


_HERE = nullcontext()
