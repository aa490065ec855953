"""The reader of gradient clipping: its place in the loop, and gradients beyond the limit at the step.

``clip_grad_norm_`` is seen where it scales, ``clip_grad_value_`` by its name. Manual clipping is not seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.guest.module_tree import scales, tensors
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import is_a, sequence, uses_up
from neuraldbg.capture.guest.tensor_kinds import readable
from neuraldbg.capture.guest.tensor_memory import is_sharded
from neuraldbg.capture.parameters.stale_gradients import values
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim import Optimizer

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_WAITING = 64
"""Clips between two steps that are kept: some programs clip each layer by itself."""
_OVER = 1.01
"""Multiple of its limit beyond which a gradient was not clipped: clipping itself rounds."""
_MEASURED = 64
"""Misplaced clips of an optimizer that are all measured; after that every 16th is."""


@dataclass(slots=True)
class Clip:
    """One call of a function that clips gradients."""

    kind: str
    limit: float
    tensor: int
    """Identity of the first tensor that was clipped."""
    backwards: int
    """Number of backward passes before it."""
    touched: bool
    """True if a model was called or gradients were cleared between the last step and this call."""
    empty: bool
    scale: float
    """Loss scale that is still in the gradients, 1 if there is none."""


@dataclass(slots=True)
class Count:
    """The counts of one optimizer's clipping of one kind."""

    limit: float = 0.0
    first: int | None = None
    scale: float = 1.0
    worst: float = 0.0
    exceeded: int = 0
    measured: int = 0
    calls: dict[str, int] = field(default_factory=dict)


class Clipping(Reader):
    """Reads the CLIP fact: place and limit of clips."""

    sampled = frozenset({"step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._waiting: list[Clip] = []
        self._counts: dict[tuple[int, str], Count] = {}
        self._backwards = 0
        self._at_step: dict[int, int] = {}
        """Number of backward passes at the last step of each optimizer."""
        self._members: dict[int, tuple[int, frozenset[int]]] = {}
        self._scale: float = 1.0
        self._unscaled: set[int] = set()
        self._by_scaler = 0

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of torch's functions that clip, and of a scaler's that add or remove its scale."""
        clips, scaler = torch.nn.utils.clip_grad, torch.amp.GradScaler
        found: list[Patch] = [
            (clips, "clip_grad_value_", self._clips_values),
            (torch.nn.utils, "clip_grad_value_", self._clips_values),
            (scaler, "unscale_", self._unscales),
            (scaler, "scale", self._scales),
            (scaler, "step", self._scaler_steps),
        ]
        if hasattr(clips, "_clip_grads_with_norm_"):
            found.append((clips, "_clip_grads_with_norm_", self._clips_norm))
        return found

    # -- wrappers ---------------------------------------------------------------------------------------------------

    def _clips_norm(self, parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Around:
        if not self.scene.switch.in_full_step():
            return
        listed = list(parameters) if self.seen(uses_up, parameters) else None  # reading an iterator would consume it
        self.seen(self._note, "norm", parameters if listed is None else listed, max_norm)
        yield ((listed, max_norm, *args), kwargs) if listed is not None else None

    def _clips_values(self, parameters: Any, clip_value: float, *args: Any, **kwargs: Any) -> Around:
        if not self.scene.switch.in_full_step():
            return
        listed = list(parameters) if self.seen(uses_up, parameters) else None
        self.seen(self._note, "value", parameters if listed is None else listed, clip_value)
        yield ((listed, clip_value, *args), kwargs) if listed is not None else None

    def _scales(self, scaler: Any, outputs: Any) -> Around:
        del outputs
        yield
        if self.scene.switch.in_full_step():
            self.seen(self._note_scale, scaler)

    def _unscales(self, scaler: Any, optimizer: Any) -> Around:
        del scaler
        if self.scene.switch.in_full_step() and not self._by_scaler:
            self.seen(self._was_unscaled, optimizer)
        yield

    def _scaler_steps(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> Around:
        del scaler
        inside = self._by_scaler
        try:
            self._by_scaler = inside + 1
            yield
        finally:
            self._by_scaler = inside
            self._unscaled.discard(id(optimizer))

    def _note_scale(self, scaler: Any) -> None:
        if scales(scaler):
            self._scale = self.scene.optimizers.loss_scale or 1.0

    def _was_unscaled(self, optimizer: Any) -> None:
        self._unscaled.add(id(optimizer))
        self.scene.did("unscale")

    def _note(self, kind: str, parameters: Any, bound: float) -> None:
        limit = number(bound)
        clipped = [parameters] if is_a(parameters, Tensor) else sequence(parameters)
        clipped = [t for t in clipped if is_a(t, Tensor) and readable(t)]
        if not clipped or limit is None or not 0 < limit < math.inf or len(self._waiting) >= _WAITING:
            return  # an infinite limit only measures the norm
        empty = all(t.grad is None for t in clipped)
        order = self.scene.order
        touched = "forward" in order or "zero_grad" in order
        self.scene.did("clip" if kind == "norm" else "clip_value")
        self._waiting.append(Clip(kind, limit, id(clipped[0]), self._backwards, touched, empty, self._scale))

    # -- moments ------------------------------------------------------------------------------------------------

    def resumes(self) -> None:
        """Drop clips before the gap: they belong to steps in it."""
        self._waiting.clear()
        self._unscaled.clear()

    def backward_ends(self, backward: Backward) -> None:
        """Count the backward pass."""
        self._backwards += backward.accumulates

    def call_begins(self, call: Call) -> None:
        """Reset the scale if the program no longer uses its scaler."""
        if call.first and self._scale != 1.0 and not self.scene.losses.scale_in_step:
            self._scale = 1.0

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Judge the places of the clips since this optimizer's last step."""
        before = self._at_step.get(stream.index, 0)
        self._at_step[stream.index] = self._backwards
        if not self._waiting:
            return
        # Clips of other optimizers' tensors wait for their own step.
        members = self._of(stream.index, opt)
        mine = [clip for clip in self._waiting if clip.tensor in members]
        if not mine:
            if len(self._waiting) >= _WAITING:
                self._waiting.clear()
            return
        self._waiting = [clip for clip in self._waiting if clip.tensor not in members]
        # One clip in the right place is enough; without one the last shows the fault.
        placed = [(self._place(clip, before), clip) for clip in mine]
        right = [clip for place, clip in placed if place == "right"]
        for place, clip in [("right", right[-1])] if right else placed[-1:]:
            count = self._counts.setdefault((stream.index, clip.kind), Count())
            count.limit = clip.limit
            scaled = clip.scale != 1.0 and id(opt) not in self._unscaled and self._by_scaler > 0
            for name in ("calls", place, "empty" if clip.empty else "", "scaled" if scaled else ""):
                count.calls[name] = count.calls.get(name, 0) + 1
            if scaled:
                count.scale = clip.scale
            if count.first is None and (scaled or place != "right"):
                count.first = self.scene.step
            if place != "right":
                self._measure(opt, clip, count)

    def _of(self, index: int, opt: Optimizer) -> frozenset[int]:
        """Return the identities of an optimizer's tensors; read again when their number changes."""
        held = tensors(opt)
        size = len(held)
        known = self._members.get(index)
        if known is None or known[0] != size or self.scene.reading:
            ids = frozenset(map(id, held))
            known = self._members[index] = (size, ids)
        return known[1]

    def _place(self, clip: Clip, before: int) -> str:
        if clip.backwards == self._backwards:
            return "right"
        if clip.backwards > before:
            return "between"
        return "before_backward" if clip.touched else "after_step"

    def _measure(self, opt: Optimizer, clip: Clip, count: Count) -> None:
        """Measure the gradients that the step is taken with."""
        count.measured += 1
        if count.measured > _MEASURED and count.measured % 16:
            return
        given = [t.grad for t in tensors(opt) if t.grad is not None]
        held = [values(grad) for grad in given]
        grads = [grad.detach() for grad in held if grad is not None and grad.numel()]
        whole = not any(grad is None or is_sharded(g) for grad, g in zip(held, given, strict=True))
        if not grads or not whole:  # the whole is not known from a part
            return
        if clip.kind == "norm":
            found = float(torch.stack([g.norm(dtype=torch.float32) for g in grads]).norm())
        else:
            found = float(max(g.abs().amax() for g in grads))
        ratio = found / clip.scale / clip.limit
        if math.isfinite(ratio):
            count.worst = max(count.worst, ratio)
            count.exceeded += ratio > _OVER

    def step_closes(self) -> None:
        """Log in steps whose facts are read, for a run that is killed."""
        if self.scene.reading:
            self.summarise()

    def summarise(self) -> None:
        """Log the counts of each optimizer."""
        for (index, kind), count in self._counts.items():
            names = ("calls", "right", "after_step", "before_backward", "between", "empty", "scaled")
            value = {"stream": index, "kind": kind, "limit": count.limit}
            value |= {name: count.calls.get(name, 0) for name in names}
            value |= {"scale": count.scale, "exceeded": count.exceeded, "worst": count.worst, "first": count.first}
            self.scene.log(FactKey.CLIP, value)


READER = Clipping
