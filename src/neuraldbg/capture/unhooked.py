"""Steps that no hook of an optimizer sees: of one that is not torch's, and of a loop that never steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.stream import made

if TYPE_CHECKING:
    from neuraldbg.capture.losses import Kept
    from neuraldbg.capture.scene import Scene

_UNSTEPPED = 10
"""Backward passes without any optimizer step from which a run is one that forgot to step."""


class Unhooked:
    """Knows whether a program steps without torch's optimizers."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._by_hand: bool | None = None

    def ends(self) -> bool:
        """The program says that a step is over: whether it is one that no hook has seen. Then it is read here.

        Where there is an optimizer of torch, its steps are what counts: the program may say so at every micro-batch.
        """
        scene = self.scene
        if not (scene.losses.backwards or scene.models.forwards) or self._has_optimizer():
            return False
        if scene.switch:
            params, optimizers = scene.params, scene.optimizers
            for w in params.by_id.values():
                optimizers.watched[id(w.ref)] = w
            watched = list(optimizers.watched.values())
            params.read_after(watched)
            params.read_before(watched)
        return True

    def unstepped(self, steps: int) -> list[Kept]:
        """Return the losses of a run that is over after so many steps, if backwards ran and an optimizer of torch holds
        the model, but none ever stepped: each counts as a step.

        Else nothing could be said of a loop that forgot ``optimizer.step()``. Known only at the end of the run.
        """
        scene = self.scene
        values = list(scene.losses.values)
        if steps or scene.optimizers.streams or len(values) < _UNSTEPPED:
            return []
        return values if scene.idle or self._has_optimizer() else []

    def _has_optimizer(self) -> bool:
        """Whether an optimizer of torch holds what is watched, though it may not have stepped yet."""
        scene = self.scene
        if not scene.optimizers.streams and self._by_hand is None:
            self._by_hand = not any(scene.params.in_optimizer(opt) for opt in made())
        return bool(scene.optimizers.streams) or not self._by_hand
