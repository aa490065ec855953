"""One rank's weights have changed by themselves: memory or arithmetic of its device may be at fault.

What it is
    A bit flips in memory, or a core computes wrongly now and then. Most such errors are silent; on a large cluster one
    is met every few days. One copy of the model then differs from all others, and pollutes the average from there on.

Symptoms
    A spike of the loss or a NaN that nobody can repeat, or none at all.

Evidence
    Of three ranks or more with equal weights one differs at a later step. Gradients were equal on all until then, so
    were learning rates, and no code was seen to write to its weights.

What to do
    Run the same step again on another device: if it comes out otherwise, take the machine out of the job, and go on
    from a checkpoint before that step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, Cause
from neuraldbg.explain.evidence.wording import percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

LEAST = 3
"""Ranks from which on it is known which one differs."""


def judge(case: Case) -> Finding | None:
    """Weigh one rank of several whose weights differ though nothing that was seen changed them."""
    job = case.job
    if job is None or len(job.runs) < LEAST:
        return None
    weights = job.difference("weights")
    if weights is None or len(weights.ranks) != 1 or weights.since is None:
        return None
    odd = weights.ranks[0]
    gradients = job.difference("gradients")
    if gradients is not None and gradients.step < weights.step:
        return None
    if job.rates_differ(weights.step) or job.runs[odd].versions(ChangeFact, what="weights"):
        return None
    weigh = Weighing()
    weigh.speaks(
        f"weights of rank {odd} alone differ at step {weights.step}, later by up to {percent(weights.size)} of their "
        f"norm; at step {weights.since} all were equal",
        2.5, weights.size,
    )  # fmt: skip
    weigh.speaks("gradients and learning rates were equal, and no code was seen to write to weights", 1.0)
    place = job.places.get(odd)
    host = f" ({place.host})" if place is not None and place.host else ""
    return weigh.conclude(
        f"weights of rank {odd}{host} that changed by themselves",
        Remedy(
            "Run that step again on another device. If it comes out otherwise, take the machine out of the job and go "
            "on from a checkpoint before it."
        ),
        step=weights.step,
        ranks=(odd,),
        since=weights.since,
        failure=case.trouble.name or "replicas that differ",
        equivalent=("replica_divergence",),
    )


CAUSE = Cause(
    module=__name__,
    title="A device computes wrongly",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP,
    judge=judge,
    place="step",
    page=__doc__ or "",
)
