"""Weight decay shrinks the gains of normalisation layers.

What it is
    A normalisation layer brings its input to unit size and multiplies it by a learnt gain that begins at 1. Weight
    decay pulls the gains to zero like any other parameter, and with them everything that passes. What decay is
    meant for, keeping weight matrices small, has no use there.

Symptoms
    The signal behind the normalisation layers fades, the loss stalls or gets worse again. With the small decay that
    optimizers have by default nothing is seen at all: many good programs decay their norms.

Evidence
    Which parameters decay is read from the optimizer's groups. It is named only where the gains really lost most of
    their size because decay's step is larger than the gradient's, the training is in trouble, and the weight
    matrices kept theirs. If those shrink as well, the decay as a whole is too high.

What to do
    Put gains and biases into a parameter group of their own with weight_decay=0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import arguments
from neuraldbg.explain.evidence.optimizer_steps import POOR, poor, setting, shrinking, weigh_poverty
from neuraldbg.explain.evidence.wording import listing, literal, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

GONE = 0.1
"""Share of a gain's first size below which hardly anything passes."""
HALF = 0.5


GROUPS = (
    '[{"params": [p for p in model.parameters() if p.dim() > 1]}, '
    '{"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]'
)


def judge(case: Case) -> Finding | None:
    """Weigh the effect of weight decay on the gains of normalisation layers, and on the weight matrices."""
    gains = [s for s in shrinking(case, norms=True) if s.label in case.decayed_norms]
    lost = poor(case) > POOR
    if not gains or (case.learned and not lost) or not (case.trouble.any or lost):
        return None
    kept, strength = (float(np.median([getattr(s, key) for s in gains])) for key in ("kept", "strength"))
    if kept > HALF:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"the gains of {listing([s.layer for s in gains])} have shrunk to {percent(kept)} of their first size",
        2.5 if kept < GONE else 1.5, kept, GONE,
    )  # fmt: skip
    # The decay must be stronger than the gradient, unless it alone explains the size that is left.
    if strength > 1:
        weigh.speaks(f"the decay's step on them is {number(strength)} times the gradient's", 2.0, strength, 1.0)
    elif not (kept < GONE and float(np.median([s.predicted for s in gains])) < GONE):  # else decay alone did it
        weigh.against("the decay's step on them is smaller than the gradient's", 2.0, strength, 1.0)
    # If the matrices shrank as well, the decay as a whole is too high.
    others = shrinking(case)
    size = float(np.median([s.kept for s in others])) if others else float("nan")
    if size > HALF:
        weigh.speaks(f"the weight matrices kept {percent(size)} of their size", 1.5, size, HALF)
    elif others:
        weigh.against(f"the weight matrices shrank to {percent(size)} as well: decay as a whole is too high", 3.0, size)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    else:
        weigh_poverty(case, weigh, 1.0)
    if case.trouble.kind == "nonfinite":
        weigh.against("the run ended in NaN or infinity, which shrinking gains do not do", 3.0)
    decay = setting(case, "weight_decay")
    return weigh.conclude(
        f"weight decay of {number(decay)} on normalisation layers, whose gains have shrunk to {percent(kept)}",
        Remedy(
            "Leave gains and biases out of weight decay.",
            f"optimizer = torch.optim.{case.optimizer_name}(\n    {GROUPS}, lr={literal(case.lr)}, "
            f"weight_decay={literal(decay)}\n)",
            (arguments(GROUPS),),
        ),
        step=0,
        failure=case.trouble.name or "fading signal",
        equivalent=() if size > HALF else ("weight_decay_too_high",),
    )


CAUSE = Cause(
    module=__name__,
    title="Weight decay on normalisation layers",
    tier=Tier.SPECIFIC,
    explains=STALL | UNITS | {"loss_divergence", "activation_scale"},
    judge=judge,
    page=__doc__ or "",
)
