"""The one statistics operation, ``neuraldbg::observe``: a tensor in, one row of a table grows.

Eager hooks call ``observe_cpu`` or ``observe_device`` directly; a graph traced by torch.compile holds the operator,
which declares that it mutates the table, so the compiler neither drops it nor breaks the graph. A row accumulates over
the calls of one step, so micro-batches and repeated calls need no bookkeeping here.

The raw columns, float64: total, count, nonfinite, sum, sum of squares, min, max, zeros, saturated, and the elements
that half precision would round to zero (under) or to infinity (over).
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from neuraldbg.capture.kernel import CODES, dense, native

if TYPE_CHECKING:
    import numpy.typing as npt

TOTAL, COUNT, NONFINITE, SUM, SQUARES, MIN, MAX, ZEROS, SATURATED, UNDER, OVER = range(11)
WIDTH = 11
SUMMED = (TOTAL, COUNT, NONFINITE, SUM, SQUARES, ZEROS, SATURATED, UNDER, OVER)
"""Columns that are added where two rows are put together."""
BLOCK = 128
"""Elements of one contiguous block: eight cache lines, so that a sample of a few thousand spreads over the tensor."""

HALF_UNDER, HALF_OVER = 2.0**-25, 65520.0
"""IEEE 754 binary16, rounding to nearest even: magnitudes up to 2**-25 become zero, from 65,520 on they are infinite.
"""


ROW = WIDTH * 8
"""Bytes of a row."""
BLANK = np.zeros(WIDTH)
"""A row before anything was read into it."""
BLANK[MIN], BLANK[MAX] = np.inf, -np.inf


class Rows(NamedTuple):
    """A table on the CPU: as numpy sees it, and where the kernel finds it."""

    values: npt.NDArray[np.float64]
    """Shape (rows, WIDTH)."""
    address: int


def rows_of(table: Tensor) -> Rows:
    """Return how a CPU table of shape (rows, WIDTH) is written to."""
    return Rows(table.numpy(), table.data_ptr())


def sample(x: Tensor, cap: int) -> Tensor:
    """Return a 1-D tensor of at most about ``cap`` elements of ``x``, in evenly spaced contiguous blocks.

    A small tensor comes back whole. Deterministic, draws no random numbers, and never copies more than it returns.
    """
    numel = x.numel()
    if numel <= cap:
        return x.reshape(-1)
    if not x.is_contiguous() and dense(x):  # another memory format: blocks of what lies together
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


_READABLE = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
ORDINARY = (Tensor, torch.nn.Parameter)


def observable(x: object) -> TypeGuard[Tensor]:
    """Whether the statistics of ``x`` can be read: a dense, real, non-empty tensor with storage."""
    return (
        isinstance(x, Tensor)
        and x.dtype in _READABLE
        and x.layout is torch.strided
        and x.numel() > 0
        and not x.is_meta
        and (type(x) in ORDINARY or not x.is_quantized)
        and not wrapped(x)
    )


# Tensors inside vmap, grad and jvp stand for many values and have no storage of their own.
wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 (no public name)


def transforming() -> bool:
    """Whether we are inside a function transform, where even plain operations are not what they seem."""
    return torch._C._functorch.maybe_current_level() is not None  # noqa: SLF001 (no public name)


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
    flat = sample(x, cap or numel).contiguous()
    native.observe(flat.data_ptr(), CODES[x.dtype], flat.numel(), 0, address, bound, centre)
    rows.values[row, TOTAL] += numel - flat.numel()


def _observe(x: Tensor, row: npt.NDArray[np.float64], cap: int, bound: float, centre: float) -> None:
    """Do the same with torch's and numpy's operators."""
    flat = sample(in_memory_order(x), cap or x.numel())
    if flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    if bound:
        row[SATURATED] += int(torch.count_nonzero((flat - centre).abs() > bound))
    wide = flat.double().numpy()
    size = np.abs(wide)
    finite = np.isfinite(wide)
    row[TOTAL] += x.numel()
    row[COUNT] += wide.size
    row[ZEROS] += np.count_nonzero(wide == 0)
    row[UNDER] += np.count_nonzero((size <= HALF_UNDER) & (wide != 0))
    row[OVER] += np.count_nonzero((size >= HALF_OVER) & finite)
    if not finite.all():
        row[NONFINITE] += np.count_nonzero(~finite)
        wide = wide[finite]
    if wide.size:
        row[SUM] += np.add.reduce(wide)
        row[SQUARES] += np.dot(wide, wide)
        row[MIN] = min(row[MIN], np.minimum.reduce(wide))
        row[MAX] = max(row[MAX], np.maximum.reduce(wide))


def in_memory_order(x: Tensor) -> Tensor:
    """Return a dense tensor as it lies in memory, 1-D, so that a sample of it is the same whoever takes it."""
    return x.as_strided((x.numel(),), (1,), x.storage_offset()) if dense(x) else x


def observe_device(x: Tensor, table: Tensor, row: int, cap: int, bound: float = 0.0, centre: float = 0.0) -> None:
    """Add the statistics of a tensor on any device to ``table[row]`` on the same device, without a synchronisation."""
    flat = sample(x, cap)
    wide = flat.double() if flat.device.type != "mps" else flat.float()
    finite = wide.isfinite()
    safe = torch.where(finite, wide, 0)
    inf = float("inf")
    far = ((wide - centre).abs() > bound).sum() if bound else finite.new_zeros((), dtype=torch.int64)
    new = torch.stack(
        [
            wide.new_full((), float(x.numel())),  # a fill: a number sent over would be waited for
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
    old = table[row]
    summed = old + new
    summed[MIN] = torch.minimum(old[MIN], new[MIN])
    summed[MAX] = torch.maximum(old[MAX], new[MAX])
    table[row] = summed


def _observe_op(x: Tensor, table: Tensor, row: int, cap: int, bound: float, centre: float) -> None:
    """Operator form for compiled graphs; ``table`` has shape (rows, WIDTH)."""
    if table.data_ptr() in _resting or x.numel() == 0 or not x.dtype.is_floating_point:
        return
    if x.device.type == "cpu":
        observe_cpu(x, rows_of(table), row, cap, bound, centre)
    else:
        observe_device(x, table, row, cap, bound, centre)


def _observe_gradient_op(grad: Tensor, handle: int, row: int, cap: int) -> Tensor:
    """Read a gradient on its way. Returns a zero to be subtracted from it, so that no compiler can leave this out.

    The table is named by its handle: a tensor saved for backward may not be written to before it is used.
    """
    table = _tables.get(handle) if handle not in _resting else None
    if table is not None and grad.numel() and grad.dtype.is_floating_point:
        if grad.device.type == "cpu":
            observe_cpu(grad, rows_of(table), row, cap)
        elif table.device == grad.device:
            observe_device(grad, table, row, cap)
    return grad.new_zeros(())


# Defined without torch.library.custom_op, whose checks at each call take several times as long as all that is done.
_LIBRARY = torch.library.Library("neuraldbg", "DEF")
# Both read any layout: told so, the compiler copies no activation into the layout that eager mode would give it.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_LIBRARY.define("observe(Tensor x, Tensor(a!) table, int row, int cap, float bound, float centre) -> ()", tags=_TAGS)
_LIBRARY.define("observe_gradient(Tensor grad, int handle, int row, int cap) -> Tensor", tags=_TAGS)
_LIBRARY.impl("observe", _observe_op, "CompositeExplicitAutograd")
_LIBRARY.impl("observe_gradient", _observe_gradient_op, "CompositeExplicitAutograd")
observe = torch.ops.neuraldbg.observe.default
observe_gradient = torch.ops.neuraldbg.observe_gradient.default


def _no_result(x: Tensor, table: Tensor, row: int, cap: int, bound: float, centre: float) -> None:
    return None


def _a_zero(grad: Tensor, handle: int, row: int, cap: int) -> Tensor:
    return grad.new_empty(())


torch.library.register_fake("neuraldbg::observe", _no_result, lib=_LIBRARY)
torch.library.register_fake("neuraldbg::observe_gradient", _a_zero, lib=_LIBRARY)


class _Tap(torch.autograd.Function):
    """Identity whose backward reads the gradient: how a traced graph sees it, where a tensor hook would break it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, handle: int, row: int, cap: int) -> Tensor:
        ctx.handle, ctx.row, ctx.cap = handle, row, cap
        return x.clone()  # returning the input itself would break in-place operations after it

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        # x - 0 is x for every x, -0 and NaN included, and costs nothing where the compiler fuses it with what follows.
        return grad - observe_gradient(grad, ctx.handle, ctx.row, ctx.cap), None, None, None


def tap(x: Tensor, handle: int, row: int, cap: int) -> Tensor:
    """Return ``x`` unchanged, arranged so that its gradient is read in backward; for traced graphs."""
    return _Tap.apply(x, handle, row, cap)  # type: ignore[no-any-return,no-untyped-call]


# Tables by handle, for as long as their session keeps them: a compiled graph can hold a number, not an object.
_tables: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
_handles = itertools.count()
_resting: set[int] = set()
"""Handles and addresses of tables that take nothing now. A compiled graph holds the operator in light steps, too: a
flag that the graph itself could see would have it compiled once more.
"""


def resting(handle: int) -> bool:
    """Whether the table of a handle takes nothing now."""
    return handle in _resting


def rest(table: Tensor, handle: int, *, resting: bool) -> None:
    """Let compiled graphs pass by a table for some steps, or write to it again."""
    for key in (table.data_ptr(), handle):
        _resting.add(key) if resting else _resting.discard(key)


def handle_of(table: Tensor) -> int:
    """Give a table the number by which compiled backward graphs find it."""
    handle = next(_handles)
    _tables[handle] = table
    return handle
