"""The labels have nothing to do with the inputs: random, or wrong for most samples.

What it is
    Labels were assigned at random, read from the wrong column, or lost their order. The network can only learn how
    often each label occurs, and later the single samples by heart.

How it shows
    The loss comes to rest at the level of a constant guess. With enough epochs and weights it falls in training and
    rises in validation.

How it is told apart
    A few hundred samples of the first batches are kept, and a kernel regression is asked whether inputs tell the
    labels better than shuffled ones do. If it finds nothing and the network finds nothing, labels are likely random.
    A task that needs more than nearness of inputs, such as parity, looks just the same, so that this is never said
    with certainty. If another order of the labels fits it is target_misaligned; a shuffle of the labels alone fits
    no order, and the two cannot be told apart.

What to do
    Look at a dozen samples with their labels, and at the line that pairs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.explain import targets
from neuraldbg.explain.cause import STALL, UNITS, Cause, Tier
from neuraldbg.explain.finding import Weighing
from neuraldbg.explain.words import number
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.case import Case
    from neuraldbg.explain.finding import Finding

NOTHING = 3.0
"""Standard deviations of shuffled labels below which inputs tell nothing."""
SAMPLES = 200


def judge(case: Case) -> Finding | None:
    """Weigh whether inputs tell the labels of a supervised loss."""
    if case.trouble.kind not in ("stuck", "slow"):
        return None
    for slot in targets.slots(case):
        fit, term = slot.get("fit") or {}, targets.supervised(case, slot)
        nothing = fit.get("z", 9.0) < NOTHING and fit.get("best_z", 0.0) < 2 * NOTHING
        if term is not None and "tokens" not in slot and fit.get("samples", 0) >= SAMPLES and nothing:
            return _weigh(case, fit, term)
    return None


def _weigh(case: Case, fit: dict[str, Any], term: dict[str, Any]) -> Finding:
    weigh = Weighing()
    weigh.speaks(
        f"the inputs of {fit['samples']} samples tell their targets no better than shuffled ones (R^2 "
        f"{number(fit['score'])} against {number(fit['null'])})", 2.6, fit["z"], NOTHING,
    )  # fmt: skip
    weigh.speaks(case.trouble.phrase, 1.2)
    again, agree = int(fit.get("again") or 0), int(fit.get("agree") or 0)
    if again >= 30 and agree == again:
        weigh.against(f"each of {again} inputs that came again had the same label", 0.1, again)
    return weigh.conclude(
        "labels that do not depend on the inputs, or depend on them in a way that is hard to see",
        Remedy(
            "Look at some samples beside their labels, and at the line that pairs them.",
            "for sample, label in list(zip(x, y))[:12]:\n    print(sample, label)",
        ),
        layer=term.get("layer"),
        step=0,
        failure=case.trouble.name or "no learning",
        equivalent=("target_misaligned",),
    )


CAUSE = Cause(
    id="label_noise",
    category="data",
    title="labels that have nothing to do with the inputs",
    tier=Tier.STATISTICAL,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
