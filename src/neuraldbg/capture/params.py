"""Parameters at the optimizer's hooks: weights and final gradients before the step, what the step changed after it."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from neuraldbg.capture import op
from neuraldbg.nouns import Site

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt
    from torch import Tensor, nn

    from neuraldbg.capture.table import Table

_STALE_HEAD = 4096
_TOUCHED = 4_194_304
"""Elements of an embedding's touched rows that are kept over a step at most."""
_COMPARED = 2048
"""Elements of the small weights that are compared with what their last step left: a few microseconds."""
_SMALL = 4096
"""Elements up to which parameters are read together: biases, norms, small matrices."""


@dataclass(slots=True)
class Watched:
    """A parameter of a watched model."""

    name: str
    layer: str
    model: str
    ref: Tensor
    param: int | None
    grad: int | None
    update: int | None
    aliases: tuple[str, ...] = ()
    before: Tensor | None = None
    touched: tuple[Tensor, Tensor] | None = None
    """Of an embedding: the rows with a gradient in this step, and what they were before it."""
    rows: bool = False
    """Whether its gradient lives in a few rows: an embedding."""
    norm: bool = False
    """Whether it is gain or offset of a normalisation layer."""
    whole: bool = False
    """Read the whole tensor at the next step: a sample of it did not change."""
    had_grad: bool = False


Reading: TypeAlias = "tuple[Watched, Tensor, int]"
"""A parameter, the tensor to read of it, and the row for that."""


class Params:
    """All parameters of the watched models, by identity."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.by_id: dict[int, Watched] = {}
        self._modules: list[tuple[str, nn.Module]] = []
        self._model = ""
        self._joint: tuple[list[Watched], Tensor] | None = None
        """The small weights of the current step before it, one after the other, and whose they are."""
        self._left: dict[int, tuple[list[Watched], Tensor]] = {}
        """The same as a step left them, by the identity of the first owner: what differs before the next was changed
        outside of any step."""
        self.outside = 0.0
        """The largest change of a small weight between its last step and this, relative to its size."""

    def add(self, path: str, module: nn.Module, model: str = "") -> None:
        """Watch the parameters that a module owns itself; a tied one keeps its first name and gains an alias."""
        self._modules.append((path, module))
        self._model = model
        for name, parameter in module.named_parameters(recurse=False):
            self._watch(path, name, parameter, module)

    def _watch(self, path: str, name: str, parameter: Tensor, module: nn.Module) -> None:
        label = f"{path}.{name}" if path else name
        known = self.by_id.get(id(parameter))
        if known is not None:
            if label != known.name and label not in known.aliases:
                known.aliases = (*known.aliases, label)
            return
        dtype = str(parameter.dtype).removeprefix("torch.")
        kinds = ("param", "param_grad", "update")
        rows = [self.table.add(Site(kind, path, 0, name, dtype)) for kind in kinds]
        param, grad, update = rows if rows[-1] is not None else (None, None, None)
        watched = Watched(label, path, self._model, parameter, param, grad, update)
        watched.rows = isinstance(module, torch.nn.Embedding)
        watched.norm = "norm" in type(module).__name__.lower() and (is_lazy(parameter) or parameter.dim() == 1)
        self.by_id[id(parameter)] = watched

    def forget(self, gone: set[int]) -> None:
        """Stop watching the parameters of modules, by identity, that are no longer part of their model."""
        self._modules = [(path, module) for path, module in self._modules if id(module) not in gone]
        held = {id(p) for _, module in self._modules for p in module.parameters(recurse=False)}
        self.by_id = {key: w for key, w in self.by_id.items() if key in held}
        self._left.clear()

    def refresh(self) -> None:
        """Follow parameters that were replaced: ``load_state_dict(assign=True)``, ``model.to`` of some versions."""
        by_label: dict[str, Watched] = {}
        for path, module in self._modules:
            for name, parameter in module._parameters.items():  # noqa: SLF001 (at every step: the iterator costs more)
                if parameter is None or id(parameter) in self.by_id:  # a watched one is alive, so its id is its own
                    continue
                by_label = by_label or {w.name: w for w in self.by_id.values()}
                known = by_label.get(f"{path}.{name}" if path else name)
                if known is None:
                    self._watch(path, name, parameter, module)
                else:
                    self.by_id.pop(id(known.ref), None)
                    known.ref, known.before = parameter, None
                    self.by_id[id(parameter)] = known

    def owned(self, tensors: Iterable[Tensor]) -> list[Watched]:
        """Return the watched ones among some tensors."""
        found = (self.by_id.get(id(t)) for t in tensors)
        return [w for w in found if w is not None]

    def read_before(self, watched: list[Watched], scale: float = 1.0, *, again: bool = False) -> None:
        """Read weights and gradients before the step, and keep a sample of the weights.

        ``scale`` divides the gradients, where a fused optimizer unscales only inside its step. ``again`` if some were
        read in this step already: optimizers inside optimizers.
        """
        weights, grads = self._weights(watched), self._gradients(watched, scale)
        self._joint, self.outside = None, 0.0
        small = [*weights[0], *grads[0]]
        if small:
            flat = self._replace(small)
            self._joint = ([w for w, _, _ in weights[0]], flat[: sum(value.numel() for _, value, _ in weights[0])])
            self.outside = self._changed_outside(*self._joint)
        if again:
            self.table.reset([row for _, _, row in (*weights[1], *grads[1])])
        self._read_large_weights(weights[1], keep=True)
        self._read_large_gradients(grads[1])

    def _changed_outside(self, owners: list[Watched], now: Tensor) -> float:
        """Return the largest change since these weights' last step, relative to their size; 0 for none or unknown."""
        known, left = self._left.get(id(owners[0]), ((), now)) if owners else ((), now)
        if len(known) != len(owners) or left is now or left.dtype != now.dtype or left.shape != now.shape:
            return 0.0
        every = max(1, now.numel() // _COMPARED)
        if torch.equal(left[::every], now[::every]):
            return 0.0
        if not all(a is b for a, b in zip(known, owners, strict=True)):
            return 0.0
        sizes = [w.ref.numel() for w in owners]
        pairs = zip(left.float().split(sizes), now.float().split(sizes), strict=True)
        shares = [float((b - a).norm() / a.norm()) for a, b in pairs]
        return max((share for share in shares if math.isfinite(share)), default=0.0)

    def read_weights(self, watched: list[Watched], *, keep: bool = True) -> None:
        """Read the weights alone, and ``keep`` a sample of each for the update."""
        small, large = self._weights(watched)
        self._joint = None
        if small:
            flat = self._replace(small)
            if keep:
                self._joint = ([w for w, _, _ in small], flat)
        self._read_large_weights(large, keep=keep)

    def read_gradients(self, watched: list[Watched]) -> None:
        """Read the gradients alone: after each evaluation of a closure, or of parameters that no optimizer holds."""
        small, large = self._gradients(watched, 1.0)
        if small:
            self._replace(small)
        if large:
            self.table.reset([row for _, _, row in large])
        self._read_large_gradients(large)

    def _read_large_gradients(self, readings: list[Reading]) -> None:
        """Sample large gradients, and take the norm of each whole: exact, and no NaN hides between the blocks."""
        for _, grad, row in readings:
            self.table.observe(grad, row)
        here = [reading for reading in readings if reading[1].is_cpu]
        if not here:
            return
        norms = torch._foreach_norm([grad for _, grad, _ in here], 2, dtype=torch.float32)  # noqa: SLF001 (as torch's clipping)
        for (w, grad, row), norm in zip(here, torch.stack(norms).tolist(), strict=True):
            if math.isfinite(norm):
                self.table.norms[row] = norm
            else:
                self.table.reset([row])
                self.table.observe(grad, row, whole=True)
            if w.rows and grad.numel() > self.table.cap:
                # Blocks that hit a frequent row of an embedding say nothing about the others: keep the touched ones.
                rows = torch.linalg.vector_norm(grad, dim=-1).nonzero().squeeze(-1)
                if rows.numel() * grad.shape[-1] <= _TOUCHED:
                    w.touched = (rows, w.ref.detach()[rows])

    def _weights(self, watched: list[Watched]) -> tuple[list[Reading], list[Reading]]:
        return _by_size([(w, _local(w.ref.detach()), w.param) for w in watched if w.param is not None])

    def _gradients(self, watched: list[Watched], scale: float) -> tuple[list[Reading], list[Reading]]:
        readings = []
        for w in watched:
            grad = w.ref.grad
            if grad is None:
                continue
            w.had_grad = True
            if w.grad is None:
                continue
            grad = _local(grad.coalesce().values() if grad.is_sparse else grad).detach()
            readings.append((w, grad if scale == 1.0 else grad / scale, w.grad))
        return _by_size(readings)

    def _read_large_weights(self, readings: list[Reading], *, keep: bool) -> None:
        for w, value, row in readings:
            before = op.sample(value, value.numel() if w.whole else self.table.cap).clone()
            if keep:
                w.before = before
            self.table.observe(before, row, total=value.numel(), whole=w.whole)

    def _replace(self, small: list[Reading]) -> Tensor:
        """Read small tensors together. Returns them one after the other."""
        flat = torch.cat([value.reshape(-1) for _, value, _ in small])
        self.table.replace_many(flat, [value.numel() for _, value, _ in small], [row for _, _, row in small])
        return flat

    def read_after(self, watched: list[Watched]) -> None:
        """Read what the step changed."""
        if self._joint is not None:
            owners, before = self._joint
            self._joint = None
            values = [_local(w.ref.detach()).reshape(-1) for w in owners]
            after = torch.cat(values)
            if after.shape == before.shape:
                sizes = [value.numel() for value in values]
                self.table.replace_many(after.sub(before), sizes, [_row(w.update) for w in owners])
                if owners:
                    self._left[id(owners[0])] = (owners, after)
        for w in watched:
            old, w.before = w.before, None
            value = _local(w.ref.detach())
            if old is None or not op.observable(value):
                continue
            new = op.sample(value, value.numel() if w.whole else self.table.cap)
            if new.shape == old.shape and new.device == old.device:
                self.table.observe(new.sub(old), _row(w.update), total=value.numel(), whole=w.whole)
                if w.touched is not None:
                    rows, before_rows = w.touched
                    norm = torch.linalg.vector_norm(value[rows] - before_rows, dtype=torch.float32)
                    self.table.norms[_row(w.update)] = float(norm)
            w.touched = None

    def grad_norm(self, watched: Iterable[Watched]) -> float:
        """L2 norm over the gradients read in this step; NaN if one is not finite. Call after ``Table.gather``."""
        square = 0.0
        for w in watched:
            raw = self._raw(w.grad)
            if raw is not None:
                square += float("nan") if raw[op.NONFINITE] else float(raw[op.SQUARES] / raw[op.COUNT] * raw[op.TOTAL])
        return math.sqrt(square)

    def update_ratio(self, watched: Iterable[Watched]) -> float:
        """Median over matrices of norm(update) / norm(weight), NaN if there is none. Call after ``Table.gather``."""
        ratios = []
        for w in watched:
            update, weight = self._raw(w.update), self._raw(w.param)
            if update is None or weight is None:
                continue
            # Rows of an embedding that no batch asked for do not move, and a sample may well miss the others.
            w.whole = bool(update[op.ZEROS] == update[op.COUNT] < update[op.TOTAL]) and not w.rows
            if w.ref.dim() > 1 and weight[op.SQUARES] > 0 and not update[op.NONFINITE] and not weight[op.NONFINITE]:
                ratios.append(math.sqrt(update[op.SQUARES] / update[op.COUNT] * weight[op.COUNT] / weight[op.SQUARES]))
        return statistics.median(ratios) if ratios else math.nan

    def _raw(self, row: int | None) -> npt.NDArray[np.float64] | None:
        """Return a row's accumulators if its site was seen in this step."""
        if row is None:
            return None
        raw = self.table.raw_row(row)
        return raw if raw[op.COUNT] > 0 else None


def _by_size(readings: list[Reading]) -> tuple[list[Reading], list[Reading]]:
    """Split what can be read into small CPU tensors, read together, and all others."""
    small: list[Reading] = []
    large: list[Reading] = []
    for reading in readings:
        value = reading[1]
        if op.observable(value):
            (small if value.numel() <= _SMALL and value.is_cpu else large).append(reading)
    return small, large


def _row(row: int | None) -> int:
    """Return a row that is known to exist: the three rows of a parameter are made together, or not at all."""
    assert row is not None
    return row


def stale_share(tensors: list[Tensor]) -> float:
    """Return the share of tensors whose gradient is set and not zero. Reads the gradients' heads, then whole ones."""
    if not tensors:
        return 0.0
    nonzero = 0
    for tensor in tensors:
        grad = tensor.grad
        if grad is None:
            continue
        if grad.is_sparse:
            grad = grad.coalesce().values()
        flat = _local(grad).detach().reshape(-1)
        nonzero += bool(torch.count_nonzero(flat[:_STALE_HEAD])) or bool(torch.count_nonzero(flat))
    return nonzero / len(tensors)


def _local(x: Tensor) -> Tensor:
    """Return this rank's shard of a distributed tensor, any other tensor as it is."""
    to_local = getattr(x, "to_local", None)
    return to_local() if to_local is not None else x
