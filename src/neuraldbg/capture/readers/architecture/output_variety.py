"""The reader of a model's inputs and outputs: their variation over the batch, and the size of logits.

A generator that returns the same picture for every noise, an encoder that returns the same code for every input, logits
that drift: all show in a few samples and a few hundred features. Of a model with one score a sample, as a critic, the
gradient that the loss sends to the scores is read, too: it says whether that loss wants them higher or lower.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.tensor_kinds import node_of, unheard
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import seen
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.loop.moments import Backward, Call
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

    sampled = frozenset({"call_begins", "call_ends", "backward_begins", "backward_ends", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._paths: tuple[int, dict[int, str]] = (-1, {})
        self._calls: dict[str, int] = {}
        self._inputs: list[dict[str, Any]] | None = None
        self._read: list[dict[str, Any]] = []
        """The facts of this step's calls: gradients of scores come after the calls."""
        self._scores: list[_ScoreHook] = []
        self.accumulates = False
        """True during a backward pass that adds to gradients: a gradient penalty's own pass wants nothing of scores."""

    def resumes(self) -> None:
        """Drop the calls of a step that was left."""
        self._release()
        self._read.clear()

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
            fact = {
                "part": part, "model": call.model.name, "call": self._calls[part] - 1, "batch": batch, "inputs": inputs,
                "outputs": found,
            }  # fmt: skip
            self._read.append(fact)
            self._listen(output, fact)

    def _listen(self, output: Any, fact: dict[str, Any]) -> None:
        """Set a hook on the graph's node of a model's only output, if it is one score for each sample or patch."""
        leaves = [x for _, x in seen(output)]
        if len(leaves) != 1 or not _is_score(leaves[0]):
            return
        node = node_of(leaves[0])
        if node is not None:
            self._scores.append(_ScoreHook(self, node, leaves[0].output_nr, fact))

    def backward_begins(self, backward: Backward) -> None:
        """Note whether the pass is one of training."""
        self.accumulates = backward.accumulates

    def backward_ends(self, backward: Backward) -> None:
        """Stop reading gradients of scores."""
        del backward
        self.accumulates = False

    def step_closes(self) -> None:
        """Log the calls of the step, with the gradients of their scores."""
        self._calls.clear()
        self._log()

    def summarise(self) -> None:
        """Log the calls of a step that is not closed yet."""
        self._log()

    def stop(self) -> None:
        """Remove all hooks."""
        self._release()

    def _log(self) -> None:
        for score in self._scores:
            score.tell()
        self._release()
        for fact in self._read:
            self.scene.log(FactKey.OUTPUTS, fact)
        self._read.clear()

    def _release(self) -> None:
        for score in self._scores:
            score.handle.remove()
        self._scores.clear()

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


def _is_score(x: Tensor) -> bool:
    """Return True for one number of each sample, or of each patch of it: shape (n,), (n, 1) or (n, 1, ...)."""
    return bool(x.dim() and x.shape[0] >= _FEWEST and (x.dim() == 1 or x.shape[1] == 1) and operation.observable(x))


class _ScoreHook:
    """The hook on the node of one call's scores. It changes nothing, and keeps our errors from the backward pass."""

    def __init__(self, owner: Outputs, node: Any, index: int, fact: dict[str, Any]) -> None:
        self._owner, self._index, self._fact = owner, index, fact
        self._sums: list[Tensor] = []
        """Sum of the gradients and of their sizes, of each backward pass."""
        with numbers_apart():
            self.handle = node.register_hook(self)

    def __call__(self, sent: tuple[Tensor | None, ...], got: tuple[Tensor | None, ...]) -> None:
        owner = self._owner
        try:
            if owner.accumulates and owner.scene.switch.in_full_step():
                gradient = got[self._index]
                if gradient is not None and operation.observable(gradient):
                    with unheard(), torch.no_grad():
                        gradient = gradient.detach().float()
                        self._sums.append(torch.stack([gradient.sum(), gradient.abs().sum()]))
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            owner.scene.tally.caught(owner.doing)

    def tell(self) -> None:
        """Write the pull of the loss on the scores into the fact."""
        if self._sums:
            total, size = torch.stack(self._sums).sum(0).tolist()
            if size > 0 and math.isfinite(size):
                self._fact["pull"] = round(-total / size, 4)


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
