"""Networks that should differ are copies of each other: an ensemble of one.

What it is
    The members of an ensemble, the critics of an agent or the branches of a network were made with one seed, or copied
    from one another, and see the same batches. They get equal gradients, so no step makes them differ.

Symptoms
    Training looks well. The mean of the members is no better than one of them, their spread, as a measure of
    uncertainty, is exactly zero, the smaller of two critics is no guard against an estimate that is too high.

Evidence
    A few values of the trained weight matrices are compared at the steps whose facts are read. Matrices of one shape
    that are equal to the last bit again and again, with new values each time, are trained alike. Weights that are tied
    are one tensor and not compared. Copies that do not move, such as a target network, or that are made equal now and
    then, are another matter.

What to do
    Seed once at the beginning of the program, and make each member after that; or give each its own batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence.wording import listing, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.equal_weights import EqualWeightsFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

MOVES = 4
"""Readings at which matrices were equal, with new values each time, from which on it is no coincidence."""
OFTEN = 0.4
"""Least share of the readings at which two copies are equal: of two that step one after the other, one is ahead at half
of all steps. Copies that are made equal now and then, as the clients of a federated training, are seldom."""
PAIR, SHOWN = 2, 4


def judge(case: Case) -> Finding | None:
    """Weigh the pairs of matrices that were equal again and again."""
    fact = case.run.known(EqualWeightsFact)
    pairs = [
        one
        for one in (fact.pairs if fact is not None else ())
        if one.moved >= MOVES and one.equal >= OFTEN * one.read and len(one.names) == len(one.models) == PAIR
    ]
    if fact is None or not pairs:
        return None
    worst = max(pairs, key=lambda one: (one.equal, one.moved))
    apart = worst.models[0] != worst.models[1]
    members = list(dict.fromkeys(name for one in pairs for name in (one.models if apart else one.names)))
    weigh = Weighing()
    weigh.speaks(
        f"{listing(list(worst.names))} were equal to the last bit at {worst.equal} of the "
        f"{plural(worst.read, 'step')} at which they were compared, to step {worst.last}, and had new values at "
        f"{worst.moved} of them",
        4.7, worst.equal, worst.moved,
    )  # fmt: skip
    if len(pairs) > 1:
        weigh.speaks(f"so were {plural(len(pairs) - 1, 'other pair')} of weight matrices", 0.5, len(pairs))
    return weigh.conclude(
        f"networks that are copies of each other: the weights of {listing(members[:SHOWN])} are equal and are trained "
        "alike",
        Remedy(
            "Seed once, before the first member is made, so that each begins with weights of its own.",
            "torch.manual_seed(0)\nmembers = [make_member() for _ in range(5)]  # no seed inside of make_member",
        ),
        step=worst.first,
        failure="members without difference",
    )


CAUSE = Cause(
    module=__name__,
    title="Members of an ensemble that are equal",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
