"""Steps of which readers are told nothing, as in a long run that keeps its budget, without the part that decides it.

While a step is light no moment is told, and the switch that the readers' patches ask is off; ``resumes`` comes before
the first moment after the gap, or already when the light step ends.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from neuraldbg.capture import Capture
from neuraldbg.capture.readers import Readers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.capture.guest import Switch

ALLOWED = 64
"""Full steps at the beginning."""
EVERY, BURST = 50, 4


def usual(step: int) -> bool:
    """Whether a step is told: all at the beginning, then a few together now and then."""
    return step < ALLOWED or step % EVERY < BURST


class Light:
    """Stands in for the switch that readers see."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.light = self.due = False

    def __bool__(self) -> bool:
        return bool(self.switch) and not self.light

    def turn_on(self) -> None:
        self.switch.turn_on()

    def turn_off(self) -> None:
        self.switch.turn_off()


@contextmanager
def gaps(told: Callable[[int], bool] = usual, *, eager: bool = False) -> Iterator[None]:
    """Let every capture inside tell its readers of some steps only."""
    at, end, close = Readers.at, Capture._end, Capture._close

    def some(self: Readers, moment: str, *args: Any) -> None:
        switch = self.scene.switch
        if isinstance(switch, Light) and moment not in ("summarise", "stop"):
            if switch.light:
                return
            if switch.due:
                switch.due = False
                at(self, "resumes")
        at(self, moment, *args)

    def closed(self: Capture, **kwargs: Any) -> None:
        close(self, **kwargs)
        if not isinstance(self.scene.switch, Light):
            self.scene.switch = Light(self.scene.switch)  # type: ignore[assignment, arg-type]
        switch: Any = self.scene.switch
        switch.light = not (told(self.steps) or self.learning.reading(self.steps))
        switch.due |= switch.light
        if eager and switch.due and not switch.light:
            switch.due = False
            at(self.readers, "resumes")

    def ended(self: Capture, stream: Any) -> None:
        end(self, stream)
        if self._pending and self.steps >= ALLOWED // 2 and len(self._open) == len(self.optimizers.streams):
            self._close()  # a gap begins right after a step, and not when the next pass does

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Readers, "at", some)
        patch.setattr(Capture, "_close", closed)
        patch.setattr(Capture, "_end", ended)
        yield
