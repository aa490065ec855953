"""The modes of steps: full, light with scalars only, or light with sites and without facts.

The modes are in ``guest/guard.py: StepMode``. With a budget, sites of light steps are read as often as it pays for
them; without one always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.compiled.recompile import forget_compiled
from neuraldbg.capture.guest.guard import StepMode
from neuraldbg.capture.steps.overhead_budget import OF
from neuraldbg.clocks import perf_counter

if TYPE_CHECKING:
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.loop.torch_patches import Patches
    from neuraldbg.capture.readers import Readers
    from neuraldbg.capture.steps.fact_schedule import Learning
    from neuraldbg.capture.steps.native_light_steps import Light
    from neuraldbg.capture.steps.overhead_budget import Governor

SETTLED = 3
"""Steps after which a program whose optimizers always stepped alone is trusted to go on so."""
_SEES = 64
"""Steps for which it holds that native code can read the sites."""


class Stretches:
    """Begins and ends stretches of full steps and light steps."""

    def __init__(
        self, scene: Scene, learning: Learning, light: Light, governor: Governor, readers: Readers, patches: Patches
    ) -> None:
        self.scene, self.learning, self.light, self.governor = scene, learning, light, governor
        self.readers, self.patches = readers, patches
        self.until = 0
        """The first step after a stretch of light steps: it is read in full at any cost, or the account is asked."""
        self._sees_until = 0
        """The step from which on native code is asked again if it can read sites."""
        self._sighted_until = 0
        """The first step after those whose sites are read for certain."""
        self.recompiled = False
        """True if compiled graphs had to be compiled again."""

    def full(self, step: int, *, plain: bool) -> bool:
        """Return True if a step has facts. ``plain`` is True if the program steps one optimizer, without closures."""
        governor = self.governor
        if governor.alarmed:  # what was set and given when the number became unusual is told by the facts
            governor.alarmed = False
            self.learning.ask(step)
        if governor.overhead is not None:
            governor.sights = plain and governor.past(step) and self._can_see(step)
        decided = governor.decide() and not (governor.spares(step) and plain and self._spares(step))
        if governor.paced or (governor.overhead is None and step % OF == 0):
            governor.paced = False
            self.learning.read_at(step)
        return decided or self.learning.reading(step)

    def _can_see(self, step: int) -> bool:
        """Return True if native code can read the sites of light steps: a look at every parameter, repeated now
        and then: if they have changed since, Python's hooks read the sites.
        """
        streams = self.scene.optimizers.streams
        if len(streams) != 1:
            return False
        if step >= self._sees_until and self.light.plans(streams[0]) is not None:
            self._sees_until = step + _SEES
        return step < self._sees_until

    def _spares(self, step: int) -> bool:
        """Return True if a step without a budget may do without facts."""
        binning, streams = self.scene.hooks.table.binning, self.scene.optimizers.streams
        if len(streams) != 1 or (self.scene.settings.histograms and binning.until(step) <= step):
            return False
        plans = self.light.plans(streams[0])
        return plans is not None and plans.plain

    def go_light(self) -> None:
        """Begin light steps, or go on with them."""
        if self.scene.switch.in_full_step():
            self._doze()
        # In another thread than the one that is followed, or in a pause, nothing changes.
        elif self.scene.switch.mode in (StepMode.LIGHT, StepMode.SIGHTED):
            self._turn()

    def _doze(self) -> None:
        """Begin light steps: wrappers of torch functions pass calls through."""
        scene = self.scene
        scene.facts.clear()
        scene.scalars.clear()
        scene.models.begin_step()
        self.read(on=False)
        self._rest(self.governor.stretch())

    def _turn(self) -> None:
        """Go on with light steps: with their sites or without, as the account says."""
        many = max(self.governor.stretch(), self._sighted_until - self.scene.step)
        if (many > 0) is self.scene.switch.sighted:
            self._expect(many)
            return
        began, native = perf_counter(), self.light.entered
        self.light.leave(odd=False)
        if many > 0:
            self.scene.hooks.rest(resting=False)
            self.listen()
        self._rest(many)
        if native:
            self.light.start(self.scene.optimizers.streams[0], self.light.pace.last)
            self.light.expect(self.until)
        self.governor.turned(perf_counter() - began)

    def _rest(self, many: int) -> None:
        """Begin light steps, of which the sites of the first ``many`` are read."""
        self._see_on() if many > 0 else self._see_no_more()
        self._expect(many)
        self.scene.params.forget_samples()
        self.scene.switch.read(StepMode.SIGHTED if many > 0 else StepMode.LIGHT)

    def _expect(self, many: int) -> None:
        """Set the step up to which it goes on in this way."""
        step = self.scene.step
        self.until = self.learning.next_reading(step)
        if self.governor.overhead is None:
            self.until = min(self.until, self.governor.next_facts(step), self.scene.hooks.table.binning.until(step))
            return
        self._sighted_until = step + max(many, 0)
        if many > 0:
            self.until = min(self.until, self._sighted_until)

    def _see_on(self) -> None:
        scene, hooks = self.scene, self.scene.hooks
        hooks.active, hooks.reads_units, hooks.binned = True, False, False
        scene.optimizers.watched.clear()
        scene.params.begin_step()

    def _see_no_more(self) -> None:
        hooks = self.scene.hooks
        hooks.active = False
        hooks.lift()
        hooks.rest(resting=True)
        self.scene.optimizers.allowed_s = self.governor.light_s

    def go_full(self) -> None:
        """Begin full steps, or go on with them."""
        scene = self.scene
        if scene.switch.in_full_step():
            return
        self.light.leave(odd=False)
        scene.switch.read(StepMode.FULL)
        self.listen()
        scene.hooks.rest(resting=False)
        scene.optimizers.wake(scene.step)
        scene.order.clear()
        self.readers.at("resumes")

    def listen(self) -> None:
        """Read outputs, by hooks if another tool may hide the calls of modules."""
        hooks = self.scene.hooks
        if hooks.listen(directly=self.patches.hears_calls()):
            self.forget_compiled()

    def forget_compiled(self) -> None:
        """Compile graphs again, if there are any."""
        self.scene.hooks.compiles()  # a reset makes Dynamo forget calls of torch.compile, too
        self.recompiled |= forget_compiled(self.scene.settings)

    def read(self, *, on: bool) -> None:
        """Start or stop the reading of graph and facts."""
        scene = self.scene
        scene.hooks.nodes = scene.hooks.marks if on else None
        scene.models.describe = scene.optimizers.reading = scene.reading = on
