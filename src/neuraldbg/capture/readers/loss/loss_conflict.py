"""The reader of conflicts between losses: gradients of two terms at shared weights that point in opposite directions.

Two forms are seen. Terms of one sum: if two terms reach the same layer's output (or the same parameter), the gradients
that they send there are read at the nodes of the graph; nothing runs twice. Losses whose backward passes run one after
the other: the gradients of a few parameters before and after each. Only in steps in which facts are read.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.autograd.graph_walk import op_name
from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.tensor_kinds import node_of, silently, unheard
from neuraldbg.capture.parameters.weight_samples import cosine, joined
from neuraldbg.capture.readers.loss.shared_branches import layer_of, meetings, terms
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from neuraldbg.capture.autograd.graph_walk import Node
    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.statistics.watched_parameter import Watched

    Vector = npt.NDArray[np.float32]

_MEMBERS = 6
_ELEMENTS = 1024
"""Elements of one gradient that are compared at most."""
_BACKWARDS = 4
"""Backward passes of one step that are compared at most: more than this are micro-batches."""


class LossBranches(Reader):
    """Reads the gradients that single losses send to shared tensors."""

    sampled = frozenset({"backward_begins", "backward_ends", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._handles: list[Any] = []
        self._sent: dict[tuple[int, int], Tensor] = {}
        """{(place, term): sum of the sampled gradients that the term sent there}."""
        self._names: list[str] = []
        self._layer: str | None = None
        self._before: Vector | None = None
        self._members: list[Watched] = []
        self._passes: list[tuple[str, Vector]] = []
        """For each backward pass of this step: its loss terms, and the change of the gradients."""

    def resumes(self) -> None:
        """Drop the state of the step before."""
        self._release()
        self._passes, self._members, self._before = [], [], None

    def backward_begins(self, backward: Backward) -> None:
        """Set hooks where terms meet, and sample the current gradients."""
        self._release()
        if not (backward.accumulates and backward.walk is not None):
            return
        self._listen(node_of(backward.root))
        if len(self._passes) < _BACKWARDS:
            self._members = self._members or self._choose()
            self._before = self._gradients()

    def _choose(self) -> list[Watched]:
        found = [w for w in self.scene.params.by_id.values() if w.ref.dim() > 1 and w.ref.requires_grad and not w.rows]
        found = [w for w in found if operation.observable(w.ref) and w.ref.is_contiguous()]
        places = np.linspace(0, len(found) - 1, min(_MEMBERS, len(found))).round().astype(int)
        return [found[i] for i in places]

    def _gradients(self) -> Vector | None:
        if not self._members:
            return None
        grads = [w.ref.grad if w.ref.grad is not None else torch.zeros(w.ref.shape) for w in self._members]
        if not all(operation.observable(g) and g.is_contiguous() and not placement.lies(g) for g in grads):
            return None
        return joined([g.detach() for g in grads])

    def _listen(self, root: Node) -> None:
        parts = terms(root)
        if len(parts) < 2:
            return
        found = meetings(parts)
        marks = self.scene.hooks.marks
        self._names = [f"{op_name(part)} of {layer_of(part, marks) or 'the loss'}" for part in parts]
        self._layer = layer_of(found[0].node, marks) if found else None
        by_node: dict[Node, list[tuple[int, int, int]]] = {}
        for place, meeting in enumerate(found):
            for term, node, index in meeting.ways:
                by_node.setdefault(node, []).append((place, term, index))
        with numbers_apart():
            self._handles = [node.register_hook(_Listener(self, ways)) for node, ways in by_node.items()]

    @silently
    def hear(self, ways: list[tuple[int, int, int]], sent: tuple[Tensor | None, ...]) -> None:
        """Sample the gradients that a node sends on."""
        for place, term, index in ways:
            gradient = sent[index] if index < len(sent) else None
            if gradient is None or not operation.observable(gradient):
                continue
            part = _spread(gradient.detach()).to("cpu", torch.float32, copy=True)
            known = self._sent.get((place, term))
            self._sent[place, term] = part if known is None or known.shape != part.shape else known + part

    def backward_ends(self, backward: Backward) -> None:
        """Compare the terms, and record the change of the gradients."""
        before, self._before = self._before, None
        if self._sent:
            self._compare_terms()
        self._release()
        after = self._gradients() if before is not None else None
        if before is not None and after is not None and len(after) == len(before):
            signature = ", ".join(f"{t.get('kind')} of {t.get('layer') or 'the loss'}" for t in backward.terms or ())
            self._passes.append((signature, after - before))

    def _compare_terms(self) -> None:
        for a, b in itertools.combinations(range(len(self._names)), 2):
            places = sorted({p for p, t in self._sent if t == a} & {p for p, t in self._sent if t == b})
            places = [p for p in places if self._sent[p, a].shape == self._sent[p, b].shape]
            if places:
                one, other = (torch.cat([self._sent[p, t] for p in places]).numpy() for t in (a, b))
                self._log("terms", (self._names[a], self._names[b]), self._layer, one, other)

    def step_closes(self) -> None:
        """Compare the passes of the step, if they differentiated different losses."""
        passes, self._passes = self._passes, []
        self._members = []
        self._release()
        for (name, one), (other_name, other) in itertools.combinations(passes, 2):
            if name != other_name and len(one) == len(other):
                both = (one != 0) & (other != 0)
                if both.any():
                    self._log("backwards", (name, other_name), None, one * both, other * both)

    def _log(self, kind: str, names: tuple[str, str], layer: str | None, one: Vector, other: Vector) -> None:
        found = cosine(one, other)
        if math.isfinite(found):
            norms = [float(f"{float(np.linalg.norm(v)):.4g}") for v in (one, other)]
            value = {
                "pair": f"{kind}: {names[0]} / {names[1]}",
                "step": self.scene.step,
                "layer": layer,
                "kind": kind,
                "cosine": round(found, 4),
                "norms": norms,
                "names": list(names),
            }
            self.scene.log(FactKey.LOSS_BRANCHES, value)

    def _release(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._sent = [], {}

    def stop(self) -> None:
        """Remove all hooks."""
        self._release()


def _spread(x: Tensor) -> Tensor:
    """Return up to ``_ELEMENTS`` elements, 1-D, at a stride that shares no divisor with the width.

    Any other stride misses columns: units of a code, of which the gradients differ by factors.
    """
    x = x.contiguous()
    step = max(1, x.numel() // _ELEMENTS)
    while step > 1 and math.gcd(step, x.shape[-1] if x.dim() else 1) > 1:
        step -= 1
    return x.as_strided((min(x.numel(), _ELEMENTS),), (step,), x.storage_offset())


class _Listener:
    """The hook on one node. It changes nothing, and keeps our errors from the backward pass."""

    def __init__(self, owner: LossBranches, ways: list[tuple[int, int, int]]) -> None:
        self.owner, self.ways = owner, ways

    def __call__(self, sent: tuple[Tensor | None, ...], got: tuple[Tensor | None, ...]) -> None:
        try:
            if self.owner.scene.switch.in_full_step():
                with unheard():
                    self.owner.hear(self.ways, sent)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self.owner.scene.tally.caught(self.owner.doing)


READER = LossBranches
