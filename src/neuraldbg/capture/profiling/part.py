"""The contract of a part of the profile: one file that measures one kind of cost while the program trains.

A part has hooks of its own, and only while it measures. Between its sampled steps it costs nothing. It keeps no tensor
of the program, draws no random number, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.nouns import Fact


@dataclass(frozen=True)
class Profiling:
    """The things that a part is made with: the scene, and its account in the overhead budget."""

    scene: Scene
    """The parts of the capture stage: layers (``scene.hooks.modules``), parameters, optimizers, the current step."""
    asked: bool
    """True if the profile was asked for; False if it may only take a few steps, within the overhead budget."""
    affords: Callable[[float], bool]
    """Returns True if so many seconds may be taken now, within the overhead budget."""
    excuse: Callable[[float], None]
    """Leaves seconds that were taken out of the account of the overhead budget: call it for what was asked for."""
    trace: tuple[int, int] | None = None
    """The first and the last step of the window of ``torch.profiler``; None for no window."""
    folder: Path | None = None
    """Folder of the run file, None for a run in memory."""


class Part:
    """Measures one kind of cost."""

    def __init__(self, profiling: Profiling) -> None:
        self.scene, self.asked = profiling.scene, profiling.asked
        self.affords, self.excuse = profiling.affords, profiling.excuse

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what could not be measured."""
        return ()

    def start(self) -> None:
        """Begin: the session attaches to the program."""

    def attach(self, path: str, module: nn.Module) -> None:
        """Take note of a layer, when it becomes known."""

    def facts(self) -> tuple[Fact, ...]:
        """Return what was measured so far. It is asked every few hundred steps and at the end."""
        return ()

    def stop(self) -> None:
        """End: remove all that was left in the program."""
