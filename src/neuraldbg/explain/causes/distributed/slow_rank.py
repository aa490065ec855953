"""One rank is slower than the others, which wait for it in each step.

What it is
    Ranks meet in each step, where they average their gradients. One that loads its data more slowly, has longer
    sequences, shares its processor, or whose device is throttled, makes all others wait: the job is as slow as it.

Symptoms
    Steps take long, while most devices are idle in a collective; throughput grows less than the number of ranks.

Evidence
    In the sampled steps the time of each rank up to the backward pass (data, forward passes and the rest) is compared
    with the median of the others. The others wait in their backward passes, which are longer by as much.

What to do
    Profile that rank (``neuraldbg run --profile``): its data loader first, then what else its machine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.timing import TimingFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

SHARE, LEAST_S, STEPS = 0.4, 0.01, 2
"""Share of a step, and seconds, by which a rank is later than the others, in as many sampled steps at least."""
WAITED = 0.5
"""Share of that time which the others spend in longer backward passes."""


def judge(case: Case) -> Finding | None:
    """Weigh the rank that comes to its backward pass later than the others, which wait there."""
    job = case.job
    if job is None:
        return None
    known = {rank: run.known(TimingFact) for rank, run in job.runs.items()}
    timed = {rank: one for rank, one in known.items() if one is not None and one.steps >= STEPS}
    if len(timed) < 2 or len(timed) < len(job.runs):
        return None
    before = {rank: _before(one) for rank, one in timed.items()}
    slow = max(before, key=lambda rank: before[rank])
    others = float(np.median([seconds for rank, seconds in before.items() if rank != slow]))
    late, step = before[slow] - others, timed[slow].ordinary_s
    back = float(np.median([one.backward_s or 0.0 for rank, one in timed.items() if rank != slow]))
    waited = back - (timed[slow].backward_s or 0.0)
    if late < max(LEAST_S, SHARE * step) or waited < WAITED * late:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"rank {slow} comes to its backward pass {number(late * 1e3)} ms after the others, {percent(late / step)} of a "
        "step",
        3.0, late, SHARE * step,
    )  # fmt: skip
    weigh.speaks(f"the others' backward passes are {number(waited * 1e3)} ms longer: they wait there", 2.0, waited)
    data = (timed[slow].data_s or 0.0) > 0.5 * late
    return weigh.conclude(
        f"a rank that is slower than the others: rank {slow} takes {number(late * 1e3)} ms more in each step"
        + (", in its data loader" if data else ""),
        Remedy(
            "Give its DataLoader more workers, or its files a faster disk."
            if data
            else "Profile it (`neuraldbg run --profile`), and look for what else its machine does.",
        ),
        step=0,
        ranks=(slow,),
        failure="a slow rank",
    )


def _before(one: TimingFact) -> float:
    """Return the seconds of a step before its backward pass: data, forward passes, and what else the program does."""
    return (one.data_s or 0.0) + (one.forward_s or 0.0) + (one.other_s or 0.0)


CAUSE = Cause(
    module=__name__,
    title="One rank is slow",
    tier=Tier.SPECIFIC,
    explains=frozenset(),
    judge=judge,
    place="forward",
    page=__doc__ or "",
    apart=True,
)
