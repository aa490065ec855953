"""The reader of values that the program makes for a training step and never uses.

A mask that is taken from the batch and not applied, a term that is computed and not added, a second view that the
model never sees: no number shows it, and the source does. The functions that a step runs are found in the first steps
whose facts are read; their source is searched once, later on or at the end, as parsing takes some milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.guest.source_code import step_code
from neuraldbg.capture.guest.user_code import foreign
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from types import CodeType

    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.reader_context import Scene

_LOOKS = 4
"""Backward passes at which running functions are collected."""
_SETTLED = 50
"""Step from which on the source is searched during the training; a shorter run is searched at its end."""
_TOLD = 32


class UnusedValues(Reader):
    """Collects the functions of a training step, and searches their source."""

    sampled = frozenset({"backward_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._codes: set[CodeType] = set()
        self._searched: set[CodeType] = set()
        self._looks = 0
        self._found: list[dict[str, object]] = []

    def backward_begins(self, backward: Backward) -> None:
        """Collect the functions that run now, and those that they name."""
        if backward.accumulates and self._looks < _LOOKS:
            self._looks += 1
            step_code(self._codes)

    def step_closes(self) -> None:
        """Search the source, once the training has settled."""
        if self.scene.step >= _SETTLED:
            self._search()

    def summarise(self) -> None:
        """Search the source, if the run was too short for that."""
        self._search()

    def _search(self) -> None:
        fresh = self._codes - self._searched
        if not fresh:
            return
        from neuraldbg.capture.guest.unused_values import unused  # noqa: PLC0415 (a session is imported without it)

        self._searched |= fresh
        for code in sorted(fresh, key=lambda one: (one.co_filename, one.co_firstlineno)):
            if foreign(code.co_filename):
                continue
            for name, how, place, function in unused(self.scene.source(code.co_filename), code):
                self._found.append({"name": name, "how": how, "place": list(place), "function": function})
        if self._found:
            self.scene.log(FactKey.UNUSED, {"values": self._found[:_TOLD]})


READER = UnusedValues
