"""How the members of this folder write an edit down: ``fault`` for what is wrong, ``fine`` for what only looks it."""

from __future__ import annotations

from tests.faults.edits import Change, Edit
from tests.faults.golden import HEALTHY, UNCLEAR, golden


def fault(
    name: str,
    task: str,
    cause: str | tuple[str, ...],
    *changes: Change,
    layer: str | tuple[str, ...] | None = None,
    step: int | None = None,
    verdict: str | tuple[str, ...] = "",
    also: str | tuple[str, ...] = (),
    tolerated: str | tuple[str, ...] = (),
    raises: bool = False,
) -> Edit:
    """Make an edit that breaks a training."""
    one = golden(cause, layer=layer, step=step, verdict=verdict, also=also, tolerated=tolerated)
    return Edit(name, task, changes, one, raises)


def fine(name: str, task: str, *changes: Change, verdict: str | tuple[str, ...] = HEALTHY) -> Edit:
    """Make an edit after which the training is still healthy."""
    return Edit(name, task, changes, golden(verdict=verdict))


def odd(
    name: str,
    task: str,
    *changes: Change,
    verdict: str | tuple[str, ...] = UNCLEAR,
    tolerated: str | tuple[str, ...] = (),
    raises: bool = False,
) -> Edit:
    """Make an edit that breaks a training in a way that no cause of the taxonomy stands for."""
    return Edit(name, task, changes, golden(verdict=verdict, tolerated=tolerated), raises)
