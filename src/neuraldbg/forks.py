"""The handling of forks: objects of a session are turned off in a forked child, where nobody reads their copies."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class InChild(Protocol):
    """The interface of an object that must be turned off in a forked child."""

    def in_child(self) -> None:
        """Do nothing from now on: this process is a forked child."""


# One function for all sessions: Python keeps functions that are registered at fork, and has no way to remove them.
_inherited: weakref.WeakSet[InChild] = weakref.WeakSet()


def tell_children(one: InChild) -> None:
    """Call ``one.in_child()`` in each child that is forked while ``one`` is alive."""
    _inherited.add(one)


def _in_child() -> None:
    for one in list(_inherited):
        one.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
