"""``neuraldbg::observe_there``: the operator by which a compiled graph reads tensors of another device into its table.

A tensor in; a zero out, to be subtracted from it. By its schema the operator mutates nothing: the table is found by the
number of its session, and is no input of the graph. A mutated input would make inductor give up CUDA graphs, or have to
be a tensor at a fixed address that is known when the graph is traced, before the model's device is. The zero keeps the
operator from being dropped; x - 0 is x for every x, -0 and NaN included.

A replayed CUDA graph runs no Python: it goes on writing to the table, at the address that it was captured with. So
light steps cannot stop it; the table is cleared when full steps begin again.
"""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.statistics.device import table as device

if TYPE_CHECKING:
    from torch import Tensor

    from neuraldbg.capture.statistics.table import Table

_tables: weakref.WeakValueDictionary[int, Table] = weakref.WeakValueDictionary()
"""Tables by handle, for as long as their session keeps them."""


def register(handle: int, table: Table) -> None:
    """Register a session's table under its handle, for compiled graphs on other devices."""
    _tables[handle] = table


def _observe_there(x: Tensor, handle: int, row: int, cap: int, bound: float, centre: float) -> Tensor:
    table = _tables.get(handle)
    # A CUDA graph captured without this reading would never read, even in full steps.
    awake = table is not None and (not table.resting or device.capturing(x.device))
    if table is not None and table.strangers and get_ident() in table.strangers:
        return x.new_zeros(())
    if table is not None and awake and x.numel() and x.dtype.is_floating_point:
        there = table.for_graph(x.device)
        if there is not None:
            there.observe(x.detach(), row, cap, bound, centre)
    return x.new_zeros(())


_LIBRARY = torch.library.Library("neuraldbg", "FRAGMENT")
_LIBRARY.define(
    "observe_there(Tensor x, int handle, int row, int cap, float bound, float centre) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
)
_LIBRARY.impl("observe_there", _observe_there, "CompositeExplicitAutograd")
_there = torch.ops.neuraldbg.observe_there.default


def observe_there(x: Tensor, handle: int, row: int, cap: int, bound: float = 0.0, centre: float = 0.0) -> Tensor:
    """Call ``neuraldbg::observe_there``; return a zero, shape ()."""
    zero: Tensor = _there(x, handle, row, cap, bound, centre)
    return zero


def _a_zero(x: Tensor, handle: int, row: int, cap: int, bound: float, centre: float) -> Tensor:
    return x.new_empty(())


torch.library.register_fake("neuraldbg::observe_there", _a_zero, lib=_LIBRARY)


class _Tap(torch.autograd.Function):
    """An identity that reads its input, and in backward the gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, handle: int, rows: tuple[int, int], cap: int, bounds: tuple[float, float]
    ) -> Tensor:
        ctx.handle, ctx.row, ctx.cap = handle, rows[1], cap
        return x - observe_there(x.detach(), handle, rows[0], cap, *bounds)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        return grad - observe_there(grad, ctx.handle, ctx.row, ctx.cap), None, None, None, None


def tap(x: Tensor, handle: int, rows: tuple[int, int], cap: int, bounds: tuple[float, float]) -> Tensor:
    """Return ``x`` unchanged, read into the first of the rows, with its gradient read into the second (-1 for none);
    for traced graphs.
    """
    if x.requires_grad and rows[1] >= 0:
        return _Tap.apply(x, handle, rows, cap, bounds)  # type: ignore[no-any-return,no-untyped-call]
    return x - observe_there(x.detach(), handle, rows[0], cap, *bounds)
