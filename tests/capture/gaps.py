"""Light steps where a test wants them, in the place of where the budget of overhead does."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from neuraldbg.capture.governor import Governor

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
    taken: dict[int, int] = {}

    def after(self: Governor, *_: Any, **__: Any) -> bool:
        taken[id(self)] = taken.get(id(self), 0) + 1
        return full(taken[id(self)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Governor, "after", after)
        yield
