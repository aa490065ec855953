"""One batch is unlike all others and throws the training off.

What it is
    A single batch holds values far outside the usual range: a mislabelled unit, a sensor error, a damaged file, an
    outlier that preprocessing did not clip.

How it shows
    The loss jumps in one step. Either it comes back within some steps, or the large gradient of that step ruins the
    weights.

How it is told apart
    The statistics of each batch are compared with those of the others. It is the cause when the batch of the jump
    is an extreme outlier and the others are not. If the batch of the jump looks like all others, the cause lies
    elsewhere. A single outlying target is known by the loss of its batch: its square, shared by the batch.

What to do
    Look at that batch, clip or drop the sample, and clip the gradient norm so that one batch cannot ruin the
    weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, UNITS, Cause
from neuraldbg.explain.evidence.inputs import experiments
from neuraldbg.explain.evidence.targets import slots
from neuraldbg.explain.evidence.wording import literal, number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.experiment import OddSample

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

FAR = 10.0
"""Robust standard deviations (1.4826 MAD) beyond which a batch is an outlier of its own run."""
FACTOR = 3.0
"""Least ratio of an outlier to the usual value, since tight distributions make any deviation look large."""
HISTORY = 5
"""Least number of other batches for a usual value."""


ALONE = 12.0
"""Least size of an outlying target, in standard deviations of all targets, itself included."""
SPIKE = 30.0
"""Least ratio of the loss of its batch to the median loss."""
SQUARED = ("mse", "smooth_l1", "huber")
RARE = 0.1
"""Largest share of steps with such a loss that can be due to one sample."""


@dataclass(frozen=True)
class Outlier:
    """The most extreme batch of the run, by one statistic of its inputs."""

    step: int
    stat: str
    leaf: str
    value: float
    usual: float
    share: float
    """Share of batches that are outliers."""


def outliers(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Mark the values that lie extremely far above the others, shape (T,)."""
    usual = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - usual)))
    marked: npt.NDArray[np.bool_] = (values > usual + FAR * spread) & (values > FACTOR * abs(usual) + 1e-12)
    return marked


def find(case: Case) -> Outlier | None:
    """Return the most extreme batch by its largest absolute value or rms; None if no batch is an outlier."""
    # Ids have no scale. Outliers of several inputs and statistics are compared by their ratio to the usual value.
    best: tuple[float, Outlier] | None = None
    for row in case.layout.rows("input"):
        if case.layout.sites[row].dtype.removeprefix("torch.").startswith(("int", "uint", "bool")):
            continue
        low, high = case.run.series(row, "min", "min"), case.run.series(row, "max", "max")
        largest = np.maximum(np.abs(low.values), np.abs(high.values))
        for stat, values in (("largest value", largest), ("rms", case.run.series(row, "rms", "max").values)):
            keep = np.isfinite(values)
            if keep.sum() <= HISTORY:
                continue
            steps, kept = low.steps[keep], values[keep]
            marked = outliers(kept)
            if marked.any():
                index, usual = int(np.argmax(kept)), float(np.median(kept))
                extreme = float(kept[index]) / max(usual, 1e-12)
                found = Outlier(
                    int(steps[index]),
                    stat,
                    case.layout.sites[row].name,
                    float(kept[index]),
                    usual,
                    float(marked.mean()),
                )
                if best is None or extreme > best[0]:
                    best = (extreme, found)
    return best[1] if best else None


def judge(case: Case) -> Finding | None:
    """Weigh a single outlying target, else the most extreme batch and its effect on loss and gradients."""
    alone = _target(case)
    if alone is not None:
        return alone
    odd = find(case)
    if odd is None:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"the batch of step {odd.step} has a {odd.stat} of {number(odd.value)}, usual is {number(odd.usual)}",
        _surprise(odd.value, odd.usual), odd.value, odd.usual,
    )  # fmt: skip
    if odd.share > 0.05:
        weigh.against(
            f"{percent(odd.share)} of the batches are like that, so it is a property of the data", 2.0, odd.share, 0.05
        )
    # A batch that is bad shows in the loss and the gradient of its own step.
    _weigh_loss(case, odd, weigh)
    norm = case.scalar("grad_norm").finite()
    here = norm.at(odd.step)
    if len(norm) > HISTORY and here > 5 * float(np.median(norm.values)):
        weigh.speaks(
            f"its gradient norm is {number(here)}, usual is {number(float(np.median(norm.values)))}", 1.0, here
        )
    # An experiment may know the sample; the remedy clips at a norm from before the failure.
    sample = next((one for one in experiments(case, OddSample) if one.step == odd.step), None)
    which = ""
    if sample is not None and sample.sample is not None:
        which = f" (sample {sample.sample})"
        weigh.speaks(f"its sample {sample.sample} reaches {number(sample.value)}, the usual one of that "
                     f"batch {number(sample.usual)}", 0.5, sample.value)  # fmt: skip
    limit = (
        case.healthy_grad_norm if case.trouble.broke else float(np.median(norm.values)) if len(norm) else float("nan")
    )
    clip = f"torch.nn.utils.clip_grad_norm_(model.parameters(), {literal(limit)})" if np.isfinite(limit) else ""
    return weigh.conclude(
        f"one batch unlike all others: at step {odd.step} its {odd.stat} is {number(odd.value)} instead of "
        f"about {number(odd.usual)}{which}",
        Remedy(
            "Look at the samples of that batch and drop or clip them; clipping the gradient norm keeps one batch from "
            "ruining the weights.",
            f"x = x.clamp(-{literal(3 * odd.usual)}, {literal(3 * odd.usual)})\n{clip}".strip(),
        ),
        step=odd.step,
        failure=case.trouble.name or "loss spike",
    )


def _target(case: Case) -> Finding | None:
    """Weigh a single target that gives the whole loss of its batch: its square over the batch size, for a mean."""
    loss = case.loss.finite
    sizes = case.run.scalar("batch_size").finite().values
    if len(loss) <= HISTORY or not len(sizes):
        return None
    rows = max(1.0, float(np.median(sizes)))
    for slot in slots(case):
        far = max(abs(slot.max or 0.0), abs(slot.min or 0.0))
        if slot.kind not in SQUARED or far < ALONE * (slot.std or math.inf):
            continue
        made = far**2 if slot.kind == "mse" else far
        for each in (made / rows, made):
            hit = (loss.values > 0.8 * each) & (loss.values < 1.25 * each)
            if hit.any() and hit.mean() <= RARE and each > SPIKE * float(np.median(loss.values)):
                index = int(np.argmax(hit))
                return _one_target(case, int(loss.steps[index]), float(loss.values[index]), far, int(rows))
    return None


def _one_target(case: Case, step: int, value: float, far: float, rows: int) -> Finding:
    weigh, loss = Weighing(), case.loss.finite
    usual = float(np.median(loss.values[:step])) if step >= HISTORY else float(np.median(loss.values))
    weigh.speaks(f"the loss of step {step} is {number(value)}, usual is {number(usual)}", 2.5, value, usual)
    weigh.speaks(f"one target of {number(far)} alone makes such a loss in a batch of {rows}", 3.0, far)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    else:
        weigh.against("the training gets over it", 2.5)
    return weigh.conclude(
        f"one batch unlike all others: a target of {number(far)} makes the loss {number(value)} at step {step}, usual "
        f"is {number(usual)}",
        Remedy("Look for that target in the data: a typing error, another unit, a mark for a missing value.",
               f"print((target.abs() > {literal(far / 2)}).nonzero())"),
        step=step,
        failure=case.trouble.name or "loss spike",
    )  # fmt: skip


def _surprise(value: float, usual: float) -> float:
    """Return the weight of an outlier, which grows with factors above 100, since measured data has a heavy tail."""
    times = abs(value / usual) if usual else 1.0
    return 2.5 + min(max(0.0, 1.2 * (math.log10(max(times, 1.0)) - 2)), 3.0)


def _weigh_loss(case: Case, odd: Outlier, weigh: Weighing) -> None:
    """Weigh the loss of the outlier's step and of the steps after it."""
    loss = case.loss.finite
    here, others = case.loss.series.at(odd.step), loss.values[loss.steps != odd.step]
    before = case.loss.finite.between(0, odd.step - 1).values
    if case.onset is not None and case.onset < odd.step and case.trouble.kind != "stuck":
        weigh.against(f"the trouble began before, at step {case.onset}", 4.0)
        return
    usual = float(np.median(before if len(before) >= HISTORY else others)) if len(others) else float("nan")
    if not np.isfinite(here) or here > 2 * usual:
        weigh.speaks(f"the loss of that step is {number(here)}, before it was {number(usual)}", 2.5, here, 2 * usual)
    else:
        # A batch norm hides such a batch from the loss, and keeps it in its running statistics.
        weigh.against("the loss of that step is like that of the others", 2.0 if case.has_norms else 3.5, here,
                      2 * usual)  # fmt: skip
    if case.trouble.broke and case.onset is not None and odd.step <= case.onset <= odd.step + 3:
        weigh.speaks(
            f"the run broke within {plural(case.onset - odd.step + 1, 'step')} of it, at step {case.onset}", 1.5,
        )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="one batch unlike all others",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | UNITS,
    judge=judge,
    page=__doc__ or "",
)
