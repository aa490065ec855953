"""Parameters at the optimizer's hooks: weights and final gradients before the step, updates after it."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import group_tensors, groups, own, own_parameters
from neuraldbg.capture.guest.program_objects import is_a, item, items, name_of, sequence
from neuraldbg.capture.guest.weak_references import TensorRef, dead_reference
from neuraldbg.capture.parameters.batched_reads import Item, observe_many, plain
from neuraldbg.capture.parameters.read_plan import Stepped, cap_of, row_of
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.watched_parameter import Watched
from neuraldbg.nouns import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import numpy as np
    import numpy.typing as npt
    from torch import nn
    from torch.optim import Optimizer

    from neuraldbg.capture.statistics.table import Table

FROZEN = "frozen parameters"
"""Kind under which unreadable parameters without gradient are counted: an error in one shows in its layer's outputs."""
_TOUCHED = 4_194_304
"""Elements of an embedding's touched rows that are kept over a step at most."""
_SMALL = 4096
"""Elements up to which a weight is checked for changes outside of a step: biases, norms, small matrices."""


Reading: TypeAlias = "tuple[Watched, Tensor, int]"
"""(parameter, tensor to read of it, row)."""


class _ById(dict[int, "Watched"]):
    """Parameters by the identity of their tensors; an entry may vanish during an iteration."""

    def values(self) -> list[Watched]:  # type: ignore[override]
        """Return the present entries' parameters."""
        return [w for key in list(self) if (w := self.get(key)) is not None]

    def items(self) -> list[tuple[int, Watched]]:  # type: ignore[override]
        """Return the present entries."""
        return [(key, w) for key in list(self) if (w := self.get(key)) is not None]


class Params:
    """All parameters of the watched models, by identity, and their readings around a step."""

    def __init__(self, table: Table, forgot: Callable[[], None] = lambda: None) -> None:
        self.table = table
        self.by_id = _ById()
        self.departed: dict[str, Watched] = {}
        """Parameters whose tensors have died, by name: their facts stay."""
        self._modules: list[tuple[str, weakref.ref[nn.Module]]] = []
        mine = weakref.ref(self)

        def gone(ref: weakref.ref[Tensor]) -> None:
            held = mine()
            if held is not None and type(ref) is TensorRef:
                held.departs(ref)

        self._gone = gone
        self._model = ""
        self._plans: dict[int, Stepped] = {}
        """Plans of the parameters of each optimizer, by the identity of the first parameter."""
        self._open: Stepped | None = None
        """Plans of the current step, None if no step is open."""
        self._norm: float | None = None
        """L2 norm of all gradients of the step, infinite if they were not read in a single call, None if not read."""
        self.awaits = False
        """True if gradients of this step were read on another device."""
        self._dtypes: dict[torch.dtype, str] = {}
        self.addends: set[str] = set()
        """Names of parameters whose gradients were DTensors with a pending sum over the ranks."""
        self.outside = 0.0
        """Largest change of a small weight between its last step and this one, relative to its size."""
        self.ahead: list[Watched] = []
        """Parameters whose weights were read before a backward pass: the program may update them itself."""
        self.beside = False
        """True if a thread that is not followed has stepped some of the parameters since the last followed step:
        changes and leftover gradients are then not the program's loop's."""
        self._forgot = forgot
        """Called when parameters are no longer watched, so that finished steps release them."""

    def add(self, path: str, module: nn.Module, model: str = "") -> None:
        """Watch the parameters that a module owns itself; a tied one keeps its first name and gains an alias."""
        self._modules.append((path, weakref.ref(module)))
        self._model = model
        for name, parameter in own_parameters(module):
            if is_a(parameter, Tensor):
                self._watch(path, name, parameter, module)

    def _watch(self, path: str, name: str, parameter: Tensor, module: nn.Module) -> None:
        if placement.plain(parameter):  # now: while a compiled graph runs no table may be allocated
            self.table.on(parameter.device)
        label = f"{path}.{name}" if path else name
        known = self.by_id.get(id(parameter))
        if known is not None:
            if label != known.name and label not in known.aliases:
                known.aliases = (*known.aliases, label)
            return
        dtype = self._dtypes.get(parameter.dtype) or str(parameter.dtype).removeprefix("torch.")
        self._dtypes[parameter.dtype] = dtype
        kinds = ("param", "param_grad", "update")
        rows = [self.table.add(Site(kind, path, 0, name, dtype)) for kind in kinds]
        param, grad, update = rows if rows[-1] is not None else (None, None, None)
        self.departed.pop(label, None)
        watched = Watched(label, path, self._model, TensorRef(parameter, self._gone), param, grad, update)
        watched.part = tensor_memory.is_part(parameter)
        watched.rows = is_a(module, torch.nn.Embedding)
        watched.norm = "norm" in name_of(module).lower() and (is_lazy(parameter) or parameter.dim() == 1)
        self.by_id[id(parameter)] = watched

    def departs(self, ref: TensorRef) -> None:
        """Release a parameter that dies. Runs at any point, in whatever thread drops the parameter."""
        w = self.by_id.get(ref.key)
        if w is not None and w.weak is ref:
            self.by_id.pop(ref.key, None)
            self.departed[w.name] = w
            w.before = w.touched = None

    def let_go(self, layers: Collection[str]) -> None:
        """Release the parameters of layers, by path, as if they had died: another thread trains them."""
        gone = frozenset(layers)
        self._modules = [(path, ref) for path, ref in self._modules if path not in gone]
        for w in [w for w in self.by_id.values() if w.layer in gone]:
            self.by_id.pop(w.key, None)
            self.departed[w.name] = w
            w.weak, w.before, w.touched = dead_reference(w.key), None, None
        self._plans.clear()
        self._forgot()

    def all(self) -> list[Watched]:
        """Return all parameters, dead ones among them."""
        return [*self.by_id.values(), *list(self.departed.values())]

    def forget(self, gone: Collection[str]) -> None:
        """Stop watching the parameters of layers, by path, that are no longer part of their model."""
        gone = frozenset(gone)
        self._modules = [(path, ref) for path, ref in self._modules if path not in gone and ref() is not None]
        held = {id(p) for _, ref in self._modules if (module := ref()) is not None for _, p in own_parameters(module)}
        for w in self.by_id.values():
            if w.layer in gone and w.key not in held:
                self.by_id.pop(w.key, None)
        self.departed = {name: w for name, w in list(self.departed.items()) if w.layer not in gone}
        self._plans.clear()
        self._forgot()

    def note_rates(self, rates: dict[int, float]) -> None:
        """Record the learning rates of parameters, by identity: their optimizer may die before the step closes."""
        for key, rate in rates.items():
            w = self.by_id.get(key)
            if w is not None:
                w.trainable, w.rate = w.ref.requires_grad, rate

    def begin_step(self) -> None:
        """Begin a step."""
        self._norm = None
        self.awaits = False
        self.ahead = []

    @property
    def graded(self) -> bool:
        """True if gradients of this step were read."""
        return self._norm is not None

    def forget_samples(self) -> None:
        """Drop all samples: steps come that are not read, so the last ones do not precede the next reading."""
        for stepped in self._plans.values():
            stepped.forget()

    def resume(self, stepped: Stepped, turn: int) -> None:
        """Continue in a step whose weights native code has read into the buffer ``turn``."""
        self._open = stepped
        stepped.samples.resume(turn)

    def refresh(self) -> None:
        """Find parameters that were replaced: ``load_state_dict(assign=True)``, ``model.to`` of some versions."""
        by_label: dict[str, Watched] = {}
        for path, ref in self._modules:
            module = ref()
            if module is None:
                continue
            for name, parameter in items(own(module).get("_parameters")):
                if parameter is None or id(parameter) in self.by_id:  # a watched one is alive, so its id is its own
                    continue
                by_label = by_label or {w.name: w for w in self.all()}
                known = by_label.get(f"{path}.{name}" if path else name)
                if known is None:
                    self._watch(path, name, parameter, module)
                else:
                    if self.by_id.get(known.key) is known:
                        self.by_id.pop(known.key, None)
                    self.departed.pop(known.name, None)
                    self._plans.clear()  # they belong to dead tensors
                    known.weak, known.before = TensorRef(parameter, self._gone), None
                    self.by_id[id(parameter)] = known

    def in_optimizer(self, opt: Optimizer) -> bool:
        """Return True if an optimizer holds a watched parameter."""
        by_id = self.by_id
        for group in groups(opt):
            for tensor in sequence(item(group, "params")):  # usually the first is
                if id(tensor) in by_id:
                    return True
        return False

    def lie_in(self, opt: Optimizer) -> bool:
        """Return True if a tensor of an optimizer shares the address of a watched parameter."""
        mine = {w.ref.data_ptr() for w in self.by_id.values() if plain(w.ref)}
        held = (t for group in groups(opt) for t in group_tensors(group))
        return any(t.data_ptr() in mine for t in held if plain(t))

    def owned(self, tensors: Iterable[Tensor]) -> list[Watched]:
        """Return the watched parameters among some tensors."""
        found = (self.by_id.get(id(t)) for t in tensors)
        return [w for w in found if w is not None]

    def read_before(self, watched: list[Watched], scale: Tensor | float = 1.0, *, again: bool = False) -> None:
        """Read weights and gradients before the step, and keep a sample of the weights.

        ``scale`` divides the gradients, if a fused optimizer unscales only inside its step. ``again`` is True if some
        were read in this step already: optimizers inside optimizers.
        """
        self.read_weights_before(watched, again=again)
        self.read_gradients(watched, scale, again=again)

    def read_weights_before(self, watched: list[Watched], *, again: bool = False) -> None:
        """Read weights before the step, keep a sample of them, and note what has changed them since the last step."""
        self.outside = 0.0
        self.read_weights(watched, again=again)
        if self._open is not None and not again and not self.beside:
            self.outside = self._open.samples.change_outside(_SMALL)
        self.beside = False

    def read_ahead(self, watched: list[Watched]) -> None:
        """Read weights before a backward pass, for a program that may update them itself."""
        self.read_weights_before(watched)
        self.ahead = watched

    def drop_ahead(self) -> None:
        """Drop the weights that were read before a backward pass: an optimizer of torch reads its own."""
        if self.ahead:
            self.table.reset([row_of(w.param) for w in self.ahead if w.param is not None])
            self._let_go(None)
            self._plans.pop(self.ahead[0].key, None)  # made before there were gradients
            for w in self.ahead:
                if w.param is not None and operation.shown(w.ref) is None and operation.hidden(w.ref):
                    self.table.unread.take_back("parameters" if w.ref.requires_grad else FROZEN, w.ref, w.name)
            self.ahead = []

    def read_weights(self, watched: list[Watched], *, again: bool = False) -> None:
        """Read the weights alone, and keep a sample of each for the update."""
        stepped = self._stepped(watched)
        self._let_go(stepped)
        self._open = stepped
        stepped.samples.take()
        for each in stepped.devices:
            if again:
                self.table.reset(each.rows)
            each.read_weights()
        for w in stepped.others:
            w.before = self._read_other_weight(w, again=again)
        self.table.binning.weights(watched)

    def _let_go(self, stepped: Stepped | None) -> None:
        """Drop the samples of another step, which will not be compared: it raised, or contains the step that begins."""
        if self._open is not None and self._open is not stepped:
            self._open.forget()
        self._open = None

    def read_aside(self, watched: list[Watched]) -> None:
        """Read weights and gradients of parameters that no optimizer steps."""
        held = [w for w in watched if w.param is not None]
        items = [Item(w.ref, row_of(w.param), cap_of(w, self.table.cap)) for w in held if plain(w.ref)]
        observe_many(items, self.table.rows)
        for w in held:
            if not plain(w.ref):
                self._read_other_weight(w)
        self._read_each_gradient(watched)

    def _read_other_weight(self, w: Watched, *, again: bool = False) -> Tensor | None:
        """Read a weight that cannot be read in place on the CPU. Return the sample, None if it is unreadable."""
        value = self._shown("parameters" if w.ref.requires_grad else FROZEN, w.ref, w.name)
        if value is None:
            return None
        row = row_of(w.param)
        if again:
            self.table.reset([row])
        before = operation.sample(value.detach(), cap_of(w, self.table.cap) or value.numel()).clone()
        self.table.observe(before, row, total=value.numel(), whole=w.whole)
        return before

    def _shown(self, kind: str, x: Tensor, name: str) -> Tensor | None:
        """Return the tensor whose statistics can be read for ``x``. Count an unreadable one for the coverage report."""
        value = operation.shown(x)
        if value is None and operation.hidden(x):
            self.table.unread.note(kind, x, name)
        return value

    def _stepped(self, watched: list[Watched]) -> Stepped:
        """Return the plans for some parameters; make new ones if the parameters, or their memory, have changed."""
        key = watched[0].key if watched else 0
        stepped = self._plans.get(key)
        if stepped is None or not stepped.holds(watched):
            self._plans = {at: plan for at, plan in self._plans.items() if not plan.gone}
            stepped = self._plans[key] = Stepped(watched, self.table.cap, self.table)
            self.addends.update(w.name for w in watched if tensor_memory.is_addend(w.ref.grad))
        return stepped

    def plan_of(self, tensors: list[Tensor]) -> Stepped | None:
        """Return the plans for the parameters of an optimizer if native code reads all of them, else None."""
        watched = self.owned(tensors)
        stepped = self._stepped(watched) if watched else None
        return stepped if stepped is not None and stepped.all_here else None

    def read_gradients(self, watched: list[Watched], scale: Tensor | float = 1.0, *, again: bool = False) -> None:
        """Read the gradients alone, whole: no NaN is missed between blocks, and the norm is exact."""
        self.table.binning.gradients(watched, scale)
        stepped = self._open if self._open is not None and self._open.watched == watched else self._stepped(watched)
        if stepped.devices:
            self._read_on_devices(stepped, scale, again=again)
            return
        found = stepped.gradients.read() if not stepped.others else None
        if found is None:
            self._read_each_gradient(watched, scale)
            return
        squares, bad = found
        stepped.note_gradients()
        for w in stepped.lookups:
            self._keep_touched(w, w.ref.grad)
        self._sum_up(squares, bad, alone=isinstance(scale, float) and scale == 1.0)
        if not (isinstance(scale, float) and scale == 1.0):
            missing = set(stepped.gradients.missing())
            there = [w for i, w in enumerate(stepped.readable) if i not in missing]
            self._unscale([row_of(w.grad) for w in there], scale, here=True)

    def _read_on_devices(self, stepped: Stepped, scale: Tensor | float, *, again: bool) -> None:
        """Read the gradients of parameters on other devices, one launch per device, then those that are left."""
        left = [*stepped.readable, *stepped.others, *(w for w in stepped.watched if w.grad is None)]
        for each in stepped.devices:
            if again:
                self.table.reset(each.gradient_rows)
            self.table.replace(each.gradient_rows)
            odd = each.read_gradients()
            left += odd
            self._unscale([row_of(w.grad) for w in each.members if w not in odd], scale, here=False)
        self._read_each_gradient(left, scale)
        self._norm, self.awaits = math.inf, True

    def _unscale(self, rows: list[int], scale: Tensor | float, *, here: bool) -> None:
        """Divide the gradients read into some rows by the loss scale, here or on another device."""
        if isinstance(scale, float) and scale == 1.0:
            return
        if here and isinstance(scale, float):
            self.table.divide(rows, scale)
        else:
            self.table.divide_later(rows, scale)

    def _read_each_gradient(self, watched: list[Watched], scale: Tensor | float = 1.0) -> None:
        items, others = [], []
        for w in watched:
            grad = w.ref.grad
            if grad is None:
                continue
            w.had_grad = True
            if w.grad is None:
                continue
            if plain(grad):
                items.append(Item(grad, w.grad, 0))
                self._keep_touched(w, grad)
            else:
                others.append((w, grad, w.grad))
        squares, bad = observe_many(items, self.table.rows)
        self._sum_up(squares, bad, alone=not others and isinstance(scale, float) and scale == 1.0)
        self._unscale([item.row for item in items], scale, here=True)
        if others:
            self._read_other_gradients(others, scale)

    def _sum_up(self, squares: float, bad: float, *, alone: bool) -> None:
        """Set the step's norm from the sums of one call, if it was the only one of the step."""
        known = self._norm is None and alone
        self._norm = (math.nan if bad else math.sqrt(squares)) if known else math.inf

    def _read_other_gradients(self, readings: list[Reading], scale: Tensor | float) -> None:
        """Read gradients that are sparse, sharded or expanded; of one on another device a sample."""
        self.table.reset([row for _, _, row in readings])
        for w, grad, row in readings:
            sparse = type(grad) in tensor_memory.ORDINARY and grad.is_sparse
            value = self._shown("gradients", grad.coalesce().values() if sparse else grad, w.name)
            if value is None:
                continue
            here = not placement.lies(value)
            self.awaits |= not here
            self.table.observe(value, row, whole=here)
            self._unscale([row], scale, here=here)
            self._keep_touched(w, grad)

    def _keep_touched(self, w: Watched, grad: Tensor | None) -> None:
        """Keep the rows with a gradient of a large embedding: a sample of frequent rows says nothing about
        the others.
        """
        if not w.rows:
            return
        grad, weight = operation.shown(grad), operation.shown(w.ref)
        if grad is None or weight is None or placement.lies(grad) or grad.numel() <= self.table.cap:
            return
        rows = torch.linalg.vector_norm(grad.detach(), dim=-1).nonzero().squeeze(-1)
        if rows.numel() * grad.shape[-1] <= _TOUCHED and grad.shape == weight.shape:
            w.touched = (rows, weight.detach()[rows])

    def read_after(self, watched: list[Watched]) -> None:
        """Read the changes made by the step."""
        stepped = self._open if self._open is not None and self._open.watched == watched else None
        self._let_go(stepped)
        self.table.binning.updates(watched)
        if stepped is not None:
            stepped.samples.compare()
            for each in stepped.devices:
                each.compare()
        for w in watched:
            old, w.before = w.before, None
            if old is not None:
                self._read_other_update(w, old)
            if w.touched is not None:
                (rows, before_rows), weight = w.touched, operation.shown(w.ref)
                w.touched = None
                if weight is not None:
                    change = weight.detach()[rows] - before_rows
                    norm = torch.linalg.vector_norm(change, dtype=torch.promote_types(change.dtype, torch.float32))
                    self.table.set_norm(row_of(w.update), float(norm))

    def _read_other_update(self, w: Watched, old: Tensor) -> None:
        value = operation.shown(w.ref)
        if value is None:
            return
        new = operation.sample(value.detach(), cap_of(w, self.table.cap) or value.numel())
        if new.shape == old.shape and new.device == old.device:
            self.table.observe(new.sub(old), row_of(w.update), total=value.numel(), whole=w.whole)

    def grad_norm(self, watched: Iterable[Watched]) -> float:
        """Return the L2 norm of the gradients read in this step, NaN if not finite. Call after ``Table.gather``."""
        if self._norm is not None and self._norm != math.inf:
            return self._norm
        return norm_of(self.table.rows.values, [w.grad for w in watched])

    def layer_norms(self, watched: Iterable[Watched]) -> dict[str, float]:
        """Return the L2 norm of the gradients read in this step by layer, NaN where one is not finite."""
        raw, rows = self.table.rows.values, dict[str, list[int | None]]()
        for w in watched:
            if w.grad is not None and raw[w.grad, operation.COUNT] > 0:
                rows.setdefault(w.layer, []).append(w.grad)
        return {layer: norm_of(raw, seen) for layer, seen in rows.items()}


def norm_of(raw: npt.NDArray[np.float64], rows: list[int | None]) -> float:
    """Return the L2 norm over the gradients that were read into some rows, NaN if one is not finite."""
    total, bad = operation.squares(raw[[row for row in rows if row is not None]])
    return math.nan if bad else math.sqrt(total)
