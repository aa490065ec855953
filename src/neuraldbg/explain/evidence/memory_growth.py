"""Memory that does not come back, for the causes: the tensors that a program surely keeps without need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.wording import number
from neuraldbg.nouns.facts.growth import GrowthFact
from neuraldbg.nouns.measures import size

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns.facts.growth import Survivors

HOOK = "hook"
"""The type of survivors that are hooks of a module."""


def growth(case: Case) -> GrowthFact | None:
    """Return the newest GROWTH fact of a run; None if nothing was counted."""
    found: GrowthFact | None = case.run.known(GrowthFact)
    return found


def certain(case: Case) -> tuple[Survivors, ...]:
    """Return what surely leaks: tensors with their graphs, and hooks, that one line of the program adds in each step.
    Tensors without a graph may be kept on purpose.
    """
    known = growth(case)
    found = known.survivors if known is not None else ()
    return tuple(one for one in found if (one.with_graph or one.type == HOOK) and one.kept is not None and one.holder)


def added(one: Survivors) -> str:
    """Write what is added in a step: "1.3 MiB and 12 operations of autograd's graph in each step"."""
    if one.type == HOOK:
        return f"{number(round(one.per_step, 2))} in each step"
    parts = [size(one.bytes_per_step)] if one.bytes_per_step >= 1 else []
    if one.operations_per_step >= 1:
        parts.append(f"{number(round(one.operations_per_step))} operations of autograd's graph")
    return f"{' and '.join(parts) or 'one graph'} in each step"
