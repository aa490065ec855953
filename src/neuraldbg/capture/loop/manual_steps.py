"""Steps that no hook of an optimizer reports: manual updates, an optimizer that is not torch's, or no step at all.

A manual step is detected by the weights: if the program has no optimizer of torch, a backward pass has run, and the
weights have changed, a step is over. The check runs when a model is called, before a backward pass, and for a question,
on a few weights: identity, count of in-place changes, some values. Two checks of the same kind are compared: within
``functional_call`` a model holds other tensors than before the backward.

All weights are read before the first backward pass of such a step, so that they are those before the update. In the
first step it is not known yet who updates: an optimizer of torch that begins a step drops that reading for its own.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.live_objects import made
from neuraldbg.capture.guest.module_tree import own
from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.program_objects import is_a, item
from neuraldbg.capture.loop.optimizer_stream import place
from neuraldbg.capture.parameters.batched_reads import plain
from neuraldbg.capture.parameters.stale_gradients import ALWAYS_CHECKED, CHECK_EVERY, stale_share
from neuraldbg.capture.parameters.weight_samples import elements
from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from torch import Tensor, nn

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.loop.loss_values import Kept
    from neuraldbg.capture.loop.reader_context import Scene

_UNSTEPPED = 10
"""Backward passes without any optimizer step from which on the step was forgotten."""
_WEIGHTS = 8
"""Weights of one model that are checked."""

Slot: TypeAlias = "tuple[weakref.ref[nn.Module], str]"
"""A module, and a parameter's name in it."""
Mark: TypeAlias = dict[str, tuple[Any, ...]]
"""State of some weights of each model, by the model's name."""


class Unhooked:
    """Detects the steps of a program that runs without torch's optimizers."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._by_hand: bool | None = None
        self._off = False
        """True if manual steps are not searched: the program reports its steps, or has an optimizer of torch."""
        self._reported = False
        """True once the program has reported the end of a manual step."""
        self._seen: dict[bool, Mark] = {}
        """State of the weights when first checked in this step, at a call of a model (True) and elsewhere."""
        self._backward = False
        """True once a backward pass has begun in this step."""
        self._anchor: frozenset[str] = frozenset()
        """The models that the first manual step changed: of two that are stepped in turn, one ends the steps."""
        self._by_call = False
        """True if the newest manual step was detected at a call of a model."""
        self._slots: dict[str, list[Slot]] = {}
        self._known = 0
        """Count of changes of the layers at the time the weights were chosen."""
        self._left: tuple[int, tuple[int, int] | None] = -1, None
        """(step, address and version of the first gradient) after the newest backward pass that was read."""

    @property
    def tally(self) -> Tally:
        """The counts of errors and time."""
        return self.scene.tally

    # -- steps by hand ------------------------------------------------------------------------------------------

    def ended(self, *, calling: bool, asked: bool = False) -> bool:
        """Return True if weights were updated manually since a backward pass: the step is over, and the update is read.
        ``calling`` is True at a call of a model, ``asked`` for a question.
        """
        if self.scene.optimizers.streams:
            return False
        if self._off:
            if calling and self._reported:  # a program without backward passes changes its weights after the call
                self._read_ahead()
            return False
        # One check is enough in a light step.
        once = self._by_call and not calling and not self.scene.switch.in_full_step()
        return (asked or not once) and bool(self._ended(calling=calling or once, whole=not once))

    @guarded
    def _ended(self, *, calling: bool, whole: bool) -> bool:
        if not self._backward:
            if torch.is_grad_enabled():  # predictions are no part of a step
                self._seen[calling] = self._weights()
            return False
        now = self._weights()
        before = self._seen.setdefault(calling, now)
        moved = frozenset(name for name, weights in now.items() if _differ(before.get(name), weights))
        if not whole:  # within ``functional_call`` a model held other tensors than it does now
            moved = frozenset(name for name in moved if [a[:1] for a in before[name]] == [b[:1] for b in now[name]])
        if not moved or (self._anchor and not moved & self._anchor):
            return False
        if not self.scene.by_hand and any(self.scene.params.in_optimizer(opt) for opt in made()):
            self._off = True  # the optimizer has not stepped yet: the change was no step
            return False
        replaced = any(a[:1] != b[:1] for name in moved for a, b in zip(before[name], now[name], strict=False))
        if replaced:  # kept samples are of tensors that were not updated
            self.scene.params.forget_samples()
        elif self.scene.switch.in_full_step():
            self._read_update()
        self._anchor, self._by_call = self._anchor or moved, calling
        self.scene.by_hand = True
        self._begin()
        self._seen[calling] = now
        return True

    def _begin(self) -> None:
        self._seen.clear()
        self._backward = False
        self.scene.params.ahead = []

    def _read_update(self) -> None:
        """Read the changes made by the step, if its weights were read before."""
        ahead = self.scene.params.ahead
        if ahead:
            self.scene.optimizers.watched.update({w.key: w for w in ahead})
            self.scene.params.read_after(ahead)

    def before_backward(self, *, accumulates: bool) -> None:
        """Read the weights before the first backward pass of a step; gradients accumulate in the leaves or not."""
        first, self._backward = not self._backward, True
        if self.scene.optimizers.streams:
            return
        if self._reported and self._by_hand is False and False not in self._seen:
            self._seen[False] = self._weights()
        self._read_ahead()
        if first and accumulates:
            self._check_cleared()

    @guarded
    def _read_ahead(self) -> None:
        """Read the weights while they are still those of the step before. In the first step this is done for any loop:
        not to know its initial weights is worse than to read them twice.
        """
        scene = self.scene
        if scene.params.ahead or scene.optimizers.streams or not scene.switch.in_full_step():
            return
        if scene.by_hand or scene.step == 0:
            scene.params.refresh()
            scene.params.read_ahead([w for w in scene.params.by_id.values() if w.ref.requires_grad])

    @guarded
    def _check_cleared(self) -> None:
        """Check for gradients left from the step before. A program that has changed them since uses them itself."""
        scene, (at, left) = self.scene, self._left
        if at != scene.step - 1 or not (scene.step < ALWAYS_CHECKED or scene.step % CHECK_EVERY == 0):
            return
        models: dict[str, list[Tensor]] = {}
        for w in scene.params.ahead:
            models.setdefault(w.model, []).append(w.ref)
        if models:
            kept = left is not None and place([w.ref for w in scene.params.ahead]) == left
            # Of two models that are stepped in turn, the second is cleared later.
            scene.scalars["stale_grad"] = min(map(stale_share, models.values())) if kept else 0.0

    @guarded
    def after_backward(self) -> None:
        """Read the gradients of a loop that is known to update manually: it may clear them at once."""
        scene = self.scene
        if not scene.by_hand or scene.optimizers.streams or not scene.switch.in_full_step():
            return
        self._read_gradients()

    @guarded
    def after_clip(self) -> None:
        """Read gradients of which the norm was clipped."""
        scene = self.scene
        if scene.by_hand and scene.params.graded and not scene.optimizers.streams and scene.switch.in_full_step():
            self._read_gradients()

    def _read_gradients(self) -> None:
        """Read the gradients, again if they were read in this step before."""
        self._left = self.scene.step, place([w.ref for w in self.scene.params.ahead])
        ahead = self.scene.params.ahead
        if any(w.ref.grad is not None for w in ahead):  # none for torch.autograd.grad
            self.scene.params.read_gradients(ahead, again=self.scene.params.graded)

    def _weights(self) -> Mark:
        """Return the state of some weights of each model."""
        modules = self.scene.hooks.modules
        if self._known != modules.changes:
            self._known, self._slots = modules.changes, self._chosen()
        return {
            name: tuple(_state(_parameter(ref(), own)) for ref, own in slots)  # the current tensors
            for name, slots in self._slots.items()
        }

    def _chosen(self) -> dict[str, list[Slot]]:
        """Return some weights of each model, evenly spaced over its layers."""
        found: dict[str, list[Slot]] = {}
        for w in self.scene.params.by_id.values():
            module = self.scene.hooks.modules.get(w.layer)
            if module is not None and w.ref.requires_grad:
                found.setdefault(w.model, []).append((weakref.ref(module), w.name.rpartition(".")[2]))
        return {name: slots[:: -(-len(slots) // _WEIGHTS)] for name, slots in found.items()}

    # -- steps that the program tells of ------------------------------------------------------------------------

    def ends(self) -> bool:
        """Handle the program's report that a step is over. Return True if no hook has seen the step, whose update is
        then read here.

        If an optimizer of torch steps, its steps count: the program may report every micro-batch. Before it has ever
        stepped, a report counts if the weights have changed.
        """
        scene = self.scene
        if scene.optimizers.streams or not (scene.losses.backwards or scene.models.forwards):
            return False
        if self._has_optimizer() and not self._changed():
            return False
        self._off = self._reported = True
        scene.by_hand = True
        if scene.switch.in_full_step():
            self._read_reported()
        self._begin()
        return True

    @guarded
    def _changed(self) -> bool:
        """Return True if weights have changed since the first check in this step."""
        before, now = self._seen.get(False) or self._seen.get(True) or {}, self._weights()
        self._reported = True  # from now on the weights are checked in each step
        return any(_differ(before.get(name), weights) for name, weights in now.items())

    @guarded
    def _read_reported(self) -> None:
        if not self.scene.params.graded:  # the first step, whose gradients were not read after the backward pass
            self._read_gradients()
        self._read_update()

    # -- none at all --------------------------------------------------------------------------------------------

    def unstepped(self, steps: int) -> list[Kept]:
        """Return the losses of a finished run of ``steps`` steps in which backwards ran and an optimizer of torch holds
        the model, but none ever stepped: each counts as a step.

        Without them a loop that forgot ``optimizer.step()`` would have no record. Known only at the end of the run.
        """
        scene = self.scene
        values = list(scene.losses.values)
        if steps or scene.optimizers.streams or len(values) < _UNSTEPPED:
            return []
        return values if scene.idle or self._has_optimizer() else []

    def _has_optimizer(self) -> bool:
        """Return True if an optimizer of torch holds a watched parameter, even if it has not stepped yet."""
        scene = self.scene
        if not scene.optimizers.streams and self._by_hand is None:
            self._by_hand = not any(scene.params.in_optimizer(opt) for opt in made())
        return bool(scene.optimizers.streams) or not self._by_hand


def _differ(before: tuple[Any, ...] | None, now: tuple[Any, ...]) -> bool:
    """Return True if a weight has changed. A weight that can no longer be read does not count as changed."""
    if before is None or len(before) != len(now):
        return before is not None
    return any(a != b and (len(a) == len(b) or a[:2] != b[:2]) for a, b in zip(before, now, strict=True))


def _parameter(module: nn.Module | None, name: str) -> Tensor | None:
    found = item(own(module).get("_parameters"), name) if module is not None else None
    return found if is_a(found, torch.Tensor) else None


def _state(weight: Tensor | None) -> tuple[Any, ...]:
    """Return the state of a weight: an update under ``no_grad`` changes its version, one of ``.data`` its values."""
    if weight is None:
        return ()
    told = (id(weight), weight._version)  # noqa: SLF001 (torch's own word for it)
    mark = native.mark(weight, _WEIGHTS) if native is not None else None
    if mark is not None:
        return (*told, *mark)
    held = tensor_memory.readable(weight) if plain(weight) else None
    if held is None:  # reading values would synchronise the device
        return told
    return (*told, held.data_ptr(), operation.numbers(elements(held.detach())[:_WEIGHTS].float()).tobytes())
