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
    from neuraldbg.explain.finding import Finding

ABOVE, SURE = 1.5, 8.0
"""Ratio of a rank's loss to the others' at the end, and distance in standard errors, from which its data are odd."""
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
    weigh, whom, what = Weighing(), None, "its data"
    mean, spread = odd_inputs(job, "input_mean"), odd_inputs(job, "input_std")
    if spread is not None and spread.apart > WANDER:
        ratio = max(spread.value, spread.others) / max(min(spread.value, spread.others), 1e-12)
        if ratio > TIMES:
            whom, what = spread.rank, "inputs of another scale"
            weigh.speaks(
                f"the inputs of rank {whom} have a standard deviation of {number(spread.value)}, those of the others "
                f"of {number(spread.others)}",
                4.0, ratio, TIMES,
            )  # fmt: skip
    if mean is not None and spread is not None and mean.apart > WANDER:
        far = abs(mean.value - mean.others) / max(spread.others, 1e-12)
        if far > TIMES and whom in (None, mean.rank):
            whom, what = mean.rank, "inputs of another scale"
            weigh.speaks(
                f"the inputs of rank {whom} have a mean of {number(mean.value)}, those of the others of "
                f"{number(mean.others)}",
                3.0, far, TIMES,
            )  # fmt: skip
    labels = labels_apart(job)
    if labels is not None and labels[1] > SHARES:
        at = whom if whom is not None else labels[0]
        weigh.speaks(
            f"the labels of rank {at} have other shares than those of the others (total variation distance "
            f"{number(labels[1])}, of {labels[2]} labels)",
            3.0, labels[1], SHARES,
        )  # fmt: skip
        whom, what = (at, what if whom is not None else "labels of other shares")
    loss = odd_loss(job)
    if loss is not None and loss.value > ABOVE * loss.others > 0 and loss.apart > SURE:
        at = whom if whom is not None and len(job.runs) == 2 else loss.rank
        if whom in (None, loss.rank) or len(job.runs) == 2:
            weigh.speaks(
                f"with equal weights, the loss of rank {loss.rank} ends at {number(loss.value)}, that of the others at "
                f"{number(loss.others)}",
                4.0, loss.value, ABOVE * loss.others,
            )  # fmt: skip
            whom = at if what != "its data" else loss.rank
    if whom is None:
        return None
    said = what if what != "its data" else "inputs or labels that do not fit what the others learn"
    return weigh.conclude(
        f"data of rank {whom} that are unlike those of the other ranks: {said}",
        Remedy(
            f"Compare a batch of rank {whom} with one of another rank: units, order, labels, augmentation. Shuffle the "
            "files over the ranks."
        ),
        step=0,
        failure=case.trouble.name or "a rank with other data",
    )


CAUSE = Cause(
    module=__name__,
    title="One rank has other data",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | STALL,
    judge=judge,
    place="forward",
    page=__doc__ or "",
)
