"""The reader of the user's lines at which a step happens, so that a diagnosis can point at them.

Read with facts: the lines that call models, differentiate losses, make and step optimizers, make schedulers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from neuraldbg.capture.guest.program_objects import Identities
from neuraldbg.capture.guest.user_code import Place, user_place
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_MOST = 4
"""Lines of one kind that are kept: a GAN has two of each, a library that is no package may have many."""


class Places(Reader):
    """Collects the lines of each kind in order of appearance."""

    sampled = frozenset({"backward_begins", "call_begins", "step_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._lines: dict[str, dict[Place, None]] = {}
        self._made: Identities[Optimizer, Place] = Identities()

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of the constructors of optimizers and schedulers."""
        return [
            (Optimizer, "__init__", functools.partial(self._makes, self._made.__setitem__)),
            (LRScheduler, "__init__", functools.partial(self._makes, lambda _, at: self._keep("scheduler", at))),
        ]

    def _makes(self, note: Callable[[Any, Place], None], made: Any, *_: Any, **__: Any) -> Around:
        yield
        if self.scene.switch.in_full_step():
            self.seen(self._note_made, note, made)

    def _note_made(self, note: Callable[[Any, Place], None], made: Any) -> None:
        place = user_place()
        if place is not None:
            note(made, place)

    def call_begins(self, call: Call) -> None:
        """Record the line that calls a model, to train it or to evaluate it."""
        self._note("evaluation" if call.evaluating else "forward")

    def backward_begins(self, backward: Backward) -> None:
        """Record the line that differentiates a loss."""
        if backward.accumulates:
            self._note("backward")

    def step_begins(self, stream: Stream, opt: Optimizer) -> None:
        """Record the line where an optimizer steps, and the one where it was made."""
        del stream
        self._note("step")
        if self.scene.reading and opt in self._made:
            self._keep("optimizer", self._made.get(opt))

    def step_closes(self) -> None:
        """Log the lines."""
        if self.scene.reading and self._lines:
            told = {kind: [list(place) for place in places] for kind, places in self._lines.items()}
            self.scene.log(FactKey.PLACES, told)

    def _note(self, kind: str) -> None:
        if self.scene.reading:
            place = user_place()
            if place is not None:
                self._keep(kind, place)

    def _keep(self, kind: str, place: Place) -> None:
        places = self._lines.setdefault(kind, {})
        if place in places or len(places) < _MOST:
            places[place] = None


READER = Places
