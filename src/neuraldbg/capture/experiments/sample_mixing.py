"""The layer and the operation where samples of a batch first mix: a change of one sample first shows there in the part
of another.

The copy of a model and a changed input enter, the layer's path and the line of the user's code leave.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg.capture.guest.module_tree import add_hook, children, own_parameters, walk
from neuraldbg.capture.guest.program_objects import name_of
from neuraldbg.capture.guest.purity import Unfit
from neuraldbg.capture.guest.user_code import Place, user_place
from neuraldbg.capture.statistics.nested_tensors import leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.capture.experiments.experiment import Bench

_TENSORS = 512
_ELEMENTS = 1_000_000
_OPERATIONS = 4096
_HELD = 30_000_000
"""Limits of the search: the tensors of a pass are kept for a moment."""
_TURNS = frozenset({"transpose", "permute", "t"})
"""Operations that change the order of axes."""
_SAME = 1e-2
"""Change of a row by its place in the batch, relative to the largest number, up to which it is none."""
_NOISE = 1e-5
"""Change relative to the largest one, below which it is rounding."""


class Flow(NamedTuple):
    """One tensor that went into a layer, or came out of it."""

    layer: str
    type: str
    at: str
    """``input`` or ``output``."""
    value: Tensor


class Made(NamedTuple):
    """One tensor that an operation of the pass returned."""

    op: str
    where: Place | None
    value: Tensor


def meeting(bench: Bench, change: Callable[[str, Tensor], Tensor], j: int, n: int) -> dict[str, Any] | None:
    """Return layer, type and side ("input", "output") at which sample j of n first changes others, with the operation
    and its line. Where the samples stay apart, but lie along another axis in the end than in the beginning, these are
    of the operation that put them there. None if neither is found.
    """
    try:
        (flows, before), (changed, after) = _pass(bench, None), _pass(bench, change)
    except Unfit:  # no time is left: the mixing itself is known all the same
        return None
    layer, (op, swapped) = _layer(flows, changed, j, n), _operation(before, after, j, n)
    if layer is None and (op is None or not swapped):
        return None
    found: dict[str, Any] = {**(layer or {"layer": "", "type": "", "at": "input"}), "swapped": swapped}
    if op is not None:
        found |= {"op": op.op, "where": list(op.where) if op.where else None}
    return found


def _layer(before: list[Flow], after: list[Flow], j: int, n: int) -> dict[str, str] | None:
    """Return the first layer whose input or output holds a change outside of the part of sample j."""
    if [flow[:3] for flow in before] != [flow[:3] for flow in after] or len(before) >= _TENSORS:
        return None
    for one, other in zip(before, after, strict=True):
        if one.value.shape != other.value.shape:
            return None
        moved = (other.value.double() - one.value.double()).abs()  # 8-bit dtypes have no addition
        if bool(moved.isfinite().all()) and not confined(moved, j, n):
            return {"layer": one.layer, "type": one.type, "at": one.at}
    return None


def _operation(before: list[Made], after: list[Made], j: int, n: int) -> tuple[Made | None, bool]:
    """Return the first operation whose result holds a change outside of the part of sample j, and False; or the one
    that turned the samples away from axis 0 for good, and True.
    """
    if [made[:2] for made in before] != [made[:2] for made in after]:
        return None, False
    away: list[Made] = []
    for one, other in zip(before, after, strict=True):
        if one.value.shape != other.value.shape:
            return None, False
        moved = (other.value.double() - one.value.double()).abs()
        if not bool(moved.isfinite().all()):
            return None, False
        if not bool((moved > 0).any()) or not moved.dim():
            continue
        if not confined(moved, j, n):
            return one, False
        if moved.shape[0] % n == 0 and _alone(_hit(moved).flatten(), 1, j, n):
            away = []
        else:
            away.append(one)
    # States of a recurrence have another first axis, too.
    turned = next((one for one in away if one.op in _TURNS), None)
    return turned, turned is not None


def placed(bench: Bench, change: Callable[[str, Tensor], Tensor], n: int) -> dict[str, Any] | None:
    """Return layer, operation and line of the first result of n rows that does not turn with them when ``change`` turns
    the n samples by one place; None if there is none.
    """
    try:
        (_, before), (_, after) = _pass(bench, None), _pass(bench, change)
    except Unfit:
        return None
    if [made[:2] for made in before] != [made[:2] for made in after]:
        return None
    for one, other in zip(before, after, strict=True):
        if one.value.dim() < 2 or one.value.shape[0] != n or one.value.shape != other.value.shape:
            continue
        if not rolled_alike(one.value, other.value):
            where = list(one.where) if one.where else None
            return {"layer": "", "type": "", "at": "output", "op": one.op, "where": where, "swapped": False}
    return None


def rolled_alike(before: Tensor, after: Tensor) -> bool:
    """Return True if the rows of a tensor are those of another one, turned by one place, up to rounding."""
    expected = before.double().roll(1, 0)
    scale = float(expected.abs().max())
    return bool(((after.double() - expected).abs() <= _SAME * scale).all())


def confined(moved: Tensor, j: int, n: int) -> bool:
    """Return True if all changes are in the part of sample j, along some axis whose size is n or a multiple of it.

    Of an axis that holds n samples of m positions each, the samples may be its outer, its inner or a middle part.
    """
    hit = _hit(moved)
    return not bool(hit.any()) or any(size % n == 0 and _apart(hit, i, j, n) for i, size in enumerate(moved.shape))


def _hit(moved: Tensor) -> Tensor:
    return moved > _NOISE * moved.max()


def _apart(hit: Tensor, axis: int, j: int, n: int) -> bool:
    """Return True if all changes along an axis are in the part of sample j."""
    flat = hit.movedim(axis, 0).flatten(1).any(1) if hit.dim() > 1 else hit
    times = len(flat) // n
    return any(times % outer == 0 and _alone(flat, outer, j, n) for outer in range(1, times + 1))


def _alone(flat: Tensor, outer: int, j: int, n: int) -> bool:
    """Return True if nothing but the part of sample j changed, in a row of ``outer`` times n equal parts."""
    parts = flat.view(outer, n, -1).transpose(0, 1).flatten(1).any(1)
    return not bool(torch.cat([parts[:j], parts[j + 1 :]]).any())


def _pass(bench: Bench, change: Callable[[str, Tensor], Tensor] | None) -> tuple[list[Flow], list[Made]]:
    found: list[Flow] = []
    with _listening(bench.module, found), _Operations() as operations:
        # What the change itself computes is no part of the pass.
        handle = add_hook(bench.module, "_forward_pre_hooks", lambda *_: operations.made.clear())
        try:
            bench.call(change)
        finally:
            handle.remove()
    return found, operations.made


class _Operations(TorchDispatchMode):
    """Keeps the results of the operations of one pass, until they are too many."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[Made] = []
        self._held = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1].strip("_")  # noqa: SLF001 (an operator's only name)
        for _, x in leaves(output):
            fits = x.is_floating_point() and 0 < x.numel() <= _ELEMENTS and x.layout is torch.strided
            if fits and self._held < _HELD and len(self.made) < _OPERATIONS:
                self._held += x.numel()
                self.made.append(Made(name, user_place(), x.detach().clone()))
        return output


@contextmanager
def _listening(module: nn.Module, found: list[Flow]) -> Iterator[None]:
    """Record the tensors at all layers that have weights of their own, or no children."""
    handles = []

    def note(path: str, layer: nn.Module, at: str, values: Any) -> None:
        for _, x in leaves(values):
            if len(found) < _TENSORS and x.is_floating_point() and x.dim() and 0 < x.numel() <= _ELEMENTS:
                found.append(Flow(path, name_of(layer), at, x.detach().clone()))

    def enters(path: str) -> Any:
        return lambda layer, args: note(path, layer, "input", args)

    def leaves_it(path: str) -> Any:
        return lambda layer, _, output: note(path, layer, "output", output)

    for path, layer in walk(module):
        if path and (own_parameters(layer) or not children(layer)):
            handles.append(add_hook(layer, "_forward_pre_hooks", enters(path)))
            handles.append(add_hook(layer, "_forward_hooks", leaves_it(path)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
