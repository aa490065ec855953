"""The form of a loss graph: what must be the same for two levels of a loss to be compared."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.nouns.facts.loss import LossFact


def loss_form(fact: LossFact) -> tuple[object, ...]:
    """Return what of a loss graph must be the same for two levels of the loss to be compared."""
    return fact.ops, tuple((term.kind, term.reduction, term.layer, term.weighted) for term in fact.terms)


def renewals(facts: Iterable[tuple[int, LossFact]]) -> tuple[tuple[int, int], ...]:
    """Return the steps between which a loss came to be computed in another way: the last of the old one, and the first
    of the new one.
    """
    return tuple((since, at) for (since, a), (at, b) in itertools.pairwise(facts) if loss_form(a) != loss_form(b))
