"""An experiment: does the output for one sample depend on another sample of the batch?

One sample is exchanged for another; in eval mode, where batch norm does not mix, no other row of the output may change.
Mixing can be intended: similarities within a batch, graphs whose first axis is nodes, statistics over the batch. So the
experiment also reports what is certain about the axis: whether the loss has one target for each row, and which part
takes the batch for another axis (a recurrent or attention layer with ``batch_first=False``, a softmax over axis 0).
Where no sample reaches another, all are turned by one place: an output that does not turn with them depends on the
place, as where codes of positions are added along the batch.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg.capture.experiments.experiment import SEED, Bench, Experiment
from neuraldbg.capture.experiments.sample_mixing import meeting, placed, rolled_alike
from neuraldbg.capture.guest.module_tree import (
    add_hook,
    buffers,
    children,
    has_parameters,
    modules,
    own,
    own_parameters,
    walk,
)
from neuraldbg.capture.guest.program_objects import attribute, is_a, name_of, package_of
from neuraldbg.capture.guest.purity import Unfit
from neuraldbg.capture.guest.user_code import user_place
from neuraldbg.capture.statistics.sample_hashes import padded

if TYPE_CHECKING:
    from typing_extensions import Self

    from neuraldbg.capture.guest.own_hooks import OwnHook
    from neuraldbg.capture.guest.user_code import Place

_FEW = 4
"""Rows that a batch must have."""
_MOVED = 1e-3
"""Change of another row, relative to that of the exchanged row, from which on it counts."""
_NOISE = 1e-5
"""Change relative to the scale of the output; a smaller one is rounding."""
_GRAPH_ROWS = 2


def run(bench: Bench) -> dict[str, Any] | None:
    """Exchange three samples, one after the other, and return the effect on the other rows."""
    n = bench.rows
    first = next((x for _, x in bench.inputs()), None)
    if n < _FEW or first is None or first.dim() < 2 or bench.constant:
        return None
    # A graph mixes its rows by design, and so does an output that differs from call to call.
    if _graph(bench, n):
        raise Unfit("its input is a graph, which mixes its nodes by design")
    watch = _Axes(bench.module, n)
    with watch:
        base = _rows(bench.call(), n)
    if not base:
        return None
    again = _rows(bench.call(), n)
    if any(not torch.equal(a, b) for a, b in zip(base, again, strict=True)):
        raise Unfit("its output is not reproducible")
    # Three samples: a recurrence over the batch changes only later rows.
    moved: dict[int, list[int]] = {}
    strength, first_hit = 0.0, None
    for j in sorted({0, n // 2, n - 1}):
        k = _other(bench, j, n)
        if k is None:
            continue
        change = functools.partial(_exchanged, j=j, k=k, n=n)
        moved[j], effect = _effect(base, _rows(bench.call(change), n), j)
        strength = max(strength, effect)
        if moved[j] and first_hit is None:
            first_hit = change, j
    if not moved:
        return None
    # Last, since it takes the most time, and what was found so far does not need it.
    place = meeting(bench, *first_hit, n) if first_hit is not None else None
    by_place = first_hit is None and _by_place(bench, base, n)
    if by_place:
        place = placed(bench, functools.partial(_turned, n=n), n)
    return {
        "placed": by_place,
        "rows": n,
        "mixed": any(moved.values()),
        "pattern": _pattern(moved, n),
        "strength": strength,
        "why_batch": _why(bench, first, n, watch.batch_first),
        "dims": first.dim() + (not first.is_floating_point()),  # tokens become vectors inside the model
        "steady": bench.steady,
        "layers": watch.layers,
        "place": place,
        "axis_ops": [
            {"op": op, "where": list(where) if where else None, "layer": layer} for op, where, layer in watch.ops
        ],
    }


class _Axes(TorchDispatchMode):
    """Watches one pass of the copy for layers and operations that take axis 0, of n rows, for another axis."""

    def __init__(self, module: nn.Module, n: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n = n
        self.layers: list[dict[str, Any]] = []
        self.batch_first = ""
        """A recurrent layer with ``batch_first=True`` that is given n rows; empty if there is none."""
        self.ops: dict[tuple[str, Place | None, str], None] = {}
        self._inside: list[str] = []
        """Modules whose forward is running, without activations and the like."""
        self._handles: list[OwnHook] = []
        self._module = module

    def __enter__(self) -> Self:
        for path, module in walk(self._module):
            if path and (children(module) or has_parameters(module)):
                self._handles.append(add_hook(module, "_forward_pre_hooks", self._enter(path)))
                self._handles.append(add_hook(module, "_forward_hooks", self._leave))
            if attribute(module, "batch_first") is True and is_a(module, nn.RNNBase):
                self._handles.append(add_hook(module, "_forward_pre_hooks", self._agree(path)))
            if attribute(module, "batch_first") is False and is_a(module, (nn.RNNBase, nn.MultiheadAttention)):
                hook = add_hook(module, "_forward_pre_hooks", self._look(path), kwargs=True)
                self._handles.append(hook)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for handle in self._handles:
            handle.remove()

    def _enter(self, path: str) -> Any:
        return lambda *_: self._inside.append(path)

    def _leave(self, *_: object) -> None:
        if self._inside:
            self._inside.pop()

    def _look(self, path: str) -> Any:
        def look(module: nn.Module, args: Any, kwargs: Any) -> None:
            given = [x for x in (*args, *kwargs.values()) if is_a(x, Tensor)]
            x = given[0] if given else None
            if x is not None and x.dim() == 3 and x.shape[0] == self.n and x.shape[1] not in (1, self.n):
                entry = {"layer": path, "type": name_of(module), "shape": list(x.shape)}
                if entry not in self.layers and len(self.layers) < 16:
                    self.layers.append(entry)

        return look

    def _agree(self, path: str) -> Any:
        def look(_: nn.Module, args: Any) -> None:
            x = args[0] if args else None
            if is_a(x, Tensor) and x.dim() == 3 and x.shape[0] == self.n and x.shape[1] not in (1, self.n):
                self.batch_first = self.batch_first or path

        return look

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1]  # noqa: SLF001 (an operator's only name)
        if name in ("_softmax", "_log_softmax", "cumsum", "sort") and len(args) > 1 and is_a(args[0], Tensor):
            x, axis = args[0], args[1]
            if x.dim() > 1 and x.shape[0] == self.n and x.shape[1] != self.n and axis in (0, -x.dim()):
                self.ops.setdefault((name.strip("_"), user_place(), self._inside[-1] if self._inside else ""))
        return func(*args, **(kwargs or {}))


def _graph(bench: Bench, n: int) -> bool:
    """Return True if the model is given, or stores, a tensor like the edges of a graph over its rows."""
    tensors = [x for _, x in bench.inputs()]
    if any(x.layout is not torch.strided for x in tensors):
        return True
    if any(not x.is_floating_point() and x.dim() == 2 and _GRAPH_ROWS in x.shape and x.shape[0] != n for x in tensors):
        return True
    kept = [x for module in modules(bench.module) for x in own(module).values() if is_a(x, Tensor)]
    square = [x for x in (*tensors, *buffers(bench.module), *kept) if tuple(x.shape) == (n, n)]
    # a batch of n samples of n features is square too, but not symmetric
    return any(x is not tensors[0] or torch.equal(x, x.T) for x in square)


def _rows(outputs: list[tuple[str, Tensor]], n: int) -> list[Tensor]:
    """Return the outputs that have a row for each sample, and are no comparison of samples with each other."""
    return [x for _, x in outputs if x.dim() and x.shape[0] == n and not (x.dim() > 1 and x.shape[1] == n)]


def _by_place(bench: Bench, base: list[Tensor], n: int) -> bool:
    """Return True if what the model returns for a sample depends on its place in the batch.

    A model may hold something for each row, as a state of each stream or a code of each sample; and what is drawn at
    random is drawn by row.
    """
    every = list(modules(bench.module))
    states = [x for module in every for x in own(module).values() if is_a(x, Tensor)]
    codes = [x for module in every if package_of(type(module)) != "torch" for _, x in own_parameters(module)]
    rows = any(n in x.shape for x in states) or any(x.shape[:1] == (n,) for x in (*codes, *buffers(bench.module)))
    if not base or rows or not all(x.shape[0] == n for _, x in bench.inputs() if x.dim()):
        return False
    other = _rows(bench.call(seed=SEED + 1), n)
    if any(not torch.equal(a, b) for a, b in zip(base, other, strict=True)):
        return False
    after = _rows(bench.call(functools.partial(_turned, n=n)), n)
    return any(not rolled_alike(a, b) for a, b in zip(base, after, strict=True))


def _turned(_: str, x: Tensor, *, n: int) -> Tensor:
    return x.roll(1, 0) if x.dim() and x.shape[0] == n else x


def _other(bench: Bench, j: int, n: int) -> int | None:
    """Return the index of a sample that differs from sample j, None if there is none."""
    for step in (1, n // 3, n // 2):
        k = (j + max(1, step)) % n
        if any(x.shape[0] == n and not torch.equal(x[j], x[k]) for _, x in bench.inputs() if x.dim()):
            return k
    return None


def _exchanged(_: str, x: Tensor, *, j: int, k: int, n: int) -> Tensor:
    if x.dim() == 0 or x.shape[0] != n:
        return x
    x = x.clone()
    x[j] = x[k]
    return x


def _effect(base: list[Tensor], after: list[Tensor], j: int) -> tuple[list[int], float]:
    """Return the other rows that changed, and their largest change relative to that of row j."""
    moved: set[int] = set()
    strength = 0.0
    for a, b in zip(base, after, strict=True):
        change = (b.double() - a.double()).abs().flatten(1).amax(1) if a.dim() > 1 else (b.double() - a.double()).abs()
        scale = float(a.double().square().mean().sqrt())
        if not bool(change.isfinite().all()):
            raise Unfit("its output is not finite")
        own = float(change[j])
        change[j] = 0.0
        hit = change > max(_MOVED * own, _NOISE * scale)
        moved |= set(hit.nonzero().flatten().tolist())
        strength = max(strength, float(change.max()) / max(own, 1e-12 + _NOISE * scale))
    return sorted(moved), min(strength, 1e6)


def _pattern(moved: dict[int, list[int]], n: int) -> str:
    """Return the pattern of changes: ``all``, only ``later`` rows (a recurrence over the batch), ``some``, ``none``."""
    if not any(moved.values()):
        return "none"
    if all(len(rows) == n - 1 for rows in moved.values()):
        return "all"
    if all(row > j for j, rows in moved.items() for row in rows):
        return "later"
    return "some"


def _why(bench: Bench, first: Tensor, n: int, batch_first: str) -> str:
    """Return the reason why axis 0 is the batch, empty if none is known: the loss has one target for each row, and the
    other axes are not in the targets.
    """
    others = [size for size in first.shape[1:] if size > 1]
    for target in bench.targets:
        if not target.shape or target.shape[0] != n:
            continue
        if len(target.shape) == 1 or all(size == 1 for size in target.shape[1:]):
            return f"the loss has one target for each of the {n} rows"
        if len(others) > 1 and len(target.shape) == 2 and target.shape[1] not in others:
            return f"the loss has one row of targets for each of the {n} rows"
    ids = first if not first.is_floating_point() and first.dim() == 2 else None
    if ids is not None and any(target.value is not None and _shifted(ids, target.value) for target in bench.targets):
        return "the targets are the inputs shifted along axis 1, so axis 1 is time"
    if ids is not None and padded(ids) is not None and padded(ids.T) is None:
        return "the rows end in padding of different lengths, so axis 1 is time"
    if batch_first:
        return f"{batch_first} has batch_first=True"
    return ""


def _shifted(ids: Tensor, target: Tensor) -> bool:
    from neuraldbg.capture.experiments.causality import shifted  # noqa: PLC0415 (members do not depend on each other)

    return shifted(ids, target) is not None


EXPERIMENT = Experiment("batch_mixing", run, forwards=8)
