"""The reader of the first loss or gradient that is not finite, while the weights are still good: where did it begin?

Losses on the CPU are checked before each backward pass (one number), and one small gradient after it. On other devices
that would synchronise, so it is not done. At the first non-finite value the pass is repeated on a copy. After a jump of
the loss the reader reads the batch, and searches the outlier sample in it: in a light step nothing else does. In both
cases the batch is kept.
"""

from __future__ import annotations

import itertools
import math
import statistics
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.experiments.experiment import Bench, rebuilt, undisturbed
from neuraldbg.capture.experiments.first_nonfinite import (
    backward_birth,
    bad_input,
    bad_target,
    forward_birth,
    loss_birth,
    targets,
)
from neuraldbg.capture.experiments.model_copy import twin
from neuraldbg.capture.experiments.threads_beside import company
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import sessions_paused
from neuraldbg.capture.guest.module_tree import modules, own, own_parameters, training
from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.purity import Unfit
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.guest.weak_references import TensorRef, named
from neuraldbg.capture.layers.layer_names import wraps
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.capture.statistics.nested_tensors import seen
from neuraldbg.capture.statistics.whole_tensors import statistics as statistics_of
from neuraldbg.nouns import FactKey
from neuraldbg.raised import let_pass, swallowing

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import nn

    from neuraldbg.capture.loop.forward_pass import Model
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.reader_context import Scene

_RECENT = 20
_ENOUGH = 8
_JUMP = 4.0
"""Multiple of the median of the newest losses from which on a loss is a jump."""
_ABOVE = 2.0
"""Multiple of the largest of the newest losses from which on the batch of a jump is kept: a small loss often jumps
above its median."""
_ODD, _RARER = 3, 2
"""Jumps of a run that are examined, and the ratio of the steps of two that are examined after them. Of so many jumps
the batch is kept."""
_SMALL = 4096
_SINGLE = 4
"""Bytes of a number that numpy has at least in a kept batch."""
_OF_NUMPY = (torch.float16, torch.float32, torch.float64)
"""Dtypes with a point that numpy has: others are kept as float32."""


class FirstBad(Reader):
    """Searches the origin of the first non-finite value."""

    vigilant = frozenset({"call_begins", "backward_begins", "backward_ends"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.on = scene.settings.probes
        self._pass: tuple[Model, weakref.ref[nn.Module], Any, Any] | None = None
        self._kept = 0
        """Jumps whose batch was kept."""
        self._told_at = 0
        """The step in which that pass was told."""
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._least = 0.0
        """Lower bound of the sizes of the recent losses."""
        self._jumps = self._examined = 0
        """Jumps that were examined, and the step of the last."""
        self._done = False
        self._small: dict[str, TensorRef | None] = {}
        self._gaps = False
        """True once steps were not seen: a non-finite value may have its origin in one of them."""
        self._autocast: torch.dtype | None = None
        """Dtype of autocast in the newest training pass, None if off; autocast may be off when its loss is seen."""

    def resumes(self) -> None:
        """Drop the newest pass, which was before the gap."""
        self._gaps = True
        self._pass = None

    def call_begins(self, call: Call) -> None:
        """Record the arguments of the newest training pass, by weak references."""
        if not self.on or self._done or not call.grad or call.evaluating:
            return
        self._told_at = self.scene.step
        self._autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        if not call.kwargs and all(type(x) is torch.Tensor for x in call.args):  # the arguments of most models
            self._pass = (call.model, weakref.ref(wraps(call.module)), tuple(map(weakref.ref, call.args)), {})
            return
        try:
            given = rebuilt((call.args, call.kwargs), lambda _, x: weakref.ref(x))  # type: ignore[arg-type, return-value]
        except Unfit:
            self._pass = None
            return
        except (AttributeError, TypeError) as error:  # a class of its own that requires tensors
            let_pass(error, "searching for the first bad value")
            self._pass = None
            return
        self._pass = (call.model, weakref.ref(wraps(call.module)), *given)

    def backward_begins(self, backward: Backward) -> None:
        """Check the loss."""
        root, value = backward.root, backward.value
        if not self.on or self._done or value is None:
            return
        if not math.isfinite(value):
            if self.scene.losses.scale_in_step or self.scene.optimizers.loss_scale:
                return  # a scaler tries out its scale
            self._done = True
            self._forget_another()
            if self._fresh():
                self._forward(root)
            self._keep_batch(root)
            return
        self._forget_another()
        recent = self._recent
        # A bound is compared first: a median is expensive at every step.
        if value > _JUMP * self._least + 1e-6 and len(recent) >= _ENOUGH:
            self._least = min(map(abs, recent))
            due = self._jumps < _ODD or self.scene.step >= _RARER * self._examined
            if due and value > _JUMP * max(self._least, abs(statistics.median(recent))) + 1e-6:
                self._jumps, self._examined = self._jumps + 1, self.scene.step
                self._odd_batch()
                if self._kept < _ODD and value > _ABOVE * max(map(abs, recent)):
                    self._kept += 1
                    self._keep_batch(root)
        self._least = min(self._least, abs(value)) if recent else abs(value)
        recent.append(value)

    def backward_ends(self, backward: Backward) -> None:
        """Check one small gradient of the newest model: a NaN in a backward pass spreads to the first layer."""
        if not self.on or self._done or self._pass is None or not backward.accumulates:
            return
        model = self._pass[0]
        if model.name not in self._small:
            front = self._front(model)
            self._small[model.name] = TensorRef(front) if front is not None else None
        ref = self._small[model.name]
        small = named(ref) if ref is not None else None
        if small is None or all_finite(small) is not False:
            return
        if self.scene.losses.scale_in_step or self.scene.optimizers.loss_scale:
            return
        self._done = True
        self._forget_another()
        if self._fresh():
            self._replay(lambda bench: backward_birth(bench))  # noqa: PLW0108 (one form for all)

    def _forget_another(self) -> None:
        """Drop a pass of a step before: in light steps a pass is told of late, or not if an argument of it has died."""
        if self._pass is not None and self._told_at != self.scene.step and not self.scene.switch.in_full_step():
            self._pass = None

    def _fresh(self) -> bool:
        """Return True if the non-finite value was made in this step: after a gap the weights may have had it before."""
        weights = [operation.shown(w.ref) for w in self.scene.params.by_id.values() if self._gaps]
        return all(bool(x.detach().isfinite().all()) for x in weights if x is not None)

    def _front(self, model: Model) -> Tensor | None:
        """Return a small parameter of the layer that is called first: non-finite values of a backward pass reach it."""
        mine = {id(module) for module in modules(model.root)}
        for path in self.scene.hooks.called:
            module = self.scene.hooks.modules.get(path)
            if module is None or id(module) not in mine:
                continue
            own_small = (p for _, p in own_parameters(module) if p.requires_grad and p.numel() <= _SMALL)
            small = [p for p in own_small if p.is_floating_point()]
            if small:
                return min(small, key=Tensor.numel)
        return None

    def _forward(self, root: Tensor) -> None:
        given = self._given()
        rows = int(given[0].shape[0]) if given and given[0].dim() else 0
        node = node_of(root)
        found = bad_input(given, rows) or bad_target(node, rows)
        inside = False

        def search(bench: Bench) -> dict[str, Any] | None:
            nonlocal inside
            found, finite = forward_birth(bench)
            inside = not finite
            return found

        if found is None and not self._replay(search) and not inside:
            found = loss_birth(node, rows)
        if found is not None:
            self._log(found)

    def _replay(self, search: Any) -> bool:
        """Repeat the pass on a copy, with arguments that the program still holds. Return True for a finding."""
        if self._pass is None:
            return False
        model, called, args, kwargs = self._pass
        module = called()
        if module is None or company():
            return False
        try:
            with sessions_paused(), undisturbed():
                bench = Bench(model.name, twin(module), _held(args), _held(kwargs))
                for mine, theirs in zip(modules(bench.module), modules(module), strict=True):
                    own(mine)["training"] = training(theirs)
                with torch.autocast("cpu", dtype=self._autocast or torch.bfloat16, enabled=self._autocast is not None):
                    found: dict[str, Any] | None = search(bench)
        except Unfit:
            return False
        except Exception as error:  # noqa: BLE001 (the pass cannot be made again: that is no error of ours)
            let_pass(error, "searching for the first bad value")
            return False
        if found is None:
            return False
        prefix = f"{model.prefix}." if model.prefix and found["layer"] else ""
        self._log({**found, "layer": prefix + found["layer"], "model": model.name})
        return True

    def _log(self, found: dict[str, Any]) -> None:
        self.scene.log(
            FactKey.EXPERIMENT,
            {"id": "nonfinite_birth", "name": "nonfinite_birth", "judged": True, "step": self.scene.step, **found},
        )

    def _given(self) -> list[Tensor]:
        """Return the tensors of the newest pass's arguments that are still alive."""
        return [x for _, x in seen(_alive(self._pass[2:]))] if self._pass is not None else []

    def _odd_batch(self) -> None:
        """Log the scale of the newest batch, of the input in which one sample stands out, or else of the first."""
        found: dict[str, Any] | None = None
        for name, x in seen(_alive(self._pass[2:])) if self._pass is not None else ():
            if not x.is_floating_point() or x.dim() < 2 or x.shape[0] < 4 or not 0 < x.numel() <= _SMALL * 256:
                continue
            size = x.detach().abs().reshape(x.shape[0], -1).amax(1)
            top, usual = float(size.max()), float(size.median())
            outlier = usual > 0 and top > 3 * usual
            if outlier or found is None:
                known = {stat: value for stat, value in statistics_of(x).items() if math.isfinite(value)}
                found = {"sample": int(size.argmax()) if outlier else None, "leaf": name, "value": top, "usual": usual,
                         "low": known.get("min"), "high": known.get("max"), "rms": known.get("rms")}  # fmt: skip
            if outlier:
                break
        if found is not None:
            step = self.scene.step
            value = {"id": f"odd_sample:{step}", "name": "odd_sample", "judged": True, "step": step}
            self.scene.log(FactKey.EXPERIMENT, {**value, **found})

    def _keep_batch(self, root: Tensor) -> None:
        """Keep the inputs of the newest pass, and its targets, if there is room for them."""
        scene, held = self.scene, _named_inputs(_alive(self._pass[2:])) if self._pass is not None else {}
        node = node_of(root)
        if held and node is not None:
            for x in targets(node):
                held[_free("target", held)] = x
        if not held or sum(x.numel() * max(x.element_size(), _SINGLE) for x in held.values()) > scene.room():
            return
        with swallowing("keeping a batch"):
            arrays = {name: array for name, x in held.items() if (array := _array(x)) is not None}
            if name := scene.keep(scene.step, arrays):
                scene.kept[str(scene.step)] = name

    def stop(self) -> None:
        """Drop the newest pass and the chosen gradients."""
        self._pass = None
        self._small.clear()


def all_finite(x: Tensor) -> bool | None:
    """Return True if all of a gradient on the CPU is finite, None if there is no gradient. Runs at every step, usually
    on a few numbers.
    """
    found: bool | None = native.finite_gradient(x) if native is not None else None
    if found is not None:
        return found
    grad = tensor_memory.readable(x.grad)
    if grad is None or placement.lies(grad):
        return None
    return math.isfinite(grad.sum().item())


def _held(value: Any) -> Any:
    """Return copies of the tensors behind weak references. Raises Unfit if one has died."""

    def copy(ref: Any) -> Any:
        x = ref()
        if not tensor_memory.present(x):
            raise Unfit("its arguments are gone")
        return x.detach().clone()

    return _mapped(value, copy)


def _alive(value: Any) -> Any:
    return _mapped(value, lambda ref: ref())


def _named_inputs(given: Any) -> dict[str, Tensor]:
    """Return the tensors of the arguments of a call by name: ``input0`` for the first, keywords by their own."""
    found: dict[str, Tensor] = {}
    for name, x in seen(given):
        kind, _, rest = name.partition(".")
        found[_free((f"input{rest}" if kind == "0" else rest).replace("/", "_"), found)] = x
    return found


def _free(name: str, taken: dict[str, Tensor]) -> str:
    """Return a name that is not taken: itself, or with a number behind it."""
    return next(free for i in itertools.count() if (free := f"{name}_{i}" if i else name) not in taken)


def _array(x: Tensor) -> npt.NDArray[Any] | None:
    """Return a copy of a tensor for numpy, None for a dtype that has no numbers there. torch makes the copy: memory
    that numpy has seen can no longer be resized, and this one is the program's.
    """
    x = x.detach().to("cpu", copy=True).resolve_conj().resolve_neg()
    try:
        x = x.float() if x.is_floating_point() and x.dtype not in _OF_NUMPY else x
        array: npt.NDArray[Any] = x.numpy()
    except (TypeError, RuntimeError) as error:
        let_pass(error)
        return None
    return array


def _mapped(value: Any, put: Any) -> Any:
    kind = type(value)
    if kind is weakref.ref:
        return put(value)
    if kind is dict:
        return {key: _mapped(item, put) for key, item in value.items()}
    if kind is list:
        return [_mapped(item, put) for item in value]
    if issubclass(kind, tuple):
        return tuple.__new__(kind, [_mapped(item, put) for item in tuple.__iter__(value)])
    return value


READER = FirstBad
