"""The batch is so small that gradient noise drowns the gradient.

What it is
    The gradient of a few samples is the true gradient plus noise. With one to four samples the noise can be many times
    larger; then steps of a usual size wander about instead of going down.

Symptoms
    The loss jumps from step to step and shows no trend, at a learning rate that is fine for a larger batch.

Evidence
    From a sample of weights it is worked out which part of the gradients all steps have in common. It is the cause when
    that part is there (averaging over steps brings it out) but is a small share of each single gradient, the batch
    holds four samples or fewer, and the training goes nowhere. Where steps have nothing in common there is nothing to
    learn, or the model has converged. Trainings on single samples that learn well are no fault. A batch that falls to a
    few samples in mid-run is named if the loss scatters far more since and no longer falls.

What to do
    Take a larger batch, or accumulate gradients over several before each step; or lower the learning rate in
    proportion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.evidence.record_readings import LR_MAX
from neuraldbg.explain.evidence.wording import a_step, moved, number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.gradient_course import GradientCourseFact
from neuraldbg.nouns.robust_statistics import noise_of

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

SMALL = 4
"""Largest number of samples in a batch that is too small."""
NOISY = 0.1
"""Share of a gradient's square that steps have in common, below which noise dominates."""
SURE = 3.0
"""Standard errors from which the gradients have a common direction."""
READINGS, SHRUNK = 8, 8.0
"""Least readings of large and of small batches, and factor between their sizes."""
LOSSES, SCATTERS = 200, 2.0
"""Losses that are compared at most, before and at the end, and least factor by which they scatter more."""


def judge(case: Case) -> Finding | None:
    """Weigh batches that became small, else the share that single gradients of a few samples have in common."""
    if (found := _shrunk(case)) is not None:
        return found
    sizes = case.scalar("batch_size").finite().values
    size = float(np.median(sizes)) if len(sizes) else float("nan")
    if not 0 < size <= SMALL or case.learned or not case.loss.alone or case.trouble.kind == "nonfinite":
        return None
    course = case.run.known(GradientCourseFact, stream=case.stream)
    windows = course.windows if course is not None else ()
    if not windows or not (case.trouble.any or case.trouble.kind == "unclear"):
        return None
    weigh = Weighing()
    weigh.speaks(f"a step sees {plural(int(size), 'sample')}", 1.5 if size <= 2 else 0.8, size, SMALL)
    # Noise must hide a common direction: without one a larger batch would not help.
    signal = float(np.median([w.signal for w in windows]))
    first = windows[0]
    if signal < NOISY:
        weigh.speaks(
            f"single gradients share only {percent(max(signal, 0.0))} of their square with each other",
            1.5,
            signal,
            NOISY,
        )
    else:
        weigh.against(f"single gradients share {percent(signal)} of their square with each other", 3.0, signal, NOISY)
    if first.signal > SURE * first.error:
        weigh.speaks(
            f"averaged over {first.count} steps at the beginning a common direction stands out", 1.0, first.signal
        )
    elif not any(w.signal > SURE * w.error for w in windows):
        weigh.against(
            "even averaged over many steps nothing is common to them: there may be nothing to learn", 0.8, signal
        )
    _weigh_course(case, weigh)
    lr = case.lr
    return weigh.conclude(
        f"a batch that is too small: with {plural(int(size), 'sample')} a step, noise is most of each gradient",
        _remedy(size, 32),
        step=0,
        failure=case.trouble.name or "noisy learning",
        equivalent=("lr_too_high",) if lr > LR_MAX[case.lr_class] / 10 else (),
    )


def _shrunk(case: Case) -> Finding | None:
    """Weigh batches that fell to a few samples in mid-run, and stayed so small."""
    sizes, loss = case.scalar("batch_size").finite(), case.loss.finite
    large = np.flatnonzero(sizes.values > SMALL)
    at = int(large[-1]) + 1 if len(large) else 0
    if min(at, len(sizes) - at) < READINGS or len(case.run.streams) > 1:
        return None  # another optimizer begins another training
    usual, size = float(np.median(sizes.values[:at])), float(np.median(sizes.values[at:]))
    since, until = int(sizes.steps[at - 1]), int(sizes.steps[at])
    earlier, later = loss.between(0, since), loss.between(until, case.steps_taken)
    before, after = earlier.values[-LOSSES:], later.values
    if not 1 <= size <= usual / SHRUNK or min(len(before), len(after)) < READINGS or case.loss.renewed:
        return None
    if set(earlier.width[-LOSSES:].tolist()) != set(later.width.tolist()):
        return None  # means of many steps scatter less
    scatter, now = noise_of(before), noise_of(after)
    level, end = float(before.mean()), float(after[-LOSSES:].mean())
    error = float(np.hypot(scatter / np.sqrt(len(before)), now / np.sqrt(len(after[-LOSSES:]))))
    half = len(after) // 2
    falls = float(after[:half].mean() - after[half:].mean())
    if not now > SCATTERS * scatter or end < level - 2 * error or falls > 2 * now * np.sqrt(2 / half):
        return None
    weigh = Weighing()
    said = (
        f"batches had {plural(round(usual), 'sample')} up to step {since}, and have {number(size)} from step {until} on"
    )
    weigh.speaks(said, 3.5, size, usual)
    weigh.speaks(f"the loss scatters by {number(now)} from step to step since, and by {number(scatter)} before", 1.0,
                 now, SCATTERS * scatter)  # fmt: skip
    weigh.speaks(f"it has not fallen since: its mean was {number(level)} before, and is {number(end)} at the end", 1.5,
                 end, level)  # fmt: skip
    return weigh.conclude(
        f"batches that are too small since {a_step(since, until)}: {plural(round(size), 'sample')} each, where they "
        f"had {round(usual)}",
        _remedy(size, round(usual)),
        step=until,
        since=since,
        failure=case.trouble.name or "noisy learning",
    )


def _remedy(size: float, wanted: int) -> Remedy:
    times = max(2, round(wanted / size))
    return Remedy(
        f"Take batches of {wanted}, or accumulate the gradients of {times} batches for each step.",
        f"loss = loss_fn(model(x), y) / {times}\nloss.backward()\n"
        f"if (i + 1) % {times} == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
    )


def _weigh_course(case: Case, weigh: Weighing) -> None:
    loss, ratio = case.loss, max(case.typical_update_ratio, case.early_update_ratio)
    if loss.noise > 0.2 * abs(loss.last):
        weigh.speaks(
            f"the loss scatters by {number(loss.noise)} from step to step", 0.7, loss.noise, 0.2 * abs(loss.last)
        )
    else:
        weigh.against("the loss hardly scatters from step to step", 2.0, loss.noise, 0.2 * abs(loss.last))
    if ratio < 1e-5:
        weigh.against(f"updates are only {moved(ratio)}: noise cannot carry them far", 3.0, ratio, 1e-5)
    if case.lr > LR_MAX[case.lr_class]:
        weigh.against(f"the learning rate of {number(case.lr)} is too high for any batch", 2.0, case.lr)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.2)
    else:
        weigh.against("the run is too short or too noisy to say that it does not learn", 2.0)


CAUSE = Cause(
    module=__name__,
    title="Batch too small",
    tier=Tier.STATISTICAL,
    explains=(BLOW_UP - {"nonfinite_loss"}) | UNITS | (STALL & {"loss_plateau"}),
    judge=judge,
    page=__doc__ or "",
    place="forward",
)
