"""The reader of a model's inputs and outputs: their variation over the batch, and the size of logits.

A generator that returns the same picture for every noise, an encoder that returns the same code for every input, logits
that drift: all show in a few samples and a few hundred features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import seen
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.loop.moments import Call
    from neuraldbg.capture.loop.reader_context import Scene

_SAMPLES, _FEATURES, _ROWS = 32, 1024, 16
_FEWEST = 4
"""Samples that a batch needs for a variation."""
_LEAVES = 4
_CALLS = 4
"""Calls of one part in a step that are read: an agent calls its policy a thousand times."""
_COLUMNS = 262_144


class Outputs(Reader):
    """Reads inputs and outputs of the calls of a step in which facts are read."""

    sampled = frozenset({"call_begins", "call_ends", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._paths: tuple[int, dict[int, str]] = (-1, {})
        self._calls: dict[str, int] = {}
        self._inputs: list[dict[str, Any]] | None = None

    def call_begins(self, call: Call) -> None:
        """Read the inputs before the call: the model may change them."""
        self._inputs = None
        if self.scene.reading and call.grad and not call.evaluating and not operation.transforming():
            given = call.args[0] if len(call.args) == 1 and not call.kwargs else (*call.args, *call.kwargs.values())
            self._inputs = [_variety(leaf, x, logits=False) for leaf, x in _readable(given, ids=True)]

    def call_ends(self, call: Call, output: Any) -> None:
        """Read the outputs."""
        inputs, self._inputs = self._inputs, None
        if inputs is None:
            return
        part = self._path(call)
        self._calls[part] = self._calls.get(part, 0) + 1
        if self._calls[part] > _CALLS:
            return
        found = [_variety(leaf, x, logits=True) for leaf, x in _readable(output, ids=False)]
        if found or inputs:  # a critic's scores are often one number per sample, 1-D
            batch = int((found or inputs)[0]["shape"][0])
            self.scene.log(
                FactKey.OUTPUTS,
                {"part": part, "model": call.model.name, "batch": batch, "inputs": inputs, "outputs": found},
            )

    def step_closes(self) -> None:
        """Reset the counts of the step's calls."""
        if self._calls:
            self._calls.clear()

    def _path(self, call: Call) -> str:
        modules = self.scene.hooks.modules
        if self._paths[0] != modules.changes:
            self._paths = (modules.changes, {id(module): path for path, module in modules.items()})
        return self._paths[1].get(id(call.module), "") or call.model.name


def _readable(value: Any, *, ids: bool) -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []
    for leaf, x in seen(value):
        if len(found) == _LEAVES:
            break
        if x.dim() < 2 or x.shape[0] < _FEWEST:
            continue
        if operation.observable(x) or (ids and not x.is_floating_point() and not x.is_complex() and x.numel()):
            found.append((leaf, x))
    return found


def _variety(leaf: str, x: Tensor, *, logits: bool) -> dict[str, Any]:
    with torch.no_grad():
        x = x.detach()
        some = x[:: -(-x.shape[0] // _SAMPLES)].flatten(1)
        rows = some[:, :: -(-some.shape[1] // _FEATURES)].float()
        n = rows.shape[0]
        unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
        numbers = [
            rows.var(0, unbiased=False).mean().sqrt(),
            rows.square().mean().sqrt(),
            (unit.sum(0).square().sum() - unit.square().sum()) / (n * (n - 1)),
        ]
        wide = logits and x.is_floating_point() and 2 <= x.shape[-1] <= _COLUMNS
        if wide:
            flat = x[:: -(-x.shape[0] // _ROWS)].flatten(0, -2)
            numbers.append(flat[:: -(-flat.shape[0] // _ROWS)].float().logsumexp(-1).mean())
        values = [float(f"{value:.4g}") for value in torch.stack(numbers).tolist()]
    return {
        "leaf": leaf, "shape": list(x.shape), "across": values[0], "scale": values[1], "alike": values[2],
        "log_z": values[3] if wide else None,
    }  # fmt: skip


READER = Outputs
