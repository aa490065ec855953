"""The reader of the order of the loop within a step, and of optimizers that are cleared again and again but never step.

Other readers add their tokens (clip, unscale, schedule) to ``scene.order``; here they are cut at each optimizer step.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.live_objects import made
from neuraldbg.capture.guest.module_tree import parameters, rates, state, tensors, training
from neuraldbg.capture.guest.program_objects import Identities, filled, is_a, items, name_of
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_VERSIONS = 6
_SMALL = 65_536
"""Elements up to which a tensor is copied to detect changes."""
_LAYERS = 8
_LOOK = 12
"""Backward passes without a step of any optimizer after which all objects are searched once for one."""
_LAPSED = 10
"""Clears and backward passes since the last step, from which steps are no longer taken."""
_MOST = 16
"""Optimizers without a step that are followed."""


class Idle:
    """An optimizer that has not stepped: number of clears, and the first values of its tensors."""

    def __init__(self, opt: Optimizer) -> None:
        self.opt = weakref.ref(opt)
        self.zeroed = 0
        self.before = [(place, t.detach().clone()) for place, t in _smallest(opt)]
        self.fact: dict[str, Any] = {}
        """Last description: the optimizer may be gone when the run ends."""

    @property
    def moved(self) -> bool:
        """True if the optimizer's tensors changed all the same: a loop may update them manually."""
        opt = self.opt()
        now = tensors(opt) if opt is not None else []  # no reference to a tensor is kept: torch could not swap it
        pairs = [(now[place], old) for place, old in self.before if place < len(now)]
        pairs = [(t, old) for t, old in pairs if tensor_memory.present(t)]
        return any(t.shape != old.shape or not torch.equal(t.detach(), old) for t, old in pairs)


class LoopOrder(Reader):
    """Reads the ORDER fact and the UNSTEPPED fact."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._seen: dict[int, set[tuple[str, ...]]] = {}
        self._idle: Identities[Optimizer, Idle] = Identities()
        self._all: list[Idle] = []
        self._stepped: Identities[Optimizer, bool] = Identities()
        self._made: Identities[Optimizer, bool] = Identities()
        self._modules: Identities[nn.Module, int] = Identities()
        """Number of clears by a module's own ``zero_grad``."""
        self._any = False
        """True once any optimizer has stepped."""
        self._backwards = self._training = self._tries = 0
        self._steps = self._lapsed = 0
        """Steps so far when gradients were cleared last, and clears since the last step."""
        self._gaps = False
        """True once steps were not seen."""
        self._resumed = -1
        """The first step after a gap: actions of the loop before its backward pass may be missing."""

    def resumes(self) -> None:
        """Handle a gap, in which an optimizer may have stepped: one that has a state did."""
        self._gaps, self._resumed = True, self.scene.step
        for opt, idle in self._idle.items():
            if self._stepped_unseen(opt):
                self._idle.pop(opt)
                self._all.remove(idle)
                self._stepped.add(opt)
                self._any = True
            else:
                self._describe(opt, idle)  # the optimizer may be gone when the run ends

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of ``zero_grad``, ``GradScaler.step`` and ``Optimizer.__init__``."""
        return [
            (Optimizer, "zero_grad", self._zeroes),
            (nn.Module, "zero_grad", self._zeroes),
            (torch.amp.GradScaler, "step", self._scaler_steps),
            (Optimizer, "__init__", self._makes),
        ]

    def _makes(self, opt: Optimizer, *_: Any, **__: Any) -> Around:
        yield
        if self.scene.switch.in_full_step():
            self.seen(self._note_made, opt)

    def _zeroes(self, owner: Any, *_: Any, **__: Any) -> Around:
        if self.scene.switch.on:
            self.seen(self.scene.models.owner.stands_aside)
            if self._any and is_a(owner, Optimizer):
                self.seen(self._note_lapse)
        if self.scene.switch.in_full_step():
            self.seen(self._zeroed, owner)
        return
        yield  # makes this a generator, which has nothing to do after the call

    def _scaler_steps(self, *_: Any, **__: Any) -> Around:
        self._tries += self.scene.switch.in_full_step()
        yield

    def _note_lapse(self) -> None:
        """Count the clears in training mode since the last step."""
        steps, before = self.scene.step + self.scene.losses.light.waiting, self._steps
        self._steps = steps
        if steps != before:  # as nearly always: microseconds count here
            self._lapsed = 0
        elif any(not model.gone and training(model.root) for model in self.scene.models.found):
            self._lapsed += 1

    def _note_made(self, opt: Optimizer) -> None:
        if len(self._made) < _MOST:
            self._made.add(opt)

    def _zeroed(self, owner: Any) -> None:
        self.scene.did("zero_grad")
        if is_a(owner, nn.Module) and (owner in self._modules or len(self._modules) < _MOST):
            self._modules[owner] = self._modules.get(owner, 0) + 1
        if is_a(owner, Optimizer) and owner not in self._stepped:
            self._count(owner)

    def _count(self, opt: Optimizer) -> None:
        idle = self._watch(opt)
        if idle is not None:
            idle.zeroed += 1
            if idle.zeroed & (idle.zeroed - 1) == 0:
                self._describe(opt, idle)

    def _watch(self, opt: Optimizer) -> Idle | None:
        idle: Idle | None = self._idle.get(opt)
        if idle is None and len(self._all) < _MOST:
            idle = self._idle[opt] = Idle(opt)
            self._all.append(idle)
        return idle

    def call_begins(self, call: Call) -> None:
        """Record a pass with gradients."""
        if call.grad and call.first and not call.evaluating:
            self.scene.did("forward")
            self._training += training(call.model.root)

    def backward_begins(self, backward: Backward) -> None:
        """Record a backward pass. After some without any step, search once for optimizers that are never cleared."""
        self.scene.did("backward" if backward.accumulates else "grad")
        self._backwards += backward.accumulates
        if not self._any and backward.accumulates and self._backwards == _LOOK:
            for opt in made():
                if opt not in self._idle:
                    self._watch(opt)
            for opt, idle in self._idle.items():
                self._describe(opt, idle)
        elif self._made and self._backwards == _LOOK:
            for opt in [one for one in self._made if one not in self._stepped and one not in self._idle]:
                self._watch(opt)

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """End the order here: later tokens belong to the next step."""
        order, self.scene.order = self.scene.order, []
        if opt not in self._stepped:
            self._any = True
            self._stepped.add(opt)
            idle = self._idle.pop(opt, None)
            if idle is not None:
                self._all.remove(idle)
        seen = self._seen.setdefault(stream.index, set())
        key = (*order, "step")
        if len(seen) < _VERSIONS and key not in seen and self.scene.step != self._resumed:
            seen.add(key)
            self.scene.log(FactKey.ORDER, {"stream": stream.index, "order": list(key)})

    def _stepped_unseen(self, opt: Optimizer) -> bool:
        """Return True if an optimizer that was never seen to step has a state, or is known to have stepped."""
        known = any(stream.opt() is opt and stream.steps for stream in self.scene.optimizers.streams)
        return self._gaps and (known or any(filled(each) for _, each in items(state(opt))))

    def summarise(self) -> None:
        """Log the optimizers that were made, cleared and never stepped, and steps that are no longer taken."""
        streams, step = self.scene.optimizers.streams, self.scene.step
        if min(self._lapsed, self.scene.losses.open) >= _LAPSED and len(streams) == 1:
            since = {"since": step - 1, "until": step, "before": None, "after": float(self.scene.losses.open)}
            of = {"stream": streams[0].index, "name": "", "names": []}
            self.scene.log(FactKey.CHANGE, {"what": "steps", **since, **of})
        stepped = {id(t) for other in self._stepped for t in tensors(other)}
        for number, idle in enumerate(self._all):
            opt = idle.opt()
            if opt is not None:
                self._describe(opt, idle)
                if self._stepped_unseen(opt) or stepped & {
                    id(t) for t in tensors(opt)
                }:  # a wrapper holds the tensors of another one that steps
                    continue
            if idle.fact:
                passed = {"backwards": self._backwards, "training": self._training > 0, "scaler_steps": self._tries}
                steps = self.scene.step if self._any else 0
                self.scene.log(FactKey.UNSTEPPED, {"id": number, **idle.fact, **passed, "steps": steps})

    def _cleared(self, opt: Optimizer) -> int:
        """Return the number of clears of the model that holds all of an optimizer's tensors."""
        mine = {id(t) for t in tensors(opt)}
        return max((n for m, n in self._modules.items() if mine <= {id(p) for p in parameters(m)}), default=0)

    def _describe(self, opt: Optimizer, idle: Idle) -> None:
        owned = self.scene.params.owned(tensors(opt))
        if not owned or not self.scene.models.owner.gradients_rest():
            return
        self.scene.idle = True
        idle.fact = {
            "type": name_of(opt),
            "tensors": len(tensors(opt)),
            "with_grad": sum(1 for w in owned if w.had_grad or w.ref.grad is not None),
            "zeroed": max(idle.zeroed, self._cleared(opt)),
            "moved": idle.moved,
            "layers": list(dict.fromkeys(w.layer for w in owned))[:_LAYERS],
            "lr": max(rates(opt), default=None),
        }


def _smallest(opt: Optimizer) -> list[tuple[int, Tensor]]:
    """Return the smallest trained tensors of an optimizer, with their indices: cheap to copy."""
    places = enumerate(tensors(opt))
    trained = [(i, t) for i, t in places if tensor_memory.present(t) and t.requires_grad and 0 < t.numel() <= _SMALL]
    return sorted(trained, key=lambda pair: pair[1].numel())[:2]


READER = LoopOrder
