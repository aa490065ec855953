"""Forked children: objects of a session that must act no more there, since nobody reads a child's copy of it."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class InChild(Protocol):
    """Something that a forked child inherits and must not use as the parent does."""

    def in_child(self) -> None:
        """Pass everything through from now on: this process is a forked child."""


# One function for all sessions: Python keeps what is registered at fork for ever, and has no way to take it back.
_inherited: weakref.WeakSet[InChild] = weakref.WeakSet()


def tell_children(one: InChild) -> None:
    """Call ``one.in_child()`` in each child that is forked while it lives."""
    _inherited.add(one)


def _in_child() -> None:
    for one in list(_inherited):
        one.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
