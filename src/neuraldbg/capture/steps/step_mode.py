"""The modes of steps: full, light with scalars only, or light with sites and without facts.

The modes are in ``guest/guard.py: StepMode``. With a budget, sites of light steps are not read; without one they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.compiled.recompile import forget_compiled
from neuraldbg.capture.guest.guard import StepMode

if TYPE_CHECKING:
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.loop.torch_patches import Patches
    from neuraldbg.capture.readers import Readers
    from neuraldbg.capture.steps.fact_schedule import Learning
    from neuraldbg.capture.steps.native_light_steps import Light
    from neuraldbg.capture.steps.overhead_budget import Governor

SETTLED = 3
"""Steps after which a program whose optimizers always stepped alone is trusted to go on so."""


class Stretches:
    """Begins and ends stretches of full steps and light steps."""

    def __init__(
        self, scene: Scene, learning: Learning, light: Light, governor: Governor, readers: Readers, patches: Patches
    ) -> None:
        self.scene, self.learning, self.light, self.governor = scene, learning, light, governor
        self.readers, self.patches = readers, patches
        self.until = 0
        """The first step after a stretch of light steps: it is read in full at any cost."""
        self.recompiled = False
        """True if compiled graphs had to be compiled again."""

    def full(self, step: int, *, plain: bool) -> bool:
        """Return True if a step has facts. ``plain`` is True if the program steps one optimizer, without closures."""
        governor = self.governor
        if governor.alarmed:  # what was set and given when the number became unusual is told by the facts
            governor.alarmed = False
            self.learning.ask(step)
        decided = governor.decide() and not (governor.spares(step) and plain and self._can_see(step))
        if governor.paced:
            governor.paced = False
            self.learning.read_at(step)
        return decided or self.learning.reading(step)

    def _can_see(self, step: int) -> bool:
        """Return True if the sites of light steps can be read from a step on."""
        streams, table = self.scene.optimizers.streams, self.scene.hooks.table
        if len(streams) != 1 or (self.scene.settings.histograms and table.binning.until(step) <= step):
            return False
        return self.light.plans(streams[0]) is not None

    def doze(self) -> None:
        """Begin light steps: wrappers of torch functions pass calls through."""
        scene = self.scene
        self.until = self.learning.next_reading(scene.step)
        scene.facts.clear()
        scene.scalars.clear()
        scene.models.begin_step()
        self.read(on=False)
        mode = StepMode.SIGHTED if self.governor.overhead is None else StepMode.LIGHT
        self._see_on() if mode is StepMode.SIGHTED else self._see_no_more()
        scene.params.forget_samples()
        scene.switch.read(mode)

    def _see_on(self) -> None:
        scene, hooks = self.scene, self.scene.hooks
        self.until = min(self.until, self.governor.next_facts(scene.step), hooks.table.binning.until(scene.step))
        hooks.active, hooks.reads_units, hooks.binned = True, False, False
        scene.optimizers.watched.clear()
        scene.params.begin_step()

    def _see_no_more(self) -> None:
        hooks = self.scene.hooks
        hooks.active = False
        hooks.lift()
        hooks.rest(resting=True)
        self.scene.optimizers.allowed_s = self.governor.light_s

    def wake(self) -> None:
        """Begin full steps."""
        scene = self.scene
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
