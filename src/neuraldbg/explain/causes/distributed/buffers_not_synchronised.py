"""The running statistics of normalisation layers differ between ranks: each knows its own data alone.

What it is
    A BatchNorm layer normalises with the statistics of its rank's batch, and keeps running ones for the evaluation.
    With ``broadcast_buffers=False``, or without a wrapper, these buffers drift apart as far as the data of the ranks
    do. The model that rank 0 saves evaluates with the statistics of rank 0.

Symptoms
    The evaluation differs from rank to rank, and is worse than the training on data that rank 0 did not see.

Evidence
    In the same steps each rank keeps a few values of its buffers. Running means that lie apart by half of the running
    standard deviation are more than what samples of one distribution give.

What to do
    Use ``SyncBatchNorm``, leave ``broadcast_buffers`` on, or average the buffers before the model is saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.ranks import Ranks
    from neuraldbg.explain.finding import Finding

APART = 0.5
"""Distance of two running means in running standard deviations from which their data are of two kinds."""


def judge(case: Case) -> Finding | None:
    """Weigh running means that lie far apart, where nobody copies them."""
    job = case.job
    if job is None or not job.data_parallel or any(place.buffers_broadcast for place in job.places.values()):
        return None
    found = _farthest(job)
    if found is None or found[0] < APART:
        return None
    far, layer, step = found
    weigh = Weighing()
    weigh.speaks(
        f"at step {step} the running means of '{layer}' lie {number(far)} running standard deviations apart on two "
        "ranks",
        4.0, far, APART,
    )  # fmt: skip
    weigh.speaks("no wrapper copies the buffers of rank 0 to the others", 1.0)
    return weigh.conclude(
        "running statistics of normalisation that each rank keeps for its own data",
        Remedy(
            "Normalise over all ranks, or copy the buffers before the model is evaluated or saved.",
            "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)",
        ),
        layer=layer or None,
        step=step,
        failure=case.trouble.name or "statistics that differ",
    )


def _farthest(job: Ranks) -> tuple[float, str, int] | None:
    """Return the largest distance of running means in running standard deviations, at the last step compared, with
    layer and step; None if there are none.
    """
    best: tuple[float, str, int] | None = None
    for stream, ranks in job.replicas:
        steps = job.steps(stream, ranks)
        if not steps:
            continue
        every = [job.readings[stream][rank][steps[-1]] for rank in ranks]
        held = [dict(zip(one.buffer_names, one.fact.samples, strict=False)) for one in every]
        for name in held[0]:
            spread = name.replace("running_mean", "running_var")
            if spread == name or len({len(told.get(at, ())) for told in held for at in (name, spread)}) > 1:
                continue
            means = np.asarray([told[name] for told in held])
            variance = np.asarray([told[spread] for told in held]).mean(axis=0)
            gaps = np.ptp(means, axis=0)[variance > 0] / np.sqrt(variance[variance > 0])
            far = float(np.sqrt(np.mean(gaps**2))) if len(gaps) else 0.0
            if best is None or far > best[0]:
                best = (far, name.rpartition(".")[0], steps[-1])
    return best


CAUSE = Cause(
    module=__name__,
    title="Running statistics differ between ranks",
    tier=Tier.SPECIFIC,
    explains=STALL,
    judge=judge,
    place="forward",
    page=__doc__ or "",
)
