"""The reader of evaluations: passes without gradients, or with gradients and no backward pass, and their mode.

Passes between two optimizer steps make one burst. A validation is a burst of several passes now and then; a pass
without gradients in every step is part of the training (a generator for its discriminator, pseudo labels).
"""

from __future__ import annotations

import weakref
from collections import UserDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from neuraldbg.capture.guest.module_tree import training
from neuraldbg.capture.guest.program_objects import attribute, is_a, items
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.loop.forward_pass import Model
    from neuraldbg.capture.loop.moments import Call
    from neuraldbg.capture.loop.reader_context import Scene

_NORMS = nn.modules.batchnorm._NormBase  # noqa: SLF001 (the common base is not exported)
_FULL = 64
"""Passes of a step that ``Models`` keeps at most: beyond that those without a backward pass cannot be counted."""
_NOTED = 8


@dataclass(eq=False)
class Burst:
    """The passes of one model since the last optimizer step."""

    train: int = 0
    """Passes without gradients, in training mode."""
    evaluation: int = 0
    graded: int = 0
    """Passes with gradients, in training mode; those that a backward pass reaches are no evaluation."""
    repeated: int = 0
    layers: dict[str, nn.Module] = field(default_factory=dict)
    alone: bool = True
    """True if the burst's only input was the one that all bursts before had."""


@dataclass(eq=False)
class Record:
    """The evaluations of one model over the run."""

    model: Model
    burst: Burst = field(default_factory=Burst)
    bursts: int = 0
    train_bursts: int = 0
    eval_bursts: int = 0
    passes: int = 0
    longest: int = 0
    repeated: int = 0
    same: bool = True
    grad: bool = False
    first: int = -1
    layers: dict[str, nn.Module] = field(default_factory=dict)
    newest: weakref.ref[Tensor] | None = None
    only: weakref.ref[Tensor] | None = None
    trained: weakref.ref[Tensor] | None = None


class Evals(Reader):
    """Counts the bursts of evaluations of each watched model."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._records: dict[str, Record] = {}
        self._closed = 0
        """Number of steps that were seen with all passes before them."""
        self._blind = False
        """True if the step before this one was not seen: a pass may check the batch that was trained on in it."""

    def resumes(self) -> None:
        """Drop all bursts after a gap."""
        self._blind = True
        for record in self._records.values():
            record.burst = Burst()
            record.newest = record.trained = None

    def call_begins(self, call: Call) -> None:
        """Count the pass."""
        model = call.model
        if not call.first or not model.mode_layers or (self._blind and not (call.grad and training(model.root))):
            return
        # Passes with gradients may be training; the step's end tells, by the backward passes that reached them.
        record = self._records.get(model.name)
        if record is None:
            record = self._records[model.name] = Record(model)
        burst, given = record.burst, _first_tensor(call)
        trains = training(model.root)
        if call.grad and trains:
            burst.graded += 1
            record.trained = weakref.ref(given) if given is not None else None
            if given is not None and record.only is not None and record.only() is given:
                record.same = False  # it is trained on
            return
        if record.trained is not None and record.trained() is given:
            return  # a check of the batch that is trained on, no validation
        if not (model.trained_in_train_mode or model.trained_in_eval_mode):
            return
        # In eval mode all is well; in train mode layers that switch must all be on.
        if not trains:
            burst.evaluation += 1
            return
        usual = {path: layer for path, layer in model.mode_layers.items() if not _recalibrated(layer)}
        active = {path: layer for path, layer in usual.items() if training(layer)}
        if not active or len(active) < len(usual):
            return  # single layers were switched on purpose
        burst.layers = burst.layers or active
        burst.train += 1
        self._note_input(record, burst, given)

    def _note_input(self, record: Record, burst: Burst, given: Tensor | None) -> None:
        if given is None:
            record.same = False
            return
        burst.repeated += record.newest is not None and record.newest() is given
        record.newest = weakref.ref(given)
        if record.only is None:
            record.only = weakref.ref(given)
        elif record.only() is not given:
            record.same = False

    def step_closes(self) -> None:
        """End the bursts before this step."""
        self._closed += not self._blind
        passes = self.scene.models.passes
        for record in self._records.values():
            burst = record.burst
            if self._blind:
                record.burst = Burst()
            elif burst.train or burst.evaluation or burst.graded > 1:
                reached = sum(1 for done in passes if done.model is record.model and done.first and done.training)
                loose = burst.graded - reached if reached > 0 and len(passes) < _FULL else 0
                self._end(record, loose)
            else:
                burst.graded = 0
        self._blind = False
        if self.scene.reading:
            self._tell()

    def _end(self, record: Record, loose: int) -> None:
        burst, record.burst = record.burst, Burst()
        record.newest = None
        in_train = burst.train + max(loose, 0)
        if in_train == 0 and burst.evaluation == 0:
            return
        record.bursts += 1
        record.eval_bursts += burst.evaluation > 0
        if in_train == 0:
            return
        record.train_bursts += 1
        if loose > 0 and not burst.layers:
            record.grad, record.same = True, False
            burst.layers = {path: layer for path, layer in record.model.mode_layers.items() if training(layer)}
        record.layers.update(burst.layers)
        record.passes += in_train
        record.longest = max(record.longest, in_train)
        record.repeated += burst.repeated
        record.same = record.same and in_train == 1
        record.first = self.scene.step if record.first < 0 else record.first

    def summarise(self) -> None:
        """End the burst that no step follows."""
        for record in self._records.values():
            # after the last step no backward pass will come
            if self._blind:
                continue
            if record.burst.train or record.burst.evaluation or (record.burst.graded and not self.scene.models.passes):
                self._end(record, record.burst.graded if not self.scene.models.passes else 0)
        self._tell()

    def _tell(self) -> None:
        for record in self._records.values():
            if not record.train_bursts:
                continue
            norms = [path for path, layer in record.layers.items() if is_a(layer, _NORMS)]
            value: dict[str, Any] = {
                "model": record.model.name, "bursts": record.bursts, "train_bursts": record.train_bursts,
                "eval_bursts": record.eval_bursts, "passes": record.passes, "longest": record.longest,
                "repeated": record.repeated, "same": record.same, "steps": self._closed, "grad": record.grad,
                "first": record.first, "dropout": [p for p in record.layers if p not in norms][:_NOTED],
                "norms": norms[:_NOTED],
            }  # fmt: skip
            self.scene.log(FactKey.EVALUATION_MODES, value)


def _recalibrated(layer: nn.Module) -> bool:
    """Return True if a batch norm averages over all batches now, as ``update_bn`` sets it for a pass over the data."""
    return is_a(layer, _NORMS) and attribute(layer, "momentum") is None


def _first_tensor(call: Call) -> Tensor | None:
    value = call.args[0] if call.args else next(iter(call.kwargs.values()), None)
    if is_a(value, (dict, UserDict)):
        value = next((item for _, item in items(value)), None)
    return value if is_a(value, Tensor) else None


READER = Evals
