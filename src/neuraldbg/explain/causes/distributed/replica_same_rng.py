"""All ranks draw the same random numbers: dropout masks and noise are equal on each.

What it is
    ``torch.manual_seed(0)`` on every rank makes the initial weights equal, as it should, and then everything else that
    is random, too: dropout masks, noise, augmentation, sampled times. Averaged gradients have less variety than the
    batch promises.

Symptoms
    None by itself: it costs some of the effect of dropout and noise. Generative models that draw noise or times learn
    from fewer different ones.

Evidence
    In the same steps each rank keeps a fingerprint of its generator's state. States that are equal on two ranks, and
    have moved since the step before, come from the same seed; the inputs differ, and the model has layers that draw
    random numbers. It is named only where the training has a symptom.

What to do
    Seed each rank with another number once the model is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.ranks import FEW, MOST
from neuraldbg.explain.evidence.wording import plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding


def judge(case: Case) -> Finding | None:
    """Weigh generators that are in one state on several ranks, where the model draws random numbers."""
    job = case.job
    if job is None or not job.data_parallel or not case.trouble.any:
        return None
    same = job.same_inputs()
    if same is not None and same[1] >= MOST * same[2]:
        return None
    alike, total = job.same_generators()
    layers = max((place.random_layers for place in job.places.values()), default=0)
    if alike < FEW or alike < MOST * total or not layers:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"in {alike} of {total} steps compared, the generators of two ranks were in one state", 2.0, alike, FEW
    )
    weigh.speaks(f"{plural(layers, 'layer')} of the model draw random numbers in training", 1.0, layers)
    return weigh.conclude(
        "the same random numbers on several ranks: dropout masks and noise are equal there",
        Remedy(
            "Seed each rank with another number once the model is made and its weights are equal.",
            "torch.manual_seed(seed + rank)",
        ),
        step=0,
        failure=case.trouble.name or "noise that is alike",
    )


CAUSE = Cause(
    module=__name__,
    title="Ranks draw the same random numbers",
    tier=Tier.STATISTICAL,
    explains=STALL,
    judge=judge,
    place="forward",
    page=__doc__ or "",
)
