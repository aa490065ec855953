"""Updates are too small for the weights' number format and are rounded away.

What it is
    A bfloat16 number has eight bits: between 1 and 1.0078 there is none. A weight in bfloat16 therefore ignores every
    update below about a 500th of itself. Steps of a usual learning rate are smaller, and most weights stay bit for bit
    what they were. (float16 weights ignore what is below a 4000th.)

How it shows
    The loss stands still or falls far too slowly, though gradients and learning rate are fine. Raising the learning
    rate seems to help, until it is too high.

How it is told apart
    The share of the weights' elements that a step leaves bitwise unchanged is counted, where their gradient is not
    zero. A training with float32 weights and bfloat16 autocast does not have the problem, nor one that keeps a
    float32 copy of the weights for the optimizer. A learning rate that is too low moves float32 weights, a little.

What to do
    Keep the weights in float32 and compute in bfloat16 with autocast, or use an optimizer with float32 master weights
    or stochastic rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause, Tier
from neuraldbg.explain.finding import Weighing
from neuraldbg.explain.words import literal, number, percent
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.case import Case
    from neuraldbg.explain.finding import Finding

RESOLUTION = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "half": 2.0**-12}
"""Half a unit in the last place, as a share of a number just below the next power of two: smaller updates vanish."""
LOST = 0.7
"""Share of unchanged elements from which most of a step is lost."""
SMALLEST = 6.1e-5
"""The smallest normal float16 (IEEE 754 binary16)."""
GRADIENT = 0.5
"""Share of zeros in a gradient above which unchanged weights mean nothing."""


def judge(case: Case) -> Finding | None:
    """Weigh how many elements of low-precision weights a step leaves as they were."""
    unchanged, sizes, wanted, sizes_of_gradients = [], [], [], []
    format_ = ""
    for row in case.layout.rows("update"):
        site = case.layout.sites[row]
        dtype = site.dtype.removeprefix("torch.")
        if dtype not in RESOLUTION or row >= case.history.mean.shape[1]:
            continue
        share = _unchanged(case, row)
        if share is not None:
            format_ = dtype
            unchanged.append(share)
            sizes.append(float(case.run.series(row, "total").values[-1]))
            wanted.append(_wanted(case, row))
            grads = case.run.series(case.layout.rows("param_grad", site.module, site.name)[0], "rms").finite()
            sizes_of_gradients.append(float(np.median(grads.values)) if len(grads) else 0.0)
    if not unchanged or not case.lr > 0:
        return None
    share = float(np.average(unchanged, weights=sizes))
    if share < LOST or case.trouble.broke:
        return None
    if case.learned and case.loss.relative > 0.2:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{percent(share)} of the weights' elements ({format_}) did not change in a step, though they have gradients",
        4.0 if share > 0.97 else 3.0 if share > 0.9 else 1.5, share, LOST,
    )  # fmt: skip
    known = [w for w in wanted if w > 0]
    step = float(np.median(known)) if known else float("nan")
    if step < RESOLUTION[format_]:
        weigh.speaks(
            f"a step is about {number(step)} of a weight, and {format_} cannot show less than "
            f"{number(RESOLUTION[format_])}", 2.0, step, RESOLUTION[format_],
        )  # fmt: skip
    elif step > 4 * RESOLUTION[format_]:
        weigh.against(f"a step is about {number(step)} of a weight, which {format_} can show", 2.5, step)
    gradient = float(np.median(sizes_of_gradients)) if sizes_of_gradients else float("nan")
    if format_ != "bfloat16" and gradient < SMALLEST:
        weigh.against(
            f"the gradients (about {number(gradient)}) are below float16's normal numbers, which comes before the "
            "weights' own rounding", 3.5, gradient, SMALLEST,
        )  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    else:
        weigh.against("the training is not in trouble", 2.0 if not case.learned else 3.0)
    if step < 1e-7:
        weigh.against("steps are so small that float32 weights would hardly move either", 2.0, step, 1e-7)
    return weigh.conclude(
        f"updates that {format_} weights round away: {percent(share)} of the elements stay as they are at a learning "
        f"rate of {number(case.lr)}",
        Remedy(
            "Keep the weights in float32 and compute in bfloat16 with autocast.",
            f"model.float()\noptimizer = torch.optim.{case.optimizer_name}(model.parameters(), lr={literal(case.lr)})\n"
            'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = loss_fn(model(x), y)',
        ),
        step=0,
        failure=case.trouble.name or "lost updates",
        equivalent=("lr_too_low",) if step < 1e-6 else (),
    )


def _unchanged(case: Case, row: int) -> float | None:
    """Return the median share of a weight's elements that a step left as they were; None where it has no gradient."""
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
    """Return about how large a step was meant to be, as a share of the weight: what float32 would have done."""
    site = case.layout.sites[row]
    weight = case.run.series(case.layout.rows("param", site.module, site.name)[0], "rms").finite()
    grad = case.run.series(case.layout.rows("param_grad", site.module, site.name)[0], "rms").finite()
    if not len(weight) or not len(grad) or not weight.values[0] > 0:
        return float("nan")
    step = case.lr if case.adaptive else case.lr * float(np.median(grad.values))
    return step / float(weight.values[0])


CAUSE = Cause(
    id="bf16_update_lost",
    category="precision",
    title="updates are rounded away in low-precision weights",
    tier=Tier.SPECIFIC,
    explains=STALL,
    judge=judge,
    page=__doc__ or "",
)
