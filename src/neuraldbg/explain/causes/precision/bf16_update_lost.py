"""Updates are too small for the weights' number format and are rounded away.

What it is
    A bfloat16 number keeps eight significant bits: between 1 and 1.0078 there is none. A weight in bfloat16 therefore
    ignores every update below half the gap to its neighbour, a 256th to a 512th of itself. Steps of a usual learning
    rate are smaller, and most weights stay bit for bit what they were. (float16 weights ignore what is below a 2000th
    to a 4000th.)

Symptoms
    The loss stands still or falls far too slowly, though gradients and learning rate are fine. Raising the learning
    rate seems to help, until it is too high.

Evidence
    The share of the weights' elements that a step leaves bitwise unchanged is counted, where their gradient is not
    zero. A training with float32 weights and bfloat16 autocast does not have the problem, nor one that keeps a float32
    copy of the weights for the optimizer. A learning rate that is too low moves float32 weights, a little. Of a run
    that learns it is said where four fifths of the elements stay as they were, with less confidence: it would learn
    better.

What to do
    Keep the weights in float32 and compute in bfloat16 with autocast, or use an optimizer with float32 master weights
    or stochastic rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import device_of
from neuraldbg.explain.evidence.wording import literal, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

RESOLUTION = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "half": 2.0**-12}
"""Half a unit in the last place, as a share of a number just below the next power of two: smaller updates are lost."""
LOST = 0.7
"""Share of unchanged elements from which most of a step is lost."""
MOSTLY = 0.8
"""Share of unchanged elements from which most of a step is lost, in a run that learns from the rest."""
SMALLEST = 6.1e-5
"""The smallest normal float16 (IEEE 754 binary16)."""
GRADIENT = 0.5
"""Share of zeros in a gradient above which unchanged weights are no evidence."""


@dataclass(frozen=True)
class Rounding:
    """The effect of the steps on the low-precision weights of a run."""

    dtype: str
    share: float
    """Share of elements that a step did not change, over all such weights."""
    step: float
    """Intended size of a step, as a share of the weight; NaN if unknown."""
    gradient: float
    """Median size (rms) of the gradients."""

    @property
    def resolution(self) -> float:
        return RESOLUTION[self.dtype]


def judge(case: Case) -> Finding | None:
    """Weigh the share of elements of low-precision weights that a step does not change."""
    # A run that learns needs more lost updates: the rest is enough to learn from.
    found = _rounding(case)
    if found is None or not case.lr > 0 or found.share < LOST or case.trouble.broke:
        return None
    learns = case.learned and case.loss.relative > 0.2
    if learns and found.share < MOSTLY:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{percent(found.share)} of the weights' elements ({found.dtype}) did not change in a step, though they have "
        "gradients", 4.0 if found.share > 0.97 or learns else 3.0 if found.share > 0.9 else 1.5, found.share, LOST,
    )  # fmt: skip
    _weigh_sizes(weigh, found)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    elif learns:
        weigh.against("the loss falls anyway, but slower than it could", 1.0)
    else:
        weigh.against("the training is not in trouble", 2.0 if not case.learned else 3.0)
    return weigh.conclude(
        f"updates that {found.dtype} weights round away: {percent(found.share)} of the elements stay as they are at a "
        f"learning rate of {number(case.lr)}",
        Remedy(
            "Keep the weights in float32 and compute in bfloat16 with autocast.",
            f"model.float()\noptimizer = torch.optim.{case.optimizer_name}(model.parameters(), lr={literal(case.lr)})\n"
            f'with torch.autocast("{device_of(case)}", dtype=torch.bfloat16):\n    loss = loss_fn(model(x), y)',
        ),
        step=0,
        failure=case.trouble.name or "lost updates",
        equivalent=("lr_too_low",) if found.step < 1e-6 else (),
    )


def _weigh_sizes(weigh: Weighing, found: Rounding) -> None:
    """Weigh the intended size of a step, and the gradient, against the resolution of the format."""
    if found.step < found.resolution:
        weigh.speaks(
            f"a step is about {number(found.step)} of a weight, and {found.dtype} cannot show less than "
            f"{number(found.resolution)}", 2.0, found.step, found.resolution,
        )  # fmt: skip
    elif found.step > 4 * found.resolution:
        weigh.against(
            f"a step is about {number(found.step)} of a weight, which {found.dtype} can show", 2.5, found.step
        )
    if found.dtype != "bfloat16" and found.gradient < SMALLEST:
        weigh.against(
            f"the gradients (about {number(found.gradient)}) are below float16's normal numbers, which comes before "
            "the weights' own rounding", 3.5, found.gradient, SMALLEST,
        )  # fmt: skip
    if found.step < 1e-7:
        weigh.against("steps are so small that float32 weights would hardly move either", 2.0, found.step, 1e-7)


def _rounding(case: Case) -> Rounding | None:
    """Return the effect of the steps on the 16-bit weights; None if none of them has a gradient."""
    unchanged, sizes, wanted, gradients = [], [], [], []
    format_ = ""
    for row in case.layout.rows("update"):
        site = case.layout.sites[row]
        dtype = site.dtype.removeprefix("torch.")
        if dtype not in RESOLUTION or row >= case.history.sites:
            continue
        share = _unchanged(case, row)
        if share is not None:
            format_ = dtype
            unchanged.append(share)
            sizes.append(float(case.run.series(row, "total").values[-1]))
            wanted.append(_wanted(case, row))
            grads = case.run.series(case.layout.rows("param_grad", site.module, site.name)[0], "rms").finite()
            gradients.append(float(np.median(grads.values)) if len(grads) else 0.0)
    if not unchanged:
        return None
    known = [w for w in wanted if w > 0]
    step = float(np.median(known)) if known else float("nan")
    return Rounding(format_, float(np.average(unchanged, weights=sizes)), step, float(np.median(gradients)))


def _unchanged(case: Case, row: int) -> float | None:
    """Return the median share of a weight's elements that a step did not change; None without a dense gradient."""
    site = case.layout.sites[row]
    zeros, count = case.run.series(row, "zeros"), case.run.series(row, "count")
    grads = case.layout.rows("param_grad", site.module, site.name)
    if not len(zeros) or not grads:
        return None
    g_zeros, g_count = case.run.series(grads[0], "zeros"), case.run.series(grads[0], "count")
    if not len(g_zeros) or float(np.median(g_zeros.values / g_count.values)) > GRADIENT:
        return None
    return float(np.median(zeros.values / count.values))


def _wanted(case: Case, row: int) -> float:
    """Return the approximate intended size of a step, as a share of the weight: that of float32; NaN if unknown."""
    site = case.layout.sites[row]
    weight = case.run.series(case.layout.rows("param", site.module, site.name)[0], "rms").finite()
    grad = case.run.series(case.layout.rows("param_grad", site.module, site.name)[0], "rms").finite()
    if not len(weight) or not len(grad) or not weight.values[0] > 0:
        return float("nan")
    step = case.lr if case.adaptive else case.lr * float(np.median(grad.values))
    return step / float(weight.values[0])


CAUSE = Cause(
    module=__name__,
    title="Updates rounded away in low precision",
    tier=Tier.SPECIFIC,
    explains=STALL,
    judge=judge,
    page=__doc__ or "",
    place="step",
)
