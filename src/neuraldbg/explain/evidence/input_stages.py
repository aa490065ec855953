"""The stages of a curriculum: steps from which on the samples of a model have another shape, for good.

A longer sequence or a larger image is another task: the level of the loss before is none that it could have kept.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from neuraldbg.nouns.facts.batch import BatchFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Fact

MOST = 16
"""Stages of a curriculum at most; more shapes are those of batches that are padded to their own length."""


def stages(facts: Sequence[Fact]) -> tuple[tuple[int, int], ...]:
    """Return the steps between which the shape of a model's samples changed to one that comes for the first time, and
    the one before never comes again: the last step that was read before the change, and the first after it.
    """
    shapes: dict[str, list[tuple[int, tuple[tuple[str, tuple[int, ...]], ...]]]] = {}
    for fact in facts:
        if fact.key == BatchFact.KEY and isinstance(known := fact.known, BatchFact):
            shape = tuple(sorted((name, leaf.shape[1:]) for name, leaf in known.inputs.items()))
            mine = shapes.setdefault(known.model, [])
            if not mine or mine[-1][1] != shape:
                mine.append((fact.step, shape))
    found: list[tuple[int, int]] = []
    for mine in shapes.values():
        if len({shape for _, shape in mine}) == len(mine) <= MOST:
            found += [(_read_before(facts, until), until) for _, (until, _) in itertools.pairwise(mine)]
    return tuple(sorted(found))


def _read_before(facts: Sequence[Fact], step: int) -> int:
    """Return the last step before another one in which facts were read."""
    return max((fact.step for fact in facts if fact.step < step), default=step - 1)
