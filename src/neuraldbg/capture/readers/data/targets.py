"""The reader of targets: over the whole run, against the inputs, and against the predictions of the network.

When facts are read, the loss terms that save their targets are found in the graph; at every step their targets are then
found by the same path and a small copy is kept. On another device the copies stay there until facts are read, so that
nothing synchronises. The test if inputs predict the targets runs when the run is summarised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neuraldbg.capture.autograd import output_head
from neuraldbg.capture.autograd.graph_walk import follow, op_name
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.guest.module_tree import groups
from neuraldbg.capture.guest.program_objects import item
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.readers.data.label_inputs import SAMPLE, features
from neuraldbg.capture.readers.data.label_predictability import Reservoir
from neuraldbg.capture.readers.data.label_statistics import Classes, Numbers
from neuraldbg.capture.readers.data.token_alignment import SHORT, TokenTargets
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.device import placement
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from neuraldbg.capture.autograd.graph_walk import Node
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.optimizer_stream import Stream

_CLASS_LOSSES = {"nllloss": "nll", "nllloss2d": "nll", "nlllossnd": "nll", "multimarginloss": "multi_margin"}
_NUMBER_LOSSES = {
    "mseloss": "mse",
    "smoothl1loss": "smooth_l1",
    "huberloss": "huber",
    "binarycrossentropy": "bce",
    "binarycrossentropywithlogits": "bce_with_logits",
    "softmarginloss": "soft_margin",
}
_SLOTS = 8
"""Losses of a program that are followed."""
_PER_BACKWARD = 4
_WHOLE = 4096
"""Class ids of one batch that are copied whole; larger targets are sampled every 8th step."""
_RARELY = 8
"""Steps between two readings of predictions, and of large targets."""
_LATE = 256
"""The step from which only every 8th is read: order and frequencies are known by then."""
_PREDICTED = 65_536
_KEPT_ON_DEVICE = 256
_NODES = 2000
_BATCHES = 64
"""Steps in which samples are kept for the test if inputs predict the targets."""


@dataclass(eq=False)
class Slot:
    """One loss whose targets are followed over the run."""

    number: int
    kind: str
    op: str
    path: tuple[int, ...]
    course: Classes | Numbers
    classes: int
    stream: int = 0
    alone: bool = True
    """True if this is the only loss of its backward pass that saves targets."""
    weightless: list[int] = field(default_factory=list)
    reservoir: Reservoir = field(default_factory=Reservoir)
    paired: bool = True
    """True if inputs and targets match by their first dimension."""
    tokens: TokenTargets | None = None
    zeros: float | None = None
    """Share of zeros in the mask that multiplies the loss's elements, None if there is no mask."""
    waiting: list[tuple[int, Tensor]] = field(default_factory=list)
    """Copies on another device, as (step, targets)."""


class TargetsReader(Reader):
    """Follows the targets of a program's losses over the run."""

    sampled = frozenset({"step_closes"})

    def __init__(self, scene: Any) -> None:
        super().__init__(scene)
        self._slots: dict[tuple[Any, ...], list[Slot]] = {}
        self._touched: list[Slot] = []
        self._past: list[Slot] = []
        """Slots of heads that were replaced."""
        self._features: np.ndarray[Any, Any] | None = None
        self._tokens: np.ndarray[Any, Any] | None = None
        self._calls = 0
        self._maximised: set[int] = set()

    def resumes(self) -> None:
        """Handle a gap: the batches before and after are no neighbours."""
        self._features = self._tokens = None
        self._calls = 0
        self._touched.clear()
        for slots in self._slots.values():
            for slot in slots:
                slot.course.cut()

    def call_begins(self, call: Call) -> None:
        if not call.grad or call.evaluating or not call.first:
            return
        self._calls += 1
        if self._calls == 1 and (self.scene.reading or self.scene.step < _BATCHES) and self._wants():
            self._features, self._tokens = features((call.args, call.kwargs), on_device=self.scene.reading)

    def _wants(self) -> bool:
        every = [slot for slots in self._slots.values() for slot in slots]
        return not every or any(slot.paired and not slot.reservoir.full for slot in every) or self.scene.reading

    def backward_begins(self, backward: Backward) -> None:
        root, scene = node_of(backward.root), self.scene
        if scene.step >= _LATE and scene.step % _RARELY and not scene.reading:
            return
        if root is None or not backward.accumulates:
            return
        key = (root.name(), *(parent.name() for parent, _ in root.next_functions[:3] if parent is not None))
        if backward.walk is not None and len(backward.walk.loss_nodes) <= _NODES:
            self._find(key, root, backward.walk.loss_nodes)
        for slot in self._slots.get(key, ()):
            node = follow(root, slot.path)
            if node is not None and op_name(node) == slot.op:
                self._read(slot, node)
        self._features = self._tokens = None
        self._calls = 0

    def _find(self, key: tuple[Any, ...], root: Node, nodes: list[Node]) -> None:
        above, slots = output_head.links(nodes), self._slots.setdefault(key, [])
        for node in nodes:
            name = op_name(node)
            kind = _CLASS_LOSSES.get(name) or _NUMBER_LOSSES.get(name)
            if kind is None or sum(map(len, self._slots.values())) >= _SLOTS:
                continue
            way = output_head.path(node, above, root)
            slot = next((s for s in slots if s.path == way), None)
            if slot is not None and slot.classes != _classes(name, node):  # the model has another head now
                slots.remove(slot)
                self._past.append(slot)
                slot = None
            if slot is None and way is not None and len(slots) < _PER_BACKWARD:
                slot = self._new(kind, name, way, node)
                slots.append(slot)
            if slot is not None:
                target = saved(node, "target")
                mask = output_head.mask(node, above, list(target.shape)) if target is not None else None
                if mask is not None:
                    slot.zeros = float((mask == 0).double().mean())
                if target is not None and self._tokens is not None and slot.kind == "nll":
                    _compare(slot, self._tokens, target, mask)
        for slot in slots:
            slot.alone = len(slots) == 1

    def _new(self, kind: str, name: str, way: tuple[int, ...], node: Node) -> Slot:
        classes = _classes(name, node)
        course: Classes | Numbers = Numbers()
        number = sum(map(len, self._slots.values())) + len(self._past)
        if name in _CLASS_LOSSES:
            ignore = int(getattr(node, "_saved_ignore_index", -100))
            course = Classes(classes, ignore - (1 << 64) if ignore >= 1 << 63 else ignore)
        slot = Slot(number, kind, name, way, course, classes)
        weight = saved(node, "weight")
        if weight is not None and name in _CLASS_LOSSES:
            slot.weightless = torch.nonzero(weight == 0).flatten()[:64].tolist()
        return slot

    def _read(self, slot: Slot, node: Node) -> None:
        target = saved(node, "target")
        step = self.scene.step
        if target is None or target.numel() == 0:
            return
        if slot not in self._touched:
            self._touched.append(slot)
        rarely = self.scene.reading or step % _RARELY == 0
        if target.numel() > _WHOLE and not rarely:
            return
        some = target.detach()
        limit = _WHOLE if slot.classes else SAMPLE
        if some.numel() > limit:
            some = output_head.spread(some.reshape(-1), limit)
        if not placement.lies(some):
            slot.course.add(step, operation.numbers(some if some.dtype != torch.bfloat16 else some.float()).flatten())
        elif len(slot.waiting) < _KEPT_ON_DEVICE:
            slot.waiting.append((step, some.flatten().clone()))
        if self._features is not None and not slot.reservoir.full and self._calls == 1:
            slot.paired = _keep(slot, self._features, target)
        if rarely and (self.scene.reading or not placement.lies(target)):
            _predict(slot, node, target, step)

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        for slot in self._touched:
            slot.stream = stream.index
        self._touched.clear()
        if self.scene.reading and any(item(group, "maximize") is True for group in groups(opt)):
            self._maximised.add(stream.index)

    def step_closes(self) -> None:
        if self.scene.reading:
            self._fetch()
            if self.scene.step >= _RARELY:
                self._log(fits=False)

    def _fetch(self) -> None:
        for slots in self._slots.values():
            for slot in slots:
                for step, copy in slot.waiting:
                    slot.course.add(step, (copy.float() if copy.dtype == torch.bfloat16 else copy).cpu().numpy())
                slot.waiting.clear()

    def summarise(self) -> None:
        self._fetch()
        self._log(fits=True)

    def _log(self, *, fits: bool) -> None:
        for slots in self._slots.values():
            for slot in slots:
                fact: dict[str, Any] = {
                    "slot": slot.number, "stream": slot.stream, "kind": slot.kind, "alone": slot.alone,
                    "single": len(self._slots) == 1 and not self._past, "maximised": slot.stream in self._maximised,
                    **slot.course.fact(),
                }  # fmt: skip
                if slot.zeros is not None:
                    fact["mask_zeros"] = slot.zeros
                if slot.tokens is not None:
                    fact["tokens"] = slot.tokens.fact()
                found = slot.reservoir.fact() if fits else None
                if found is not None:
                    fact["fit"] = found
                self.scene.log(FactKey.TARGETS, fact)

    def stop(self) -> None:
        self._slots.clear()
        self._touched.clear()
        self._features = self._tokens = None


def _classes(name: str, node: Node) -> int:
    """Return the number of classes that a loss chooses from, 0 if it compares numbers."""
    given = saved(node, "self") if name in _CLASS_LOSSES else None
    return int(given.shape[1 if given.dim() > 1 else 0]) if given is not None and given.dim() else 0


def _keep(slot: Slot, features: np.ndarray[Any, Any], target: Tensor) -> bool:
    """Keep samples. Return False if inputs and targets do not match by their first dimension."""
    y = target.detach()
    if slot.classes:
        if y.dim() != 1 or (len(y) != len(features) and len(features) != SAMPLE):
            return False
    else:
        if y.dim() > 2 or len(y) == 0 or y.numel() // len(y) > 16:
            return False
        y = y.reshape(len(y), -1)[:, :4].float()
    if len(y) < len(features):
        return False
    slot.reservoir.add(features, operation.numbers(y[: len(features)].cpu()))
    return True


def _compare(slot: Slot, tokens: np.ndarray[Any, Any], target: Tensor, mask: Tensor | None) -> None:
    """Compare targets with input tokens if they are a sequence of about the same length."""
    rows, width = tokens.shape
    if rows == SAMPLE or target.numel() % rows:
        return
    length = target.numel() // rows
    if not (SHORT <= length <= width and width - length <= 2):
        return
    slot.tokens = slot.tokens or TokenTargets()
    y = operation.numbers(target.reshape(rows, length).cpu())
    ignore = slot.course.ignore if isinstance(slot.course, Classes) else -100
    weights = mask.detach().reshape(rows, length).double().cpu().numpy() if mask is not None else None
    slot.tokens.add(tokens.astype(np.int64), y, ignore, slot.weightless, weights)


def _predict(slot: Slot, node: Node, target: Tensor, step: int) -> None:
    """Count the predictions of the network for a batch."""
    given = saved(node, "self")
    if given is None or given.numel() > _PREDICTED or given.numel() == 0:
        return
    given = given.detach()
    with torch.no_grad():
        if slot.classes:
            said = given.argmax(1 if given.dim() > 1 else 0)
        elif slot.kind in ("bce", "bce_with_logits"):
            said = given > (0.5 if slot.kind == "bce" else 0.0)
        else:
            return
    labels = target.detach()
    if said.shape == labels.shape:
        labels = labels if slot.classes else labels.float()
        slot.course.predicted(step, said.flatten().cpu().numpy(), operation.numbers(labels.flatten().cpu()))


READER = TargetsReader
