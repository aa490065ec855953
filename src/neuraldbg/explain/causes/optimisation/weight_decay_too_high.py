"""Weight decay is so strong that it pulls the weights to zero faster than the gradient can hold them.

What it is
    Weight decay shrinks every weight a little at each step. Where that step is larger than the gradient's, the
    weights shrink until nothing of what they learnt is left, whatever the data say.

Symptoms
    The loss falls a little, or not at all, and settles at the level of a constant guess. The weights of all
    layers become smaller and smaller, activations and gradients fade with them.

Evidence
    For each weight the step of the decay (decay times weight, times the learning rate where it is decoupled as in
    AdamW) is compared with the step of the gradient, and the size of the weight over the run is known. A learning
    rate that is too low leaves the weights where they are; vanishing gradients do so too. Decay that a training
    stands well, be it 0.3, is no fault.

What to do
    Lower weight_decay: 0.01 to 0.1 is usual with AdamW, 1e-5 to 5e-4 with SGD, and leave norms and biases out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import arguments
from neuraldbg.explain.evidence.late_changes import began, raised, weigh_change
from neuraldbg.explain.evidence.optimizer_steps import POOR, decoupled, poor, setting, shrinking, weigh_trouble
from neuraldbg.explain.evidence.wording import literal, number, percent, rounded
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.optimizer_steps import Shrinking
    from neuraldbg.explain.finding import Finding

STRONG = 1.0
"""Ratio of the decay's step to the gradient's, from which the decay is stronger than the gradient."""
WEAK = 0.3
LARGE = {True: 0.3, False: 0.01}
"""Largest weight decay in common use: decoupled as in AdamW (papers go to 0.3), and as a part of the gradient."""
USUAL = {True: 0.1, False: 1e-3}
"""Largest usual weight decay: up to this, "too high" needs a reason."""


def judge(case: Case) -> Finding | None:
    """Weigh the decay's step against the gradient's, and the size that the weights kept."""
    change = raised(case, "weight_decay")
    found = shrinking(case, since=change.since if change is not None else 0)
    if not found:
        return None
    decay, lr, apart = setting(case, "weight_decay"), case.rate, decoupled(case)
    strength, kept = (float(np.median([getattr(s, key) for s in found])) for key in ("strength", "kept"))
    alone = float(np.median([s.predicted for s in found]))
    strong = (strength > WEAK and kept < 0.9) or (kept < 0.1 and alone < 0.1)  # the schedule may end without any step
    # lr * decay above 2 multiplies each weight by less than -1 in a step: it grows and changes sign.
    flips = (apart or not case.adaptive) and lr * decay > 2
    if change is None and ((case.learned and not poor(case) > POOR) or (not flips and not strong)):
        return None
    weigh = Weighing()
    if change is not None:
        weigh_change(case, weigh, change)
    _weigh_size(weigh, found, strength, kept)
    if flips:
        weigh.speaks(
            f"a learning rate of {number(lr)} times a decay of {number(decay)} is above 2: each step turns the weights "
            "round and makes them larger", 3.0, lr * decay, 2.0,
        )  # fmt: skip
    _weigh_custom(weigh, decay, apart, case.optimizer_name)
    if case.trouble.kind == "nonfinite" and not flips:
        weigh.against("the run ended in NaN or infinity, which shrinking weights do not do", 3.0)
    else:
        weigh_trouble(case, weigh)
    value = rounded(min(0.01 if apart else 1e-4, decay / 100))
    since = f" ({change.words.removeprefix('the ')} {change.when})" if change is not None else ""
    size = f"{percent(kept)} of their {'first ' * (change is None)}size"
    shrunk = f", which has shrunk the weights to {size}" if change is None or kept < 0.9 else ""
    return weigh.conclude(
        f"a weight decay that is too high: {number(decay)} with {case.optimizer_name}{shrunk}{since}",
        Remedy(
            f"Lower weight_decay from {number(decay)} to about {value}.",
            f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(), "
            f"lr={literal(lr)}, weight_decay={value})",
            (arguments(f"weight_decay={value}"),),
        ),
        step=began(case, change) if change is not None else 0,
        since=change.since if change is not None else None,
        tier=Tier.CERTAIN if change is not None else None,
        failure=case.trouble.name or "shrinking weights",
        equivalent=("decay_on_norms",) if case.decayed_norms and strength < STRONG else (),
    )


def _weigh_size(weigh: Weighing, found: list[Shrinking], strength: float, kept: float) -> None:
    if strength > STRONG:
        weigh.speaks(
            f"the decay's step is {number(strength)} times the gradient's (median over {len(found)} weights)",
            2.5, strength, STRONG,
        )  # fmt: skip
    elif strength > WEAK:
        weigh.speaks(f"the decay's step is {number(strength)} times the gradient's", 1.0, strength, STRONG)
    if kept < 0.1:
        weigh.speaks(f"the weights have shrunk to {percent(kept)} of their first size", 2.5, kept, 0.1)
    elif kept < 0.5:
        weigh.speaks(f"the weights have shrunk to {percent(kept)} of their first size", 1.5, kept, 0.5)
    else:
        weigh.against("the weights have not lost half of their size", 1.0, kept, 0.5)


def _weigh_custom(weigh: Weighing, decay: float, apart: bool, optimizer: str) -> None:
    """Weigh the decay against common use."""
    if decay > LARGE[apart]:
        weigh.speaks(
            f"a weight decay of {number(decay)} is beyond what is in common use with {optimizer} (at most "
            f"{number(LARGE[apart])})", 1.0, decay, LARGE[apart],
        )  # fmt: skip
    elif decay <= USUAL[apart]:
        weigh.against(f"a weight decay of {number(decay)} is usual with {optimizer}", 1.5, decay, USUAL[apart])


CAUSE = Cause(
    module=__name__,
    title="Weight decay too high",
    tier=Tier.SPECIFIC,
    explains=STALL | UNITS | {"loss_divergence", "activation_scale"},
    judge=judge,
    page=__doc__ or "",
)
