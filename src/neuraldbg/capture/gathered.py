"""All gradients that a compiled graph samples, read by one operator when the last of them is there, or ``TOGETHER``.

A gradient in, at a tap; one call of ``observe_gradients`` out, with the samples of all taps that got one. Both
operators here are run while AOT autograd traces forward and backward pass as one, and are not in what it makes: taps
take a token, made once a trace, whose own backward can only come after theirs, and finds what they have put aside. A
tap that gets no gradient puts nothing aside: none is not zero. Outside of such a trace, as with the backend "eager",
each gradient is read when it comes.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import Tensor

TOGETHER = 32
"""Samples that one operator reads. All of a deep model's would take the place of what the model itself works on in the
processor's caches, and keep the compiler from using memory again."""


class _Gathered:
    """What one trace has put aside."""

    def __init__(self) -> None:
        self.tokens: dict[int, Tensor] = {}
        """By handle."""
        self.samples: dict[int, list[tuple[Tensor, int, Any]]] = {}
        """By handle: sample, row and elements of what it is a sample of."""
        self.zeros: dict[int, list[Tensor]] = {}
        """By handle: what the operator has returned so far. Their sum is returned: compilers leave out what is not."""


_traces: weakref.WeakKeyDictionary[Any, _Gathered] = weakref.WeakKeyDictionary()


def _gathered() -> _Gathered | None:
    tracing = sys.modules.get("torch.fx.experimental.proxy_tensor")  # slow to import, and what traces has done it
    trace = tracing.get_proxy_mode() if tracing is not None else None
    return None if trace is None else _traces.setdefault(trace, _Gathered())


class _Reader(torch.autograd.Function):
    """What makes a token of a leaf. The gradient of the leaf is a zero."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, handle: int) -> Tensor:
        ctx.handle = handle
        return leaf.clone()

    @staticmethod
    def backward(ctx: Any, zero: Tensor) -> tuple[Tensor, None]:
        here = _gathered()
        if here is None:
            return zero, None
        taken, zeros = here.samples.pop(ctx.handle, []), here.zeros.pop(ctx.handle, [])
        zeros += [_read(taken, ctx.handle)] if taken else []
        return (sum(zeros[1:], zeros[0]) if zeros else zero), None


def _read(taken: list[tuple[Tensor, int, Any]], handle: int) -> Tensor:
    samples, rows, totals = (list(each) for each in zip(*taken, strict=True))
    zero: Tensor = torch.ops.neuraldbg.observe_gradients.default(samples, handle, rows, totals)
    return zero


def _token(leaf: Tensor, handle: int) -> Tensor:
    here = _gathered()
    if here is None:
        return leaf.clone()
    if handle not in here.tokens:
        here.tokens[handle] = _Reader.apply(leaf, handle)  # type: ignore[no-untyped-call]
    return here.tokens[handle]


def _gather(grad: Tensor, handle: int, row: int, cap: int) -> Tensor:
    here = _gathered()
    taken = torch.ops.neuraldbg.sample.default(grad, cap), row, grad.numel()
    if here is None:
        return _read([taken], handle)
    kept = here.samples.setdefault(handle, [])
    kept.append(taken)
    if len(kept) >= TOGETHER:
        here.zeros.setdefault(handle, []).append(_read(here.samples.pop(handle), handle))
    return torch.zeros((), dtype=torch.float32, device="cpu")


_LIBRARY = torch.library.Library("neuraldbg", "FRAGMENT")
_LIBRARY.define("token(Tensor leaf, int handle) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.define("gather(Tensor grad, int handle, int row, int cap) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("token", _token, "CompositeImplicitAutograd")
_LIBRARY.impl("gather", _gather, "CompositeImplicitAutograd")
token = torch.ops.neuraldbg.token.default
gather = torch.ops.neuraldbg.gather.default
