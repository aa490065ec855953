"""The questions of the loop to native light steps, which take a step from its call to its end without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


class NativeSteps(Protocol):
    """Takes the steps that go as usual; see ``steps/native_light_steps.py``."""

    sighted: bool
    """Whether the sites of light steps are read: nothing but facts is left out then."""
    begins: Callable[..., Any]
    ends: Callable[..., Any]
    """The hooks of all optimizers."""
    glance: Callable[[nn.Module, Any, Any], bool]
    """Takes a call of the model: False where Python is to do it."""
    take: Callable[[Any], bool]
    """Takes the loss of a backward pass, the same; ``passed`` tells its end."""
    passed: Callable[[], None]
    forget: Callable[[], None]
    """Drops a call that is under way."""

    @property
    def entered(self) -> bool:
        """True while native code takes the steps."""

    @property
    def stepping(self) -> bool:
        """True while one of its steps is under way."""

    @property
    def waiting(self) -> int:
        """Steps that are over and wait to be looked at."""

    def lends(self, *, within: bool) -> bool:
        """Return True if another thread may go on: between two steps, or ``within`` one."""

    def leave(self, *, odd: bool = True) -> None:
        """Have Python's hooks go on."""

    def hurry(self) -> None:
        """Look at the steps that wait soon."""
