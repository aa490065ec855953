"""The input is normalised twice, and hardly anything of it is left.

What it is
    Pixels are divided by 255 by the loader (``ToTensor`` does it) and once more by hand, so that they lie between 0 and
    0.004. Or the mean and spread for 0..255 are used on values from 0 to 1: every pixel becomes nearly -1.

Symptoms
    Learning is slow or does not begin: the first layer sees nearly the same for every picture, and its biases drown
    the rest. A high learning rate seems to help.

Evidence
    Pixels are whole numbers from 0 to 255 before anything is done with them. After a division they still lie on a grid,
    and the grid tells what was done: k / 255 once, k / 255 / 255 twice. Values that are small by nature lie on no such
    grid. A normalisation layer at the front of the model undoes it, and then it does no harm. Inputs that are too
    large are another cause (``unnormalised_inputs``).

What to do
    Scale once. After ``ToTensor`` the mean and spread are those of values from 0 to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.depth_profiles import is_norm
from neuraldbg.explain.evidence.inputs import batches
from neuraldbg.explain.evidence.optimizer_steps import POOR, poor, weigh_poverty
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.batches import Level

NEAR_EPS = 1e-4
"""Variance of inputs below which a batch norm after the first layer does not restore the scale: its eps is 1e-5."""
GRIDS = {
    "twice": ("k / 255 / 255: from 0 to 1 / 255, divided by 255 twice", "x = x / 255  # once: ToTensor() has done it"),
    "shrunk": (
        "(k / 255 - 127.5) / 127.5 for whole numbers k: shifted by a mean for 0..255 after a division by 255",
        "x = (x - 0.5) / 0.5  # mean and spread for values from 0 to 1",
    ),
    "faint": (
        "(x / 255 - mean) / std of values x from 0 to 1: without that division their mean were 0 and their spread 1",
        "x = (x - mean) / std  # values from 0 to 1 must not be divided by 255 again",
    ),
}


def judge(case: Case) -> Finding | None:
    """Weigh inputs whose values lie on the grid of a normalisation that was applied twice or to the wrong range."""
    for fact in batches(case):
        if fact.grid in GRIDS and fact.train is not None:
            return _weigh(case, fact.grid, fact.train)
    return None


def _weigh(case: Case, grid: str, level: Level) -> Finding:
    (what, code), weigh = GRIDS[grid], Weighing()
    weigh.speaks(f"the inputs lie on the grid {what}", 5.0, grid)
    weigh.speaks(
        f"they range from {number(level.low)} to {number(level.high)}, with a standard deviation of "
        f"{number(level.std)}", 0.7, level.std, 0.02,
    )  # fmt: skip
    leaves = [layer for layer in case.ordered if layer.leaf and layer.path in (case.layout.called or {layer.path})]
    absorbed = next((layer for layer in leaves[:2] if is_norm(layer)), None)
    if absorbed is not None:
        # After a first layer it restores the scale only in part: its eps is larger than the variance that is left, and
        # the zeros of a convolution's padding differ from the offset of the inputs.
        whole = absorbed is leaves[0] or not (case.trouble.any or level.std**2 < NEAR_EPS)
        weigh.against(f"{called(absorbed.path)} ({absorbed.type}) undoes the scale{'' if whole else ' in part'}",
                      5.0 if whole else 2.5, absorbed.path)  # fmt: skip
    # Inputs on the wrong scale are a fact; whether they do harm shows in the loss.
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    elif poor(case) > POOR:
        weigh_poverty(case, weigh, 1.0)
    elif case.learned:
        weigh.against(f"the loss falls anyway, {case.loss.course}", 1.0, case.loss.relative)
    first = next((w.layer.path for w in case.weights), None)
    return weigh.conclude(
        f"inputs that are normalised twice: they range from {number(level.low)} to {number(level.high)}",
        Remedy("Scale the inputs once: what the loader has done already must not be done again.", code),
        layer=first,
        step=0,
        failure=case.trouble.name or "inputs without contrast",
    )


CAUSE = Cause(
    module=__name__,
    title="Inputs normalised twice",
    tier=Tier.CERTAIN,
    explains=frozenset(STALL),
    judge=judge,
    page=__doc__ or "",
    entails=frozenset({"unnormalised_inputs", "dead_relu"}),
)
