"""The reader of batches: differences between training and evaluation inputs, repeated samples, odd batch sizes.

A pass costs a small copy of its first input, which goes into the ledger of its model. BATCHES facts leave when the run
is summarised, one for each model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.program_objects import attribute
from neuraldbg.capture.layers.layer_names import wraps
from neuraldbg.capture.readers.data.input_ledger import Ledger
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Call
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_SIZES, _MODELS = 64, 8
"""Datasets and models that are kept apart, at most."""


class Batches(Reader):
    """Reads the first input of each model's passes."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._of: dict[str, Ledger] = {}
        self._source = self._delivered = 0
        self._alike: dict[int, dict[str, Any] | None] = {}

    def patches(self) -> Iterable[Patch]:
        """Return the wrapper of a DataLoader's ``__next__``."""
        return [(_BaseDataLoaderIter, "__next__", self._delivers)]

    def _delivers(self, iterator: Any) -> Around:
        yield
        if self.scene.switch.in_full_step():
            self.seen(self._deliver, iterator)

    def _deliver(self, iterator: Any) -> None:
        self._source = id(attribute(iterator, "_dataset"))
        self._delivered += 1
        if self._source not in self._alike and len(self._alike) < _SIZES:
            from neuraldbg.capture.readers.data.worker_seeds import alike  # noqa: PLC0415 (only where there is a loader)

            self._alike[self._source] = alike(iterator)

    def resumes(self) -> None:
        """Handle a gap: the next batch may be of any dataset, and equal to none before it."""
        self._source = 0
        for ledger in self._of.values():
            ledger.cut()

    def call_begins(self, call: Call) -> None:
        """Take a small copy of the first input."""
        if not call.first or wraps(call.module) is not call.model.root:
            return
        ledger = self._of.get(call.model.name)
        if ledger is None:
            if len(self._of) >= _MODELS:
                return
            ledger = self._of[call.model.name] = Ledger(call.model.name)
        x = call.args[0] if call.args and type(call.args[0]) is torch.Tensor else _first(call)
        held = tensor_memory.readable(x)
        if x is None or held is None or not held.dim() or held.is_complex():
            return
        source = self._source if ledger.delivered != self._delivered else 0
        ledger.delivered = self._delivered
        if source and not call.evaluating and ledger.alike is None:
            ledger.alike = self._alike.get(source)
        ledger.take(self.scene.step, x, held, call, source)

    def summarise(self) -> None:
        """Log the BATCHES facts."""
        for ledger in self._of.values():
            fact = ledger.fact()
            if fact is not None:
                self.scene.log(FactKey.BATCHES, fact)

    def stop(self) -> None:
        """Drop all ledgers."""
        self._of.clear()


def _first(call: Call) -> Tensor | None:
    return next((x for _, x in leaves((call.args, call.kwargs))), None)


READER = Batches
