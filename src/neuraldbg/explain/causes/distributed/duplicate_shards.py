"""Several ranks train on the same batches: they do the work of one.

What it is
    Data parallelism is faster because each rank trains on other samples. Without a ``DistributedSampler``, or with the
    same seed for everybody's random batches, all ranks draw the same ones: their gradients are equal before they are
    averaged, and the average is that of one rank.

Symptoms
    None in the loss. The training costs as many devices as there are ranks and learns like one; a learning rate that
    was scaled for the larger batch is too high.

Evidence
    In the same steps each rank keeps a fingerprint of its inputs. Two ranks with equal inputs in most of them, whose
    gradients are averaged, see the same data. Ranks that hold parts of one model are meant to, and are not judged.

What to do
    Give the DataLoader a DistributedSampler and call its ``set_epoch``, or seed each rank's data with its rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.ranks import FEW, MOST, rank_words
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding


def judge(case: Case) -> Finding | None:
    """Weigh ranks whose inputs are equal, step by step."""
    job = case.job
    found = job.same_inputs() if job is not None and job.data_parallel else None
    if job is None or found is None:
        return None
    ranks, count, compared = found
    if count < FEW or count < MOST * compared:
        return None
    weigh = Weighing()
    whom = rank_words(ranks)
    weigh.speaks(f"in {count} of {compared} steps compared, the inputs of {whom} were equal", 6.0, count, FEW)
    alike, total = job.same_generators()
    if total and alike >= MOST * total:
        weigh.speaks("their random generators were in the same state, too: they have the same seed", 1.0, alike)
    many = "all" if len(ranks) == job.world else str(len(ranks))
    return weigh.conclude(
        f"the same batches on {whom}: {many} ranks do the work of one",
        Remedy(
            "Split the data over the ranks with a DistributedSampler, or seed the batches of each with its rank.",
            "sampler = DistributedSampler(dataset)\nloader = DataLoader(dataset, batch_size, sampler=sampler)",
        ),
        step=0,
        failure="work done twice",
    )


CAUSE = Cause(
    module=__name__,
    title="Ranks train on the same data",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    place="forward",
    page=__doc__ or "",
)
