"""Objects of the program to which nothing else leads: optimizers that have not stepped yet, iterators of loaders."""

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
    """Return the objects of a class that are alive: one pass through all objects of the process.

    Without native code only while all other threads wait: one at work might be making a tuple, which is not to be held
    meanwhile (``_kernel_objects.h``).
    """
    if native is not None:
        return native.instances(kind)  # type: ignore[no-any-return]
    if not others_wait():
        return []
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


def made() -> Sequence[Optimizer]:
    """Return all optimizers of torch that there are."""
    return living(Optimizer)
