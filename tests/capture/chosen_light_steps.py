"""Light steps where a test wants them, in the place of where the budget of overhead does."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from neuraldbg.capture.steps import native_light_steps, step_accounting
from neuraldbg.capture.steps.overhead_budget import Governor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALLOWED = 64
"""Full steps at the beginning."""
EVERY, BURST = 50, 4


def usual(step: int) -> bool:
    """Whether a step is full: all at the beginning, then a few together now and then."""
    return step < ALLOWED or step % EVERY < BURST


@contextmanager
def gaps(full: Callable[[int], bool] = usual) -> Iterator[None]:
    """Let every capture inside read those steps in full, and those in which facts are read anyway."""

    def decide(self: Governor) -> bool:
        return full(self.full_steps + self.light_steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Governor, "decide", decide)
        for module, name in ((step_accounting, "MOST"), (native_light_steps, "LINES")):
            patch.setattr(module, name, 1)  # asked before each step
        yield
