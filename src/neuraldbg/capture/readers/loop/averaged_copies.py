"""The reader of averaged copies of a model: are they updated, and with what, by the time they are evaluated?

A copy is a watched model that no optimizer trains and that has the parameters of a trained one, name by name, or an
``AveragedModel``. It is compared with the trained model, and with its own first state, whenever it is evaluated: a few
values of a few weights, once a step.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.module_tree import module_attribute, modules, named_parameters, parameters, training, walk
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.layers.layer_names import known_as
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.loop.forward_pass import Model
    from neuraldbg.capture.loop.moments import Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene

_WEIGHTS = 3
"""Weights of a model that are compared."""
_VALUES = 64
"""Values of each weight that are compared."""
_NORMS = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 (the common base is not exported)
_COPIES = 16
_NAMES = 8
_OFTEN = 16
"""Evaluations after which one is read only with facts: some programs have one in every step."""


@dataclass(eq=False)
class Copy:
    """The state of one copy, or of a trained model that gets other weights for its evaluation."""

    model: str
    of: str
    names: list[str] = field(default_factory=list)
    kind: str = "copy"
    averaged: int | None = None
    """``n_averaged`` at the last reading, None if it is no ``AveragedModel``."""
    evaluated: int = 0
    first: int = 0
    last: int = -1
    began: Tensor | None = None
    """The copy's weights at the first reading, None before."""
    began_equal: bool = False
    constant: bool = True
    follows: bool = True
    moved: bool = False
    written: int = 0
    """Number of readings before which the copy's weights had been written to."""
    refreshed: int = 0
    """Number of readings before which the copy's running statistics had changed."""
    own_passes: bool = False
    """True once the copy was called in training mode, which changes its statistics by itself."""
    lag: float | None = None
    """Distance of the copy from all multiples of the first weights, relative to that of the trained model; None if not
    known."""
    versions: tuple[int, Tensor] | None = None
    stale_norms: dict[str, None] = field(default_factory=dict)
    average: weakref.ref[AveragedModel] | None = None
    apart: bool = False
    """True if the copy's weights differ from the trained model's when the run is summarised, after unseen steps."""
    swapped: bool = False


class Copies(Reader):
    """Compares averaged copies of models with the trained models."""

    sampled = frozenset({"step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._first: dict[str, Tensor] = {}
        """Weights of each trained model before its first step."""
        self._twins: dict[str, Model | None] = {}
        self._copies: dict[str, Copy] = {}
        self._gaps = self._blind = False
        """True if steps were ever not seen (``_gaps``), and if the step before this one was not (``_blind``)."""

    def resumes(self) -> None:
        """Handle a gap: writes to a copy, and the first state of a new model, are not known."""
        self._gaps = self._blind = True
        for one in self._copies.values():
            one.versions = None

    def step_begins(self, stream: Stream, opt: Any) -> None:
        """Keep the first weights of a trained model."""
        if len(self._first) < len(self.scene.models.found):
            for model in self.scene.models.found:
                if model.name not in self._first:
                    began = _sample(model.root) if not self._blind else None
                    self._first[model.name] = torch.zeros(0) if began is None else began
        self._blind = False

    def call_begins(self, call: Call) -> None:
        """Read a copy that is evaluated, and a trained model that is."""
        if call.grad and not call.evaluating:
            return
        name = call.model.name
        known = self._copies.get(name)
        if known is not None and training(call.model.root):
            known.own_passes = True
        often = known is not None and known.evaluated >= _OFTEN and not self.scene.reading
        if known is not None and (known.last == self.scene.step or often):
            return
        if known is None and (len(self._copies) >= _COPIES or not self.scene.optimizers.streams):
            return
        if not call.first:
            return
        trained = self._trained_twin(call.model)
        if trained is None:
            return
        if known is None:
            # inside a validating function it is called `model`: further out it has its own name
            names = {*known_as(call.model.root), *known_as(call.module)}
            known = self._copies[name] = Copy(name, trained.name, first=self.scene.step, names=sorted(names)[:_NAMES])
        self._look(known, call, trained)

    def _look(self, one: Copy, call: Call, trained: Model) -> None:
        # Equality means nothing before the first update.
        now, beside = _sample(call.model.root), _sample(trained.root)
        began = self._first.get(trained.name)
        if now is None or beside is None:
            return
        if began is None or began.shape != beside.shape or now.shape != beside.shape:
            return
        one.last = self.scene.step
        # The trained model itself may be evaluated with other weights swapped in.
        own = trained is call.model
        if self.scene.step == 0 or (not own and torch.equal(began, beside)):
            return  # nothing has been trained yet: to be equal says nothing
        if one.began is None:
            one.began = now
            one.began_equal = torch.equal(now, began)
        one.evaluated += 1
        one.moved = one.moved or not own
        one.constant = one.constant and torch.equal(now, one.began)
        if own:
            one.swapped = True
        else:
            one.follows = one.follows and torch.equal(now, beside)
            self._see_writes(one, call.model.root, now, began, beside)
        if is_a(call.module, AveragedModel):
            one.kind, one.averaged = "AveragedModel", _averaged(call.module)
            one.average = weakref.ref(call.module)
        # Batch-norm statistics of a copy stay at zero batches unless the program updates them.
        for path, module in walk(call.model.root):
            still = is_a(module, _NORMS) and not training(module) and len(one.stale_norms) < _NAMES
            if still and number(module_attribute(module, "num_batches_tracked")) == 0:
                one.stale_norms[path] = None

    @staticmethod
    def _see_writes(one: Copy, root: nn.Module, now: Tensor, began: Tensor, beside: Tensor) -> None:
        """Record signs of a running update: writes to the weights, new running statistics, and the distance covered."""
        way = _off_line(beside, began)
        one.lag = _off_line(now, began) / way if way > 0 else None
        versions = sum(p._version for p in parameters(root))  # noqa: SLF001
        if training(root):
            one.own_passes = True
        means = (tensor_memory.readable(module_attribute(module, "running_mean")) for module in modules(root))
        running = [b for b in means if b is not None][:1]
        statistics = running[0].detach().to("cpu", torch.float64, copy=True) if running else torch.zeros(0)
        if one.versions is not None:
            one.written += versions != one.versions[0]
            one.refreshed += not torch.equal(statistics, one.versions[1])
        one.versions = versions, statistics

    def _trained_twin(self, model: Model) -> Model | None:
        """Return the trained model that this one copies; itself if an optimizer trains it; None if there is none."""
        if model.name in self._twins and self._twins[model.name] is not None:
            return self._twins[model.name]
        rates = self.scene.optimizers.rates()
        names: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        trained = {w.model for key, w in self.scene.params.by_id.items() if key in rates}
        if model.name in trained:
            found: Model | None = model
        else:
            for other in (model, *self.scene.models.found):
                names[other.name] = [(n, tuple(p.shape)) for n, p in named_parameters(other.root)]
            found = next(
                (m for m in self.scene.models.found if m.name in trained and names[m.name] == names[model.name]), None
            )
        self._twins[model.name] = found
        return found

    def step_closes(self) -> None:
        """Log the copies in steps whose facts are read."""
        if not self.scene.reading:
            return
        for model in self.scene.models.found:
            one = self._copies.get(model.name)
            if one is not None and one.swapped and not one.moved and not model.gone:
                now = _sample(model.root)
                one.moved = now is not None and not torch.equal(now, self._first[model.name])
        self._tell()

    def summarise(self) -> None:
        """Log the copies. Updates in steps that were not seen show now."""
        if self._gaps:
            for model in self.scene.models.found:
                one = self._copies.get(model.name)
                if one is not None and one.began is not None and not one.swapped and not model.gone:
                    self._look_back(one, model)
        self._tell()

    def _look_back(self, one: Copy, model: Model) -> None:
        now = _sample(model.root)
        if now is None:
            return
        average = one.average() if one.average is not None else None
        beside = next((m for m in self.scene.models.found if m.name == one.of), None)
        one.constant = one.constant and one.began is not None and torch.equal(now, one.began)
        one.averaged = _averaged(average) if average is not None else one.averaged
        other = _sample(beside.root) if beside is not None else None
        one.apart = other is not None and not torch.equal(now, other)

    def _tell(self) -> None:
        for one in self._copies.values():
            if one.evaluated and not (one.swapped and not (one.constant and one.began_equal)):
                self._say(one)

    def _say(self, one: Copy) -> None:
        value = {
            "model": one.model, "names": one.names, "of": one.of, "kind": one.kind, "evaluated": one.evaluated,
            "first": one.first, "last": one.last, "began_equal": one.began_equal, "constant": one.constant,
            "follows": one.follows, "moved": one.moved, "averaged": one.averaged,
            "stale_norms": list(one.stale_norms), "swapped": one.swapped, "lag": one.lag, "written": one.written,
            "apart": one.apart, "unseen": self._gaps, "refreshed": 0 if one.own_passes else one.refreshed,
        }  # fmt: skip
        self.scene.log(FactKey.COPIES, value)


def _off_line(now: Tensor, began: Tensor) -> float:
    """Return the distance from all multiples of the first weights: an update that only shrinks them is none."""
    squares = float(began @ began)
    return float((now - float(now @ began) / squares * began).norm()) if squares > 0 else 0.0


def _averaged(average: AveragedModel) -> int:
    return int(number(module_attribute(average, "n_averaged")) or 0)


def _sample(root: nn.Module) -> Tensor | None:
    """Return some values of a model's first weights, as float64 on the CPU; None if one cannot be read."""
    weights = parameters(root)
    chosen = [p for p in weights if p.dim() > 1][:_WEIGHTS] or weights[:_WEIGHTS]
    values = []
    for parameter in chosen:
        held = tensor_memory.readable(parameter)
        if held is None:
            return None
        some = operation.spaced(held.detach(), max(1, held.numel() // _VALUES), _VALUES)
        values.append((torch.view_as_real(some).flatten() if some.is_complex() else some).to("cpu", torch.float64))
    return torch.cat(values) if values else torch.zeros(0)


READER = Copies
