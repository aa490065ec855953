"""Objects of the program that no known object leads to: optimizers before their first step, iterators of loaders."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, TypeVar

from torch.optim.optimizer import Optimizer

from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.other_threads import others_wait

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def living(kind: type[T]) -> Sequence[T]:
    """Return the living objects of a class: one pass through all objects of the process.

    Without native code empty unless all other threads wait: one at work might be filling a tuple, to which no reference
    may be taken meanwhile (``kernel/live_objects.h``).
    """
    if native is not None:
        return native.instances(kind)  # type: ignore[no-any-return]
    if not others_wait():
        return []
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


def made() -> Sequence[Optimizer]:
    """Return all living ``torch.optim.Optimizer`` objects."""
    return living(Optimizer)
