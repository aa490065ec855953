"""Steps that no hook of an optimizer reports: manual updates, an optimizer that is not torch's, or no step at all.

A manual step is detected by the weights: if the program has no optimizer of torch, a backward pass has run, and the
weights have changed, a step is over. The check runs when a model is called, before a backward pass, and for a question,
on a few weights: identity, count of in-place changes, some values. Two checks of the same kind are compared: within
``functional_call`` a model holds other tensors than before the backward.
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
from neuraldbg.capture.parameters.batched_reads import plain
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
        self._read = False
        """True if weights and gradients of this step were read, after a backward pass."""

    @property
    def tally(self) -> Tally:
        """The counts of errors and time."""
        return self.scene.tally

    # -- steps by hand ------------------------------------------------------------------------------------------

    def ended(self, *, calling: bool, asked: bool = False) -> bool:
        """Return True if weights were updated manually since a backward pass: the step is over, and the update is read.
        ``calling`` is True at a call of a model, ``asked`` for a question.
        """
        if self._off or self.scene.optimizers.streams:
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
        elif self._read and self.scene.switch.in_full_step():
            self.scene.params.read_after(list(self.scene.optimizers.watched.values()))
        self._anchor, self._by_call = self._anchor or moved, calling
        self.scene.by_hand = True
        self._begin()
        self._seen[calling] = now
        return True

    def _begin(self) -> None:
        self._seen.clear()
        self._backward = self._read = False

    def before_backward(self) -> None:
        """Record that a backward pass begins."""
        self._backward = True

    @guarded
    def after_backward(self) -> None:
        """Read weights and gradients of a loop that is known to update manually: it may clear gradients at once."""
        scene = self.scene
        if not scene.by_hand or self._off or scene.optimizers.streams or not scene.switch.in_full_step():
            return
        scene.params.refresh()
        watched = [w for w in scene.params.by_id.values() if w.ref.requires_grad]
        if all(w.ref.grad is None for w in watched):  # torch.autograd.grad, or tensors that no module holds
            return
        scene.optimizers.watched.update({w.key: w for w in watched})
        now, before = self._weights(), self._seen.get(False, {})
        if now.keys() == before.keys() and not any(_differ(before[name], now[name]) for name in now):
            scene.params.read_before(watched, again=self._read)
            self._read = True
        else:  # hooks of the program have updated the weights within the backward pass
            scene.params.read_gradients(watched, again=self._read)

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
        """Handle the program's report that a step is over. Return True if no hook has seen the step, which is then read
        here.

        If there is an optimizer of torch, its steps count: the program may report every micro-batch.
        """
        scene = self.scene
        if not (scene.losses.backwards or scene.models.forwards) or self._has_optimizer():
            return False
        self._off = True
        if scene.switch.in_full_step():
            params, optimizers = scene.params, scene.optimizers
            for w in params.by_id.values():
                optimizers.watched[w.key] = w
            watched = list(optimizers.watched.values())
            params.read_after(watched)
            params.read_before(watched, again=self._read)
        self._read = False
        return True

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
