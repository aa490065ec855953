"""The logits drift: their common level moves away from zero, which the loss does not notice.

What it is
    A softmax does not change when the same number is added to all logits, so nothing in a cross entropy holds their
    level. In long runs, without weight decay on the head, it can wander far from zero. In 16-bit numbers the
    differences between logits then fall below the steps between neighbouring numbers.

Symptoms
    Late in a run: the loss becomes rough or rises, first in low precision.

Evidence
    log Z, the logarithm of the sum of the logits' exponentials, is read from the outputs over the run. A network that
    grows sure raises log Z too, by one large logit among small ones, and that is what training does. Drift is named
    where all logits of a sample have moved together: their mean size is then about as large as log Z itself.

What to do
    Add a z-loss, 1e-4 * (log Z)^2, as PaLM does; compute the loss in float32; decay the head's weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, Cause
from neuraldbg.explain.evidence.layer_facts import Reading, as_number, calls
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.outputs import Variety

FAR = 50.0
"""|log Z| from which the logits have drifted: it begins near ln C, which is 11 for fifty thousand classes, and z-loss
(Chowdhery et al. 2022, PaLM, section 5) pulls it to 0."""
COMMON = 0.8
"""Size of the logits over |log Z|, from which all of them share the level."""
THROWN = 0.3
"""norm(update) / norm(weight) of a single step that moves the level of the logits at once; 1e-3 is healthy."""
READINGS = 4
GROWTH = 2.0
"""Growth of |log Z| over the last readings, whose steps double, from which it is a drift and not a level."""


def judge(case: Case) -> Finding | None:
    """Weigh the level of the logits under a cross entropy."""
    # A softmax ignores the common level of its inputs, so nothing in the loss holds it.
    classes = {t.classes for t in case.terms if t.kind in ("cross_entropy", "nll")} - {0, 1}
    series: dict[str, list[Reading[Variety]]] = {}
    for call in calls(case):
        for out in call.of.outputs:
            if out.shape and out.shape[-1] in classes and math.isfinite(as_number(out.log_z)):
                series.setdefault(call.of.part, []).append(Reading(call.step, out))
    far = {part: seen for part, seen in series.items() if _drifts(seen)}
    if not far or _thrown(case, max(seen[-1].step for seen in far.values())):
        return None
    part = max(far, key=lambda p: abs(_log_z(far[p][-1])))
    seen = far[part]
    last, usual, scale = _log_z(seen[-1]), math.log(seen[-1].of.shape[-1]), seen[-1].of.scale
    weigh = Weighing()
    weigh.speaks(
        f"log Z went from {number(_log_z(seen[0]))} at step {seen[0].step} to {number(last)} at step {seen[-1].step}; "
        f"an untrained model has {number(usual)}", 2.5, last, FAR,
    )  # fmt: skip
    weigh.speaks(f"all logits share that level: their size is {number(scale)}", 0.7, scale)
    # The level does harm by rounding: in 16 bits neighbouring logits become equal.
    kinds = [case.precision.autocast, *case.precision.param_dtypes]
    low = next((kind for kind in kinds if kind in ("bfloat16", "float16")), None)
    if low is not None:
        step = abs(last) * (2**-8 if low == "bfloat16" else 2**-11)
        weigh.speaks(
            f"neighbouring {low} numbers of that size lie {number(step)} apart", 3.2 if step >= 1 else 1.5, step, low
        )
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.8)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 2.0, case.loss.relative)
    layer = next((t.layer for t in case.terms if t.layer), None)
    return weigh.conclude(
        f"logits whose common level drifts: log Z reached {number(last)}",
        Remedy(
            "Hold log Z near zero with a small term in the loss.",
            "log_z = torch.logsumexp(logits.float(), dim=-1)\nloss = loss + 1e-4 * (log_z**2).mean()",
        ),
        layer=layer,
        step=next(v.step for v in seen if abs(_log_z(v)) > FAR),
        failure=case.trouble.name or "drift of the logits",
    )


def _thrown(case: Case, until: int) -> bool:
    """Return True if a single update was so large that it moved the logits at once: that is no drift."""
    updates = case.scalar("update_ratio").finite().between(0, until).values
    return bool(len(updates) and updates.max() > THROWN)


def _log_z(reading: Reading[Variety]) -> float:
    return as_number(reading.of.log_z)


def _drifts(seen: list[Reading[Variety]]) -> bool:
    begun = abs(_log_z(seen[0])) < FAR / 2 if seen else False
    seen = _doubling(seen)
    if len(seen) < READINGS:
        return False
    level = np.abs([_log_z(v) for v in seen])
    tail = level[-READINGS:]
    common = seen[-1].of.scale >= COMMON * level[-1] and seen[-1].of.across < 0.5 * level[-1]
    return bool(begun and level[-1] > FAR and tail[-1] > GROWTH * tail[0] and (np.diff(tail) > 0).all() and common)


def _doubling(seen: list[Reading[Variety]]) -> list[Reading[Variety]]:
    """Return the newest reading and earlier ones, each at half the step of the next or before: a drift is a growth over
    the course of the run, which neighbouring readings show little of.
    """
    kept = seen[-1:]
    for one in reversed(seen[:-1]):
        if 2 * one.step <= kept[-1].step:
            kept.append(one)
    return kept[::-1]


CAUSE = Cause(
    module=__name__,
    title="Logits drift away from zero",
    tier=Tier.STATISTICAL,
    explains=BLOW_UP,
    judge=judge,
    page=__doc__ or "",
)
