"""ReLU units are negative for all data: they output zero and get no gradient.

What it is
    A ReLU unit whose input is negative for every sample gives zero and passes no gradient back, so it can never
    recover. A strongly negative bias, a bad initialisation or one too large step can push most of a layer there.

How it shows
    A layer's output is mostly zeros, the loss stops falling; if a whole layer is dead nothing before it learns any
    more and the output is constant.

How it is told apart
    Units that were positive for no sample in the last steps are counted. Some dead units are usual in a healthy
    network. If they were dead from the first step, it is the initialisation or the bias; if they died after steps
    that were too large, the learning rate is the cause and the dead units are its consequence.

What to do
    LeakyReLU or GELU, zero biases with He initialisation, a normalisation layer before the ReLU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.depth_profiles import unit_share
from neuraldbg.explain.evidence.record_readings import RELU_TYPES
from neuraldbg.explain.evidence.wording import moved, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

MANY = 0.5
"""Share of dead units from which a layer is faulty (SageMaker Debugger's and TheDeepChecker's default)."""


@dataclass(frozen=True)
class Dying:
    """The share of dead units of one layer, at the beginning and at the end."""

    layer: str
    begin: float
    """Share at the first recorded step."""
    end: float
    """Share over the last quarter of the recorded steps, median."""
    step: int
    """First step with more than MANY dead units."""


FEW_SAMPLES = 4
"""Largest batch size with which a window of about twenty steps has too few samples to call a unit dead."""


def judge(case: Case) -> Finding | None:
    """Weigh the dead units of the worst ReLU layer."""
    worst = max(_layers(case), key=lambda d: (d.end, -case.depth(d.layer)), default=None)
    if worst is None or worst.end < MANY:
        return None
    weigh = Weighing()
    whole = worst.end >= 0.995
    weigh.speaks(
        f"{percent(worst.end)} of the units of {called(worst.layer)} were positive for no sample"
        + (", so no gradient passes" if whole else ""),
        3.5 if whole else 1.5 + 2.5 * (worst.end - MANY) / (1 - MANY), worst.end, MANY,
    )  # fmt: skip
    # In a small batch a unit may be silent by chance.
    sizes = case.scalar("batch_size").finite().values
    if len(sizes) and 0 < float(np.median(sizes)) <= FEW_SAMPLES:
        weigh.against("batches of a few samples say little about units that are silent for most", 2.5,
                      float(np.median(sizes)), FEW_SAMPLES)  # fmt: skip
    # Units that died after large updates are a consequence of those.
    if worst.begin >= 0.8 * worst.end:
        weigh.speaks("they were dead from the first step on", 1.5, worst.begin, MANY)
    else:
        _weigh_death(case, weigh, worst)
    if case.trouble.kind in ("stuck", "slow"):
        weigh.speaks(case.trouble.phrase, 1.0)
    elif case.learned:
        weigh.against(
            f"the model learns: the loss fell by {percent(case.loss.relative)}",
            3.5 if not whole else 1.0,
            case.loss.relative,
        )
    else:
        weigh.against("the loss shows no consequence", 1.0)
    return weigh.conclude(
        f"ReLU units that are dead: {percent(worst.end)} of {called(worst.layer)} output zero for all data",
        Remedy(
            "Let units recover: LeakyReLU or GELU, zero biases with He initialisation, or a normalisation layer.",
            "torch.nn.LeakyReLU(0.01)  # instead of torch.nn.ReLU()\n"
            'torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")\ntorch.nn.init.zeros_(layer.bias)',
        ),
        layer=worst.layer,
        step=worst.step,
        failure=case.trouble.name or "dead units",
    )


def _weigh_death(case: Case, weigh: Weighing, worst: Dying) -> None:
    ratio = case.scalar("update_ratio").finite().between(0, worst.step).values
    if len(ratio) and ratio.max() > 0.05:
        weigh.against(
            f"they died by step {worst.step}, after updates as large as {moved(float(ratio.max()))}: "
            "that points at the learning rate", 3.0, float(ratio.max()), 0.05,
        )  # fmt: skip
    else:
        weigh.speaks(f"they died by step {worst.step} without large updates", 0.3, worst.step)


def _layers(case: Case) -> list[Dying]:
    """Return the share of dead units of each ReLU layer, at the first and over the last recorded steps."""
    found = []
    for row in case.layout.rows("activation"):
        path = case.layout.sites[row].module
        if not case.follows(path, RELU_TYPES):
            continue
        steps, share = unit_share(case, row, "dead", "units")
        if len(share):
            tail = max(1, len(share) // 4)
            over = np.flatnonzero(share >= MANY)
            found.append(
                Dying(
                    path,
                    float(share[0]),
                    float(np.median(share[-tail:])),
                    int(steps[over[0]]) if len(over) else int(steps[-1]),
                )
            )
    return found


CAUSE = Cause(
    module=__name__,
    title="ReLU units that output zero for all data",
    tier=Tier.STATISTICAL,
    explains=STALL | {"dead_units"},
    judge=judge,
    page=__doc__ or "",
)
