"""Taps on tensors of a compiled graph: their gradients are sampled, and all samples are read by one operator.

A tap is an operator that Dynamo does not trace into, however many layers have one. Only where AOT autograd traces
forward and backward pass together does it become an identity whose backward stores a sample. One call of
``observe_gradients`` reads the samples of all taps that got a gradient, after the last of them, or after ``TOGETHER``:
taps take a token, made once per trace, whose own backward can only run after theirs, and finds the stored samples. A
tap that gets no gradient stores nothing: no gradient is not a zero gradient. Outside of such a trace, as with the
backend "eager", each gradient is read when it arrives. ``keep`` and ``look`` do the same for outputs: they pass a
sample, or, of a tensor no longer than its sample, a copy, which the compiler elides.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.compiled.operators import SOURCE, observe, observe_gradient_at, observe_gradients, sample, whole
from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from collections.abc import Callable

TOGETHER = 32
"""Samples that one operator reads at most. All samples of a deep model would displace the model's own data from the
processor's caches, and keep the compiler from reusing memory."""


class _Gathered:
    """The samples that one AOT autograd trace has stored."""

    def __init__(self) -> None:
        self.tokens: dict[int, Tensor] = {}
        """Tokens by handle."""
        self.samples: dict[int, list[tuple[Tensor, int, Any]]] = {}
        """By handle: (sample, row, elements of the sampled tensor)."""
        self.copies: dict[int, tuple[Tensor, Tensor]] = {}
        """By identity of an output's sample: (that sample, the copy read in its place)."""
        self.zeros: dict[int, list[Tensor]] = {}
        """By handle: the operator's results so far. Their sum is returned: compilers drop unused results."""


_traces: weakref.WeakKeyDictionary[Any, _Gathered] = weakref.WeakKeyDictionary()


def gathered() -> _Gathered | None:
    """Return what is gathered for the graph being traced, None outside of one."""
    tracing = sys.modules.get("torch.fx.experimental.proxy_tensor")  # slow to import, and a trace has imported it
    trace = tracing.get_proxy_mode() if tracing is not None else None
    return None if trace is None else _traces.setdefault(trace, _Gathered())


class _Tap(torch.autograd.Function):
    """Identity whose backward samples the gradient, because a tensor hook would break the graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, handle: int, row: int, cap: int) -> Tensor:
        ctx.handle, ctx.row, ctx.cap = handle, row, cap
        return x.clone()  # returning the input itself would break in-place operations after it

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        return grad, _gather(grad, ctx.handle, ctx.row, ctx.cap), None, None, None


class _TapAt(torch.autograd.Function):
    """The same identity where the row is data, and the gradient is read at once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, leaf: Tensor, places: Tensor, handle: int, cap: int) -> Tensor:
        ctx.handle, ctx.cap = handle, cap
        ctx.save_for_backward(places)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (places,) = ctx.saved_tensors
        read = observe_gradient_at(sample(grad, ctx.cap), ctx.handle, places, grad.numel())
        return grad, read, None, None, None


class _Reader(torch.autograd.Function):
    """Makes a token of a leaf; its backward reads the stored samples, and returns a zero as the leaf's gradient."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, handle: int) -> Tensor:
        ctx.handle = handle
        return leaf.clone()

    @staticmethod
    def backward(ctx: Any, zero: Tensor) -> tuple[Tensor, None]:
        here = gathered()
        if here is None:
            return zero, None
        taken, zeros = here.samples.pop(ctx.handle, []), here.zeros.pop(ctx.handle, [])
        zeros += [read_taken(taken, ctx.handle)] if taken else []
        return (sum(zeros[1:], zeros[0]) if zeros else zero), None


def read_taken(taken: list[tuple[Tensor, int, Any]], handle: int) -> Tensor:
    """Read samples of gradients by one operator, each with its row and the number of its elements. Return its zero."""
    samples, rows, totals = (list(each) for each in zip(*taken, strict=True))
    zero: Tensor = observe_gradients(samples, handle, rows, totals)
    return zero


def _token(leaf: Tensor, handle: int) -> Tensor:
    here = gathered()
    if here is None:
        return leaf.clone()
    if handle not in here.tokens:
        here.tokens[handle] = _Reader.apply(leaf, handle)  # type: ignore[no-untyped-call]
    return here.tokens[handle]


def _gather(grad: Tensor, handle: int, row: int, cap: int) -> Tensor:
    here = gathered()
    if here is None:
        return read_taken([(sample(grad, cap), row, grad.numel())], handle)
    copy = whole(grad, cap)
    taken = sample(grad, cap) if copy is None else copy, row, grad.numel()
    kept = here.samples.setdefault(handle, [])
    kept.append(taken)
    if len(kept) >= TOGETHER:
        here.zeros.setdefault(handle, []).append(read_taken(here.samples.pop(handle), handle))
    return torch.zeros((), dtype=torch.float32, device="cpu")


def _keep(x: Tensor, cap: int) -> Tensor:
    taken: Tensor = sample(x, cap)
    here = gathered()
    copy = whole(x, cap) if here is not None else None
    if here is not None and copy is not None:
        here.copies[id(taken)] = taken, copy
    return taken


def _look(
    xs: list[Tensor], table: Tensor, handle: int, rows: list[int], totals: list[int], bounds: list[float]
) -> None:
    here = gathered()
    if here is not None:
        xs = [here.copies.get(id(x), (x, x))[1] for x in xs]
    observe(xs, table, handle, rows, totals, bounds)


def _tap(x: Tensor, leaf: Tensor, handle: int, row: int, cap: int) -> Tensor:
    if operation.transforming():  # custom autograd functions do not work inside a function transform
        return x.clone()
    out: Tensor = _Tap.apply(x, _token(leaf, handle), handle, row, cap)  # type: ignore[no-untyped-call]
    return out


def _tap_at(x: Tensor, leaf: Tensor, places: Tensor, handle: int, cap: int) -> Tensor:
    if operation.transforming():
        return x.clone()
    out: Tensor = _TapAt.apply(x, leaf, places, handle, cap)  # type: ignore[no-untyped-call]
    return out


def _defined(name: str, takes: str, does: Callable[..., Any]) -> Any:
    """Define an operator that decomposes while AOT autograd traces."""
    named = f"{name}_{SOURCE}"
    _LIBRARY.define(named + takes, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(named, does, "CompositeImplicitAutograd")
    return getattr(torch.ops.neuraldbg, named).default


_LIBRARY = torch.library.Library("neuraldbg", "FRAGMENT")
keep = _defined("keep", "(Tensor x, int cap) -> Tensor", _keep)
look = _defined(
    "look", "(Tensor[] xs, Tensor(a!) table, int handle, int[] rows, SymInt[] totals, float[] bounds) -> ()", _look
)
tap = _defined("tap", "(Tensor x, Tensor leaf, int handle, int row, int cap) -> Tensor", _tap)
tap_at = _defined("tap_at", "(Tensor x, Tensor leaf, Tensor places, int handle, int cap) -> Tensor", _tap_at)
