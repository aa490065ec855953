"""The reader of gradient scalers: is the scaled loss the differentiated one, and who steps on scaled gradients?"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.module_tree import scales
from neuraldbg.capture.guest.program_objects import Identities
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics.nested_tensors import leaves
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim import Optimizer

    from neuraldbg.capture.autograd.graph_walk import Node
    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_NEAR = 64
"""Nodes at the root of a loss's graph among which the scaled loss is searched: sums of several losses."""


class LossScale(Reader):
    """Reads the SCALER fact: counts of the uses and misuses of a scaler."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._counts = dict.fromkeys(
            ("scaled", "used", "steps", "skipped", "updates", "unscaled", "discarded", "direct", "mixed", "seen"), 0
        )
        self._scale = 1.0
        self._first: int | None = None
        self._made = 0
        """Losses scaled since the last backward pass."""
        self._carries = False
        """True while the gradients carry a scale: from a backward pass of a scaled loss to the next step."""
        self._unscaled: Identities[Optimizer, bool] = Identities()
        self._left: tuple[weakref.ref[Tensor], int] | None = None
        self._by_scaler = 0
        self._stepped = False
        self._cleared = False

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of the four methods of a scaler."""
        scaler = torch.amp.GradScaler
        return [
            (scaler, "scale", self._scales),
            (scaler, "unscale_", self._unscales),
            (scaler, "step", self._steps),
            (scaler, "update", self._updates),
        ]

    @guarded
    def _on(self, scaler: Any) -> bool:
        return bool(self.scene.switch.in_full_step() and scales(scaler))

    def _scales(self, scaler: Any, outputs: Any) -> Around:
        del outputs
        scaled = yield
        if self._on(scaler):
            self.seen(self._scaled, scaled)

    def _scaled(self, scaled: Any) -> None:
        self._counts["scaled"] += 1
        for _, x in leaves(scaled):
            node: Node = node_of(x)
            if node is not None:
                node.metadata[self] = True  # lives and dies with the graph
                self._made += 1

    def _unscales(self, scaler: Any, optimizer: Any) -> Around:
        if self._on(scaler) and not self._by_scaler:
            self.seen(self._was_unscaled, optimizer)
        yield

    def _was_unscaled(self, optimizer: Optimizer) -> None:
        self._counts["unscaled"] += 1
        self._unscaled.add(optimizer)

    def _steps(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> Around:
        if not self._on(scaler):
            return
        inside = self._by_scaler
        try:
            self._by_scaler, self._stepped = inside + 1, False
            yield
        finally:
            self._by_scaler = inside
            self.seen(self._tried, optimizer)

    def _tried(self, optimizer: Optimizer) -> None:
        self._counts["steps"] += 1
        self._counts["skipped"] += not self._stepped
        self._unscaled.pop(optimizer)
        self._cleared = True

    def _updates(self, scaler: Any, *_: Any, **__: Any) -> Around:
        if self._on(scaler):
            self.seen(self._updated)
        yield

    def _updated(self) -> None:
        self._counts["updates"] += 1
        self.scene.did("update")

    # -- moments ------------------------------------------------------------------------------------------------

    def resumes(self) -> None:
        """Drop the state of gradients before the gap, which were used in it."""
        self._carries = self._cleared = False
        self._left = None
        self._unscaled.clear()

    def backward_begins(self, backward: Backward) -> None:
        """Compare the differentiated loss with the scaled one."""
        if not backward.accumulates or not (self._made or self._carries):
            return
        if self._cleared:
            self._carries = self._cleared = False
            self._unscaled.clear()
        made, self._made = self._made, 0
        if self._in_graph(backward.root):
            self._carries = True
            self._counts["used"] += 1
            self._scale = self.scene.optimizers.loss_scale or self._scale
            if len(self._unscaled):
                self._misuse("mixed")
        elif made and not self._carries:
            self._misuse("discarded")
            self.scene.losses.scale_in_step = 0.0  # the differentiated loss carries no scale

    def backward_ends(self, backward: Backward) -> None:
        """Remember one gradient that carries the scale, to detect a division by the program."""
        if backward.accumulates and self._carries:
            found = next((w.ref.grad for w in self.scene.params.by_id.values() if w.ref.grad is not None), None)
            self._left = None if found is None else (weakref.ref(found), found._version)  # noqa: SLF001

    def _untouched(self) -> bool:
        """Return True if the remembered gradient is unchanged since the backward pass, or was only clipped."""
        if self._left is None or {"clip", "clip_value"} & set(self.scene.order):
            return True
        grad = self._left[0]()
        return grad is not None and grad._version == self._left[1]  # noqa: SLF001

    def _in_graph(self, root: Tensor) -> bool:
        queue: list[Node] = [node_of(root)]
        for count, node in enumerate(queue):
            if count == _NEAR or node is None:
                return False
            if self in node.metadata:
                return True
            queue.extend(parent for parent, _ in node.next_functions if parent is not None)
        return False

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Count a step taken without the scaler while the gradients carry its scale."""
        self._counts["seen"] += 1
        if self._by_scaler:
            # A fused optimizer is called though gradients have overflowed; on a device that is known later.
            self._stepped = not stream.overflowed
        elif self._carries and self._scale != 1.0 and not self._counts["steps"]:
            past = opt not in self._unscaled and self._untouched()
            self._counts["direct"] += past
            self._first = self.scene.step if past and self._first is None else self._first
        if self._carries and not self._by_scaler:
            self._cleared = True

    def _misuse(self, name: str) -> None:
        self._counts[name] += 1
        if self._first is None:
            self._first = self.scene.step

    def step_closes(self) -> None:
        """Log in steps whose facts are read, for a run that is killed."""
        if self.scene.reading:
            self.summarise()

    def summarise(self) -> None:
        """Log the counts."""
        if self._counts["scaled"]:
            self.scene.log(FactKey.SCALER, {**self._counts, "scale": self._scale, "first": self._first})


READER = LossScale
