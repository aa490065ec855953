"""The interface of the loop to native light steps, which take a step from its call to its end without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import nn


_SIZES = 1024
"""Steps whose batch sizes are remembered: more than may wait to be processed."""


class BatchSizes:
    """The batch sizes of the newest light steps whose inputs were read."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        """Passes and samples by step."""

    def add(self, step: int, samples: int) -> None:
        """Add the samples of one pass."""
        passes, before = self._known.get(step, (0, 0))
        self._known[step] = passes + 1, before + samples
        if len(self._known) > 2 * _SIZES:
            self._known = {known: self._known[known] for known in list(self._known)[-_SIZES:]}

    def of(self, step: int, backwards: int) -> int | None:
        """Return the samples over all passes of a step; None unless each had a backward pass: of others it is not known
        which were trained on.
        """
        passes, samples = self._known.get(step, (0, 0))
        return samples if samples and passes == backwards else None


class NativeSteps(Protocol):
    """Takes usual light steps in native code; see ``steps/native_light_steps.py``."""

    sizes: BatchSizes
    """The batch sizes of light steps whose inputs are read."""
    counting: AbstractContextManager[Any]
    """Held while finished steps, and the current one, move from native code to Python's hooks, and by those who look up
    the current step meanwhile. No function of the program's is called under it."""
    begins: Callable[..., Any]
    ends: Callable[..., Any]
    """The step hooks of all optimizers."""
    glance: Callable[[nn.Module, Any, Any], bool]
    """Takes a call of the model. Returns False if Python has to handle it."""
    take: Callable[[Any], bool]
    """Takes the loss of a backward pass, or returns False; ``passed`` reports the end of that pass."""
    passed: Callable[[], None]
    forget: Callable[[], None]
    """Drops the current call."""

    @property
    def entered(self) -> bool:
        """True while native code takes the steps."""

    @property
    def stepping(self) -> bool:
        """True while a native step is running."""

    @property
    def midway(self) -> bool:
        """True if a native step has begun and is not over."""

    @property
    def waiting(self) -> int:
        """Number of finished steps that are not processed yet."""

    def lends(self, *, within: bool) -> bool:
        """Return True if another thread may continue: between two steps, or ``within`` one."""

    def leave(self, *, odd: bool = True) -> None:
        """Let Python's hooks continue."""

    def hurry(self) -> None:
        """Process finished steps soon."""
