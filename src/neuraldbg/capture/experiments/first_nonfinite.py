"""The origin of the first non-finite value: a failed forward or backward pass is repeated on a copy of the model.

A model with the arguments of the pass (still held by the program) enters; the operation, the user's line, the layer and
the sample leave. For the loss itself, which cannot be repeated, the operands that autograd saved are examined.
"""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from neuraldbg.capture.autograd.graph_walk import op_name, parents
from neuraldbg.capture.autograd.risky_operations import RISKY
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.guest.module_tree import add_hook, walk
from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.guest.user_code import user_place
from neuraldbg.capture.statistics.nested_tensors import leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from neuraldbg.capture.autograd.graph_walk import Node
    from neuraldbg.capture.experiments.experiment import Bench

_NODES = 300
"""Nodes of a loss graph that are examined."""
_GRAPH = 20_000
"""Nodes of a model's graph that are watched while it is differentiated again."""
_CAP = 4_000_000
_LAYOUT = frozenset({
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "fill", "full", "full_like", "new_full",
    "scalar_tensor", "masked_fill", "where", "clone", "detach", "copy", "view", "lift_fresh",
})  # fmt: skip
"""Operations that pass on existing values, or write an infinity because the program gives one."""


class _Done(Exception):
    """Raised to end a pass when the origin is found."""


class _Watch(TorchDispatchMode):
    """Stops a pass at the first operation that makes a non-finite value of finite ones."""

    def __init__(self, module: nn.Module, rows: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows, self.module = rows, module
        self.found: dict[str, Any] | None = None
        self._inside: list[str] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Track the layer that runs, by hooks on the module, which is a copy of ours."""
        handles = []
        for path, each in walk(self.module):
            handles.append(add_hook(each, "_forward_pre_hooks", lambda _m, _a, path=path: self._inside.append(path)))
            handles.append(add_hook(each, "_forward_hooks", lambda _m, _a, _o: self._inside.pop() and None))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1].rstrip("_")  # noqa: SLF001 (an operator's only name)
        if name in _LAYOUT:
            return out
        made = [x for x in tree_leaves(out) if _floating(x)]
        if any(not bool(x.isfinite().all()) for x in made):
            # an in-place operation has overwritten its input, which was finite when it was checked
            given = [x for x in tree_leaves((args, kwargs)) if _floating(x) and not any(x is y for y in made)]
            if self._born(made, given):
                place = user_place()
                self.found = {
                    "phase": "forward",
                    "op": name.strip("_"),
                    "dtype": str(made[0].dtype).removeprefix("torch."),
                    "where": list(place) if place else None,
                    "layer": self._inside[-1] if self._inside else "",
                    **_sample(next(x for x in made if not bool(x.isfinite().all())), self.rows),
                }
                raise _Done
        return out

    @staticmethod
    def _born(made: list[Tensor], given: list[Tensor]) -> bool:
        """Return True if the results are worse than the inputs. An infinite input may be intended: a mask."""
        if all(bool(x.isfinite().all()) for x in given):
            return True
        return any(bool(x.isnan().any()) for x in made) and not any(bool(x.isnan().any()) for x in given)


def forward_birth(bench: Bench) -> tuple[dict[str, Any] | None, bool]:
    """Run the copy on the arguments of the failed pass, and stop at the first non-finite value. Return the origin or
    None, and True if the pass ended with finite outputs.
    """
    watch = _Watch(bench.module, bench.rows)
    with contextlib.suppress(_Done), watch.listening(), watch, torch.no_grad():
        output = bench.module(*bench.args, **bench.kwargs)
        return None, all(bool(x.isfinite().all()) for _, x in leaves(output) if x.is_floating_point())
    return watch.found, False


def backward_birth(bench: Bench) -> dict[str, Any] | None:
    """Differentiate the copy's outputs, and stop at the first operation whose gradient is not finite although its
    incoming gradients are. Anomaly mode records the lines of the forward; its own check finds NaN only, one operation
    too late.
    """
    with torch.enable_grad():
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            made = leaves(bench.module(*bench.args, **bench.kwargs))
            outputs = [x for _, x in made if x.requires_grad and x.grad_fn is not None]
        if not outputs or not all(bool(x.isfinite().all()) for x in outputs):
            return None
        found: list[dict[str, Any]] = []
        for node in _nodes([x.grad_fn for x in outputs]):
            # not the node itself, which would keep itself alive
            with numbers_apart():
                node.register_hook(functools.partial(_differentiated, found, op_name(node), node.metadata, bench.rows))
        torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])
    return found[0] if found else None


def _nodes(roots: list[Any]) -> list[Any]:
    queue, seen = list(roots), set(roots)
    while queue and len(seen) < _GRAPH:
        for parent, _ in parents(queue.pop()):
            if parent not in seen:
                seen.add(parent)
                queue.append(parent)
    return list(seen)


def _differentiated(
    found: list[dict[str, Any]], name: str, noted: dict[str, Any], rows: int, inputs: Any, outputs: Any
) -> None:
    """Record the node if it made a non-finite gradient (``inputs``) of finite ones (``outputs``). A hook on a node."""
    if found or any(_floating(x) and not bool(x.isfinite().all()) for x in outputs):
        return
    bad = next((x for x in inputs if _floating(x) and not bool(x.isfinite().all())), None)
    if bad is not None:
        place = _last_place(noted.get("traceback_") or [])
        found.append({"phase": "backward", "op": name, "where": place, "layer": "", **_sample(bad, rows)})


def loss_birth(root: Node, rows: int) -> dict[str, Any] | None:
    """Return the operand farthest from the root of the loss graph that is at an edge of its operation's domain. The
    graph must not be freed yet.
    """
    queue, seen, found = [root], {root}, None
    while queue and len(seen) < _NODES:
        node = queue.pop(0)
        name = op_name(node)
        risk = RISKY.get(name)
        value = _saved(node, risk.operand) if risk is not None and risk.mask is not None else None
        if risk is not None and risk.mask is not None and value is not None:
            bad = risk.mask(value)
            if bool(bad.any()):
                marked = torch.where(bad, torch.full_like(value, torch.nan), torch.zeros_like(value))
                found = {"phase": "loss", "op": name, "where": None, "layer": "", **_sample(marked, rows)}
        for parent, _ in parents(node):
            if parent not in seen:
                seen.add(parent)
                queue.append(parent)
    return found


def bad_target(root: Node, rows: int) -> dict[str, Any] | None:
    """Return the sample whose target is not finite, for losses of torch, whose target autograd saves."""
    for value in targets(root):
        if _floating(value) and not bool(value.isfinite().all()):
            return {"phase": "target", "op": "", "where": None, "layer": "", **_sample(value, rows)}
    return None


def targets(root: Node) -> Iterator[Tensor]:
    """Yield the targets that the losses of torch near the end of a graph have saved."""
    queue, seen = [root], {root}
    while queue and len(seen) < _NODES // 10:
        node = queue.pop(0)
        if (value := saved(node, "target")) is not None:
            yield value.detach()
        for parent, _ in parents(node):
            if parent not in seen:
                seen.add(parent)
                queue.append(parent)


def bad_input(inputs: Iterable[Tensor], rows: int) -> dict[str, Any] | None:
    """Return the first sample that is not finite among the model's input tensors."""
    for x in inputs:
        if _floating(x) and not bool(x.isfinite().all()):
            share = float((~x.isfinite()).double().mean())
            return {"phase": "input", "op": "", "where": None, "layer": "", "share": share, **_sample(x, rows)}
    return None


def _floating(x: Any) -> bool:
    return is_a(x, Tensor) and x.is_floating_point() and x.layout is torch.strided and 0 < x.numel() <= _CAP


def _sample(x: Any, rows: int) -> dict[str, Any]:
    """Return the first non-finite sample and the number of those; None if axis 0 is not the batch."""
    if not is_a(x, Tensor) or not x.dim() or x.shape[0] != rows or rows < 2:
        return {"sample": None, "count": 0}
    bad = (~x.detach().isfinite()).reshape(rows, -1).any(1)
    return {"sample": int(bad.nonzero()[0]), "count": int(bad.sum())}


def _saved(node: Any, name: str) -> Tensor | None:
    value = saved(node, name)
    return value.detach() if value is not None and _floating(value) else None


def _last_place(texts: list[str]) -> list[Any] | None:
    """Return the user's line from the tracebacks that anomaly mode records."""
    lines = [m for text in texts for m in re.finditer(r'File "([^"]+)", line (\d+), in .*\n\s*(.*)', text)]
    for m in reversed(lines):
        if (
            "site-packages" not in m[1]
            and f"{__name__.split('.', maxsplit=1)[0]}/" not in m[1]
            and "/lib/python" not in m[1]
        ):
            return [m[1], int(m[2]), m[3].strip()[:160]]
    return None
