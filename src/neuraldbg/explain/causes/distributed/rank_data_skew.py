"""One rank's data are of another kind than those of the others: other units, other labels, another preparation.

What it is
    Each rank reads files or a shard of its own. One shard was prepared otherwise, is in other units, has its labels
    mixed up, or holds one class: its gradients pull the model, which all ranks share, away from what the others learn.

Symptoms
    The loss of that rank stays above the others', though all hold equal weights. The averaged loss falls more slowly
    than with fewer ranks, or stops early. A log of rank 0 alone shows nothing.

Evidence
    With equal weights, losses of ranks differ by their data alone. The level of each rank's loss at the end, the mean
    and spread of its inputs in the steps whose facts are read, and the shares of its labels are compared with those of
    the others, in units of what they wander on one rank.

What to do
    Look at a batch of that rank beside one of another: units, order of channels, labels, augmentation. Shuffle the
    files over the ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.rank_data import labels_apart, odd_inputs, odd_loss
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.ranks import Ranks
    from neuraldbg.explain.finding import Finding

ABOVE, SURE = 1.5, 8.0
"""Ratio of a rank's loss to the others' at the end, and distance in standard errors, from which its data are odd."""
LOST = 0.1
"""Share of the first loss by which a rank's loss must end above the others': near 0 ratios say nothing."""
WANDER, TIMES = 10.0, 2.0
"""Distance of a rank's inputs in units of what the means wander on one rank, and ratio of spreads or distance in
spreads, from which they are of another kind."""
SHARES = 0.5
"""Total variation distance of the labels' shares from which a rank has other labels."""


def judge(case: Case) -> Finding | None:
    """Weigh the rank whose inputs, labels or losses lie apart from those of the others."""
    job = case.job
    if job is None or not job.data_parallel or job.difference("weights") is not None:
        return None
    weigh = Weighing()
    found = [one for one in (_inputs(job, weigh), _labels(job, weigh)) if one is not None]
    lost = _loss(job, weigh)
    if not found and lost is None:
        return None
    rank = found[0][0] if found else lost
    assert rank is not None
    what = found[0][1] if found else "inputs or labels that do not fit what the others learn"
    return weigh.conclude(
        f"data of rank {rank} that are unlike those of the other ranks: {what}",
        Remedy(
            f"Compare a batch of rank {rank} with one of another rank: units, order, labels, augmentation. Shuffle the "
            "files over the ranks."
        ),
        step=0,
        ranks=(rank,),
        failure=case.trouble.name or "a rank with other data",
    )


def _inputs(job: Ranks, weigh: Weighing) -> tuple[int, str] | None:
    """Weigh inputs of another scale. Return the rank, and what is odd, in words."""
    mean, spread = odd_inputs(job, "input_mean"), odd_inputs(job, "input_std")
    found = None
    if spread is not None and spread.apart > WANDER:
        ratio = max(spread.value, spread.others) / max(min(spread.value, spread.others), 1e-12)
        if ratio > TIMES:
            found = spread.rank
            told = f"{number(spread.value)}, those of the others of {number(spread.others)}"
            weigh.speaks(f"the inputs of rank {found} have a standard deviation of {told}", 4.0, ratio, TIMES)
    if mean is not None and spread is not None and mean.apart > WANDER and found in (None, mean.rank):
        far = abs(mean.value - mean.others) / max(spread.others, 1e-12)
        if far > TIMES:
            found = mean.rank
            told = f"{number(mean.value)}, those of the others of {number(mean.others)}"
            weigh.speaks(f"the inputs of rank {found} have a mean of {told}", 4.0, far, TIMES)
    return (found, "inputs of another scale") if found is not None else None


def _labels(job: Ranks, weigh: Weighing) -> tuple[int, str] | None:
    """Weigh labels of other shares. Return the rank, and what is odd, in words."""
    labels = labels_apart(job)
    if labels is None or labels[1] <= SHARES:
        return None
    rank, far, count = labels
    weigh.speaks(
        f"the labels of rank {rank} have other shares than those of the others (total variation distance "
        f"{number(far)}, of {count} labels)",
        4.0, far, SHARES,
    )  # fmt: skip
    return rank, "labels of other shares"


def _loss(job: Ranks, weigh: Weighing) -> int | None:
    """Weigh a loss that ends above the others'. Return the rank."""
    loss = odd_loss(job)
    if loss is None or not loss.value > ABOVE * loss.others > 0 or loss.apart < SURE:
        return None
    if loss.value - loss.others < LOST * loss.first:  # both have learnt all there is, and the rest is chance
        return None
    weigh.speaks(
        f"with equal weights, the loss of rank {loss.rank} ends at {number(loss.value)}, that of the others at "
        f"{number(loss.others)}",
        4.0, loss.value, ABOVE * loss.others,
    )  # fmt: skip
    return loss.rank


CAUSE = Cause(
    module=__name__,
    title="One rank has other data",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | STALL,
    judge=judge,
    place="forward",
    page=__doc__ or "",
)
