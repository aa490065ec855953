"""The reader of batch normalisation: settings, number of values behind a statistic, changes of running statistics.

The statistics of a batch cost nothing to read: they follow from the running statistics before and after the call,
``after = (1 - momentum) * before + momentum * batch``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import module_attribute, own_parameters, training
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import attribute, is_a
from neuraldbg.capture.guest.weak_references import Modules
from neuraldbg.capture.readers.architecture.layer_visits import Visits
from neuraldbg.capture.statistics import operation
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.loop.reader_context import Scene

_LAYERS = 48
"""Layers that are read at most, evenly spaced."""
_SAMPLE = 256
"""Elements of the preceding weight that are compared with their first values."""
_EXACT = 1e-3
"""Momentum from which the batch's statistics can be computed from float32 buffers: below, too few digits are left."""
_BatchNorm = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 (the common base is not exported)


@dataclass
class _First:
    """The state of a layer when it was first seen; small copies of our own."""

    mean: Tensor | None
    fresh: bool
    weight: Tensor | None
    frozen: bool


class Norms(Visits):
    """Reads each batch-norm layer in the training passes of the steps in which facts are read."""

    sampled = frozenset({"call_begins", "call_ends", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._before: dict[str, tuple[Tensor, Tensor]] = {}
        self._first: dict[str, _First] = {}
        self._weights = Modules()
        self._seen: dict[str, dict[str, Any]] = {}

    def chosen(self, modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
        """Return the batch-norm layers, and remember the layer whose output each normalises."""
        latest: nn.Module | None = None
        found: dict[str, nn.Module] = {}
        self._weights = Modules()
        for path, module in modules.items():
            if is_a(module, _BatchNorm):
                found[path] = module
                if latest is not None:
                    self._weights[path] = latest
            elif is_a(weight := dict(own_parameters(module)).get("weight"), Tensor) and weight.dim() >= 2:
                latest = module
        return {path: found[path] for path in list(found)[:: -(-len(found) // _LAYERS) or 1]}

    def arrives(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Copy the running statistics before the call."""
        mean, var = _running(module)
        frozen, first = self._frozen(path, module), self._first.get(path)
        if first is None or (frozen and not first.frozen):  # a layer that is frozen now begins again
            fresh = mean is not None and var is not None and bool((mean == 0).all()) and bool((var == 1).all())
            copy = mean.clone() if mean is not None else None
            self._first[path] = _First(copy, fresh, self._weight(path), frozen)
        else:
            first.frozen = frozen
        if mean is not None and var is not None and training(module):
            self._before[path] = (mean.clone(), var.clone())

    def leaves(self, path: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Compare the running statistics with those before. Of several calls the one with the fewest values counts."""
        x = tensor_memory.readable(args[0] if args and is_a(args[0], Tensor) else output)
        before, first = self._before.pop(path, None), self._first.get(path)
        if x is None or x.dim() < 2 or first is None:
            return
        elements = x.numel() // max(1, x.shape[1])
        known, frozen = self._seen.get(path), self._frozen(path, module)
        if known is not None and known["elements"] <= elements:
            known["frozen"] = known["frozen"] and frozen
            return
        momentum = number(attribute(module, "momentum"))
        now = self._weight(path)
        self._seen[path] = {
            "layer": path, "momentum": momentum, "tracking": before is not None or _tracks(module),
            "frozen": frozen, "still": first.weight is not None and now is not None and torch.equal(first.weight, now),
            "training": training(module), "fresh": first.fresh, "batch": int(x.shape[0]), "elements": elements,
            **_gaps(module, before, first.mean),
        }  # fmt: skip

    def step_closes(self) -> None:
        """Log the layers read in this step."""
        if self._handles:
            super().step_closes()
        if self._seen:
            order = [path for path in self._layers() if path in self._seen]
            self.scene.log(FactKey.NORMS, {"step": self.scene.step, "layers": [self._seen[path] for path in order]})
            self._seen.clear()
            self._before.clear()

    def _frozen(self, path: str, module: nn.Module) -> bool:
        """Return True if there are parameters, and neither the layer's nor the preceding matrix requires gradients."""
        layer = self._weights.get(path)
        before = [module_attribute(layer, "weight")] if layer is not None else []
        held = [*(p for _, p in own_parameters(module)), *before]
        return bool(held) and not any(p is not None and p.requires_grad for p in held)

    def _weight(self, path: str) -> Tensor | None:
        layer = self._weights.get(path)
        weight = module_attribute(layer, "weight") if layer is not None else None
        return (
            operation.sample(weight.detach(), _SAMPLE).clone()
            if weight is not None and operation.observable(weight)
            else None
        )


def _running(module: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """Return the running statistics of a layer, None for one that it does not keep or that cannot be read."""
    mean, var = (module_attribute(module, name) for name in ("running_mean", "running_var"))
    return tensor_memory.readable(mean), tensor_memory.readable(var)


def _tracks(module: nn.Module) -> bool:
    return is_a(module_attribute(module, "running_mean"), Tensor)


def _gaps(module: nn.Module, before: tuple[Tensor, Tensor] | None, first: Tensor | None) -> dict[str, Any]:
    """Return the distances between batch, running and first statistics: medians over the channels."""
    found: dict[str, Any] = {"mean_gap": None, "var_gap": None, "drift": 0.0, "moved": False}
    mean, var = _running(module)
    if mean is None or var is None:
        return found
    spread = var.clamp_min(1e-12).sqrt()
    numbers = [((mean - first).abs() / spread).median() if first is not None else mean.new_zeros(())]
    if before is not None:
        count = number(module_attribute(module, "num_batches_tracked"))
        momentum = number(attribute(module, "momentum"))
        m = momentum if momentum is not None else 1 / max(1.0, count if count is not None else 1.0)
        if m >= _EXACT:
            old_mean, old_var = before
            batch_mean = (mean - (1 - m) * old_mean) / m
            batch_var = ((var - (1 - m) * old_var) / m).clamp_min(1e-12)
            old_var = old_var.clamp_min(1e-12)
            numbers.append(((batch_mean - old_mean).abs() / old_var.sqrt()).median())
            numbers.append((batch_var / old_var).log().abs().median())
    values = [round(value, 4) for value in torch.stack(numbers).double().tolist()]
    found["drift"] = values[0]
    found["moved"] = first is not None and not torch.equal(mean, first)
    if len(values) > 1:
        found["mean_gap"], found["var_gap"] = values[1:]
    return found


READER = Norms
