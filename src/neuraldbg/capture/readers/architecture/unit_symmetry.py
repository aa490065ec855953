"""The reader of symmetric units: rows of a weight matrix that are equal, and their gradients.

Equal rows are searched in the first steps; those that were found are followed. A last layer that begins at zero gets a
different gradient for each unit and is no longer symmetric after one step; equal rows in a hidden layer with equal
outgoing weights stay equal for ever.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics.operation import observable
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.statistics.watched_parameter import Watched

_ROWS, _COLUMNS = 16, 256
"""Rows and columns read of a matrix: neighbouring rows at its beginning, which are in one gate of a recurrent layer."""
_ALIKE = 1e-3
"""Spread of the rows, relative to their size, below which a matrix is followed; a random one has about 1."""
_FIRST = 3
"""Steps of each optimizer in which all matrices are read."""
_LISTED = 64


class Symmetry(Reader):
    """Reads weights and final gradients just before a step."""

    sampled = frozenset({"step_begins"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._suspects: dict[str, None] = {}
        self._last = -1
        self._looks = 0
        self._known = 0

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Read weights and gradients of all matrices, or of those that were symmetric before."""
        if not self.scene.reading or self._last == self.scene.step:
            return
        self._last = self.scene.step
        every = [w for w in self.scene.params.by_id.values() if self._matrix(w)]
        if len(every) != self._known:  # a model was added
            self._known, self._looks = len(every), 0
        self._looks += 1
        wide = self._looks <= _FIRST
        looked = every if wide else [w for w in every if w.name in self._suspects]
        if not looked:
            return
        entries = self._read(looked)
        for entry in entries:
            if entry["spread"] < _ALIKE:
                self._suspects.setdefault(entry["name"])
        told = [entry for entry in entries if entry["name"] in self._suspects]
        if told:
            self.scene.log(FactKey.SYMMETRY, {"step": self.scene.step, "layers": told[:_LISTED]})

    def _matrix(self, w: Watched) -> bool:
        ref = w.ref
        if ref.dim() < 2 or ref.shape[0] < 2 or not ref.requires_grad or not observable(ref):
            return False
        # Rows of an embedding are not units, and those that are in no batch keep their initial values.
        return not is_a(self.scene.hooks.modules.get(w.layer), (nn.Embedding, nn.EmbeddingBag))

    def _read(self, looked: list[Watched]) -> list[dict[str, Any]]:
        numbers: list[Tensor] = []
        with torch.no_grad():
            for w in looked:
                grad = w.ref.grad
                numbers += _spread(w.ref)
                numbers += _spread(grad) if grad is not None and observable(grad) else [numbers[-1] * float("nan")] * 2
            values = torch.stack([each.cpu() if each.is_cuda else each for each in numbers]).tolist()
        found = []
        for place, w in enumerate(looked):
            about, size, grad_about, grad_size = values[4 * place : 4 * place + 4]
            has_grad = not math.isnan(grad_size)
            # Unused rows (far distances in a table of positions) are no units: zeros must be all zeros.
            if size == 0.0 and bool(w.ref.detach().any()):
                continue
            if grad_size == 0.0 and w.ref.grad is not None and bool(w.ref.grad.any()):
                continue
            found.append(
                {
                    "name": w.name, "layer": w.layer, "units": int(w.ref.shape[0]),
                    "spread": _ratio(about, size), "zero": size == 0.0,
                    "gradient": _ratio(grad_about, grad_size) if has_grad else None,
                    "gradient_zero": grad_size == 0.0,
                }
            )  # fmt: skip
        return found


def _spread(x: Tensor) -> list[Tensor]:
    """Return the mean square of the rows about their mean row, and of the rows."""
    rows = x.detach()[:_ROWS].flatten(1)[:, :_COLUMNS].float()
    return [(rows - rows.mean(0)).square().mean(), rows.square().mean()]


def _ratio(about: float, size: float) -> float:
    return float(f"{(about / size) ** 0.5:.3g}") if size > 0 else 0.0


READER = Symmetry
