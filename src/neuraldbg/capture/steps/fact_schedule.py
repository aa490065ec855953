"""The schedule of facts about the program, and their reading: one is logged once, and again when it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.capture.loop import program_facts
from neuraldbg.capture.loop.setting_changes import EVERY, SettingChanges
from neuraldbg.capture.loop.unfrozen import Unfrozen
from neuraldbg.capture.steps.overhead_budget import LONGEST
from neuraldbg.nouns import FactKey
from neuraldbg.ranks import own_rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.nouns import Layout

_FIRST_READINGS = 3
"""Steps of each optimizer whose facts are read before the readings thin out."""


_OPTIMIZERS = 8
"""Optimizers that have readings of their own."""
EVERY_FEW = 16
_PACES = ((16, 4), (128, EVERY_FEW), (512, 64), (2048, 256))
"""Steps up to which one of how many has facts whatever they cost: most faults of a program's wiring show in the first,
a drift in some hundreds, and a model of long steps has spent by then what it may."""
_RANKS = 1024
"""One of how many steps after those has facts in a job of several ranks, too: the same ones on each."""
_ENOUGH, _RARER = 256, 1.02
"""Steps in which facts are read often enough in any case, and the least ratio of two steps, sixteen apart at least,
both after an unusual number, whose facts are read."""
_NEW = 64
"""Optimizers after which a new one triggers no reading: some programs make one for each step."""


class Learning:
    """Collects the facts of the current step, and decides which steps have them."""

    def __init__(self, scene: Scene) -> None:
        self.hooks, self.params, self.models = scene.hooks, scene.params, scene.models
        self.optimizers, self.losses = scene.optimizers, scene.losses
        self._scene, self._log = scene, scene.log
        self._rarest = _RANKS if own_rank().world > 1 else 0
        self._until = -1
        self._unfrozen = Unfrozen(scene.params)
        self._changes = SettingChanges(scene)
        self._asked_at = _ENOUGH
        """The step after an unusual number whose facts were read last."""
        self._refined = 0
        self._turned_at = 0
        """The step in which a change of ``requires_grad`` was last seen."""

    def reading(self, step: int) -> bool:
        """Return True if a step's graph and facts are read: the first steps of every optimizer, a few of the first
        hundreds, and those that were asked for since something changed, or the overhead budget pays for them
        at an even pace.
        """
        many = min(len(self.optimizers.streams) or 1, _OPTIMIZERS)
        if step <= self._until or step < _FIRST_READINGS * many:
            return True
        every = _pace(step, self._rarest)
        return every > 0 and step % every < many

    def read_at(self, step: int) -> None:
        """Read the facts of a step, too."""
        self._until = max(self._until, step)

    def ask(self, step: int) -> None:
        """Read the facts of a step after an unusual number, but ever more rarely in a run that is often unusual."""
        if step >= max(_RARER * self._asked_at, self._asked_at + EVERY_FEW):
            self._asked_at = step
            self.read_at(step)

    def check(self, step: int) -> None:
        """Compare the settings at the end of a step with those before; after a change facts are read.

        Called while the optimizer steps: a step may be closed later, when the program evaluates its model or has
        frozen it for export. Those settings are none of its training.
        """
        if not self._scene.by_hand:
            self._compare(step)

    def check_unhooked(self, step: int) -> None:
        """Compare the settings in a step whose end no hook reports: before its backward pass, or when the program tells
        that it is over.
        """
        if self._scene.by_hand:
            self._compare(step)

    def _compare(self, step: int) -> None:
        if self._changes.check(step, every=1 if self._scene.switch.in_full_step() else EVERY):
            self._until = max(self._until, step + 1)

    def next_reading(self, step: int) -> int:
        """Return the next step from ``step`` on whose facts are read, or may be at the latest: a change must be seen at
        some time.
        """
        if self.reading(step):
            return step
        every = _pace(step, self._rarest)
        return step + every - step % every if every else step + LONGEST

    def learn(self, step: int, stepped: list[Stream], layout: Callable[[], Layout]) -> None:
        """Log new facts at the end of a step, before its rows are cleared."""
        self._learn_passes(stepped)
        new = [stream for stream in stepped if stream.fact is not None]
        reading = self.reading(step)
        # A new optimizer late in a run gets a reading of its own, and so do parameters that are frozen or unfrozen.
        if (self._turned(step) or new) and not reading and len(self.optimizers.streams) <= _NEW:
            self._until = max(self._until, step + 1)
        if not new and not reading:
            return
        for stream in new:
            self._log(FactKey.OPTIMIZER, stream.fact or {})
            stream.fact = None
        if not self.models.owner.gradients_rest():  # postponed to the next step whose facts are read
            return
        # A walk over all objects of the process, only if a parameter seems to be in no optimizer.
        self.models.follow_changes()
        self._unfrozen.read(self.optimizers.streams)
        self._read_unstepped()
        fact = self._parameters()
        if fact["not_in_optimizer"] and not self._scene.by_hand:
            self.optimizers.find_unstepped()
            fact = self._parameters()
        if self._scene.by_hand and not any(w.had_grad for w in self.params.all()):
            fact["no_grad"] = []  # torch.autograd.grad leaves none at a parameter, or the program clears them at once
        self._log(FactKey.PARAMS, fact)
        scaled = self.optimizers.loss_scale is not None
        if self.params.by_id or not self.params.departed:  # facts of dead parameters were logged before
            self._log(FactKey.PRECISION, program_facts.precision(self.params, scaler=scaled))
        if len(self.losses.edges) != self._refined:
            self._refined = len(self.losses.edges)
            now = layout()
            self.hooks.refine(now.following_ops, frozenset(edge.source for edge in now.edges))

    def _turned(self, step: int) -> bool:
        """Return True if parameters were frozen or unfrozen, but ever more rarely for a program that always does so."""
        if step < 2 * self._turned_at or not self._unfrozen.changed():
            return False
        self._turned_at = step
        return True

    def summarise(self) -> None:
        """Log ids that an embedding refused, weights that were changed from outside, and parameters that were unfrozen
        since facts were read last, and that no optimizer holds.
        """
        self._changes.note_written(self._scene.step)
        if self.models.refused is not None:
            self._log(FactKey.REFUSED_IDS, self.models.refused)
        if not self._unfrozen.changed() or not self.models.owner.gradients_rest():
            return
        fact = self._parameters()
        if set(fact["not_in_optimizer"]) & self._unfrozen.names():
            self.optimizers.find_unstepped()
            fact = self._parameters()
        if set(fact["not_in_optimizer"]) & self._unfrozen.names():
            self._log(FactKey.PARAMS, fact)

    def _parameters(self) -> dict[str, Any]:
        held = self.optimizers.rates(self._unfrozen.resting)
        more: dict[str, Any] = {"ever": self.optimizers.rates(), "stale": self._unfrozen.stale()}
        return program_facts.parameters(self.params, held, self.hooks.called, **more, dry=self._changes.dry)

    def _learn_passes(self, stepped: list[Stream]) -> None:
        if self.losses.terms is not None:
            stream = stepped[0].index if stepped else 0
            self._log(FactKey.LOSS, {"stream": stream, **self.losses.terms})
        for done in self.models.passes:
            if done.modes is not None:
                self._log(FactKey.MODES, done.modes)
        if self.models.latest is not None:
            _, described = self.models.latest
            self._log(FactKey.BATCH, described)

    def _read_unstepped(self) -> None:
        """Read the parameters that no optimizer holds: they may get gradients, or change."""
        held = self.optimizers.rates(self._unfrozen.resting)
        # What the optimizer of this step has read must not be read twice.
        others = [w for key, w in self.params.by_id.items() if key not in held and key not in self.optimizers.watched]
        if others:
            self.params.read_aside(others)


def _pace(step: int, rarest: int) -> int:
    """Return one of how many steps has facts in any case at this time of a run; 0 if the account alone decides.
    ``rarest`` is that for the rest of the run.
    """
    return next((every for end, every in _PACES if step < end), rarest)
