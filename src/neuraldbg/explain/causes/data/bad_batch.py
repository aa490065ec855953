"""One batch is unlike all others and throws the training off.

What it is
    A single batch holds values far outside the usual range: a mislabelled unit, a sensor error, a damaged file, an
    outlier that preprocessing did not clip.

Symptoms
    The loss jumps in one step. Either it comes back within some steps, or the large gradient of that step ruins the
    weights.

Evidence
    The statistics of each batch are compared with those of the others. It is the cause when the batch of the jump
    is an extreme outlier and the others are not. If the batch of the jump looks like all others, the cause lies
    elsewhere. A single outlying target is known by the loss of its batch: its square, shared by the batch.

What to do
    Inspect that batch, clip or drop the sample, and clip the gradient norm so that one batch cannot ruin the
    weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, UNITS, Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.change_points import input_shift
from neuraldbg.explain.evidence.inputs import experiments
from neuraldbg.explain.evidence.late_changes import began, weigh_change
from neuraldbg.explain.evidence.targets import slots, term_of
from neuraldbg.explain.evidence.wording import literal, number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.experiment import OddSample
from neuraldbg.nouns.facts.targets import TargetsFact

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.change_points import ChangePoint
    from neuraldbg.explain.finding import Finding

    Floats = npt.NDArray[np.float64]

FAR = 10.0
"""Robust standard deviations (1.4826 MAD) beyond which a batch is an outlier of its own run."""
FACTOR = 3.0
"""Least ratio of an outlier to the usual value, since tight distributions make any deviation look large."""
HISTORY = 5
"""Least number of other batches for a usual value."""
ALIKE = 10.0
"""Ratio of the largest outlier to those that are outliers for the same reason."""
FEW = 10
"""Largest number of batches that are called a few."""
SHOWN = 3
"""Number of steps that the remedy names."""

NEAR = 3
"""Largest number of unread steps before the only batch read that is an outlier, which it can explain."""
ALONE = 12.0
"""Least size of an outlying target, in standard deviations of all targets, itself included."""
SPIKE = 30.0
"""Least ratio of the loss of its batch to the median loss."""
SQUARED = ("mse", "smooth_l1", "huber")
RARE = 0.1
"""Largest share of steps with such a loss that can be due to one sample."""


@dataclass(frozen=True)
class Outlier:
    """The first of the batches that are unlike the others, by one statistic of its inputs."""

    step: int
    """First step that shows it: ``seen``, or an unread one right before it whose loss jumped as well."""
    seen: int
    """Step of the batch whose inputs were read."""
    stat: str
    value: float
    """The statistic of that batch, with its sign."""
    usual: float
    """Median of the same statistic over the batches."""
    times: float
    """Ratio of the size of the value to the usual size."""
    reach: float
    """Median over the batches of the largest absolute value."""
    steps: tuple[int, ...]
    """Steps of all batches read that are outliers."""
    read: int
    """Number of batches that were read."""


def outliers(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Mark the values that lie extremely far above the others, shape (T,)."""
    usual = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - usual)))
    marked: npt.NDArray[np.bool_] = (values > usual + FAR * spread) & (values > FACTOR * abs(usual) + 1e-12)
    return marked


def find(case: Case) -> Outlier | None:
    """Return the first batch that is as extreme as any by its largest absolute value or rms; None if there is none."""
    # Ids have no scale. Outliers of several inputs and statistics are compared by their ratio to the usual value.
    best: tuple[float, Outlier] | None = None
    for row in case.layout.rows("input"):
        if case.layout.sites[row].dtype.removeprefix("torch.").startswith(("int", "uint", "bool")):
            continue
        steps_read, low, high, rms = _scales(case, row)
        signed = np.where(np.abs(low) > np.abs(high), low, high)
        for stat, values in (("largest value", signed), ("rms", rms)):
            keep = np.isfinite(values)
            if keep.sum() <= HISTORY:
                continue
            steps, kept = steps_read[keep], values[keep]
            sizes = np.abs(kept)
            marked = outliers(sizes)
            if marked.any():
                extreme, usual = float(sizes.max()) / max(float(np.median(sizes)), 1e-12), float(np.median(sizes))
                index = _first(case, steps, sizes, marked)
                odd = tuple(int(step) for step in steps[marked])
                seen = int(steps[index])
                step = _start(case, seen, seen if len(odd) > 1 else NEAR)
                value, name = float(kept[index]), stat
                times = float(sizes[index]) / max(usual, 1e-12)
                if value < 0:
                    name, usual = "lowest value", float(np.median(low[keep]))
                reach = float(np.median(np.abs(signed[np.isfinite(signed)])))
                found = Outlier(step, seen, name, value, usual, times, reach, odd, len(kept))
                if best is None or extreme > best[0]:
                    best = (extreme, found)
    return best[1] if best else None


def _scales(case: Case, row: int) -> tuple[npt.NDArray[np.int64], Floats, Floats, Floats]:
    """Return the steps, and lowest value, highest value and rms of an input in them, shape (T,): those of the steps
    that were read, and of light steps at whose loss the batch was read.
    """
    low, high = case.run.series(row, "min", "min"), case.run.series(row, "max", "max")
    steps, values = low.steps, np.array([low.values, high.values, case.run.series(row, "rms", "max").values])
    known, others = set(steps[np.isfinite(values).all(axis=0)].tolist()), len(case.layout.rows("input")) > 1
    for one in experiments(case, OddSample) if not others else ():
        if one.step is None or one.low is None or one.high is None or one.rms is None or one.step in known:
            continue
        at = int(np.searchsorted(steps, one.step))
        here = at < len(steps) and steps[at] == one.step
        steps = steps if here else np.insert(steps, at, one.step)
        values = values if here else np.insert(values, at, np.nan, axis=1)
        values[:, at] = one.low, one.high, one.rms
    return steps, values[0], values[1], values[2]


def _first(
    case: Case, steps: npt.NDArray[np.int64], sizes: npt.NDArray[np.float64], marked: npt.NDArray[np.bool_]
) -> int:
    """Return the index of the first outlier about as large as the largest whose loss jumped, else of the largest."""
    for index in np.flatnonzero(marked & (sizes >= sizes.max() / ALIKE)):
        if _jumped(case, int(steps[index])):
            return int(index)
    return int(np.argmax(sizes))


def _jumped(case: Case, step: int) -> bool:
    """Return True if the loss of a step is an outlier among those before it."""
    here, before = case.loss.series.at(step), case.loss.finite.between(0, step - 1).values
    return len(before) >= HISTORY and bool(outliers(np.append(before, here))[-1])


def _start(case: Case, seen: int, most: int) -> int:
    """Return the first of at most so many unread steps right before one whose loss jumped as well, else that step: rows
    that are far off often lie together, and fill more than one batch.
    """
    step = seen
    while step > max(0, seen - most) and not case.was_read(step - 1) and _jumped(case, step - 1):
        step -= 1
    return step


def judge(case: Case) -> Finding | None:
    """Weigh a single outlying target, else the most extreme batch and its effect on loss and gradients."""
    alone = _target(case)
    if alone is not None:
        return alone
    odd, change, lasting = find(case), case.change("inputs"), case.new_inputs
    if lasting is not None and lasting.spoilt and (odd is None or odd.step >= lasting.since):
        return None  # all batches since then: unnormalised_inputs, or input_ignored
    if odd is None:
        return _from_then_on(case, change) if change is not None else _other_units(case)
    weigh = Weighing()
    unread = "" if odd.seen == odd.step else f"; before it, from step {odd.step} on, batches were not read"
    weigh.speaks(
        f"the batch of step {odd.seen} has {_article(odd.stat)} {odd.stat} of {number(odd.value)}, usual is "
        f"{number(odd.usual)}{unread}",
        _surprise(odd.times), odd.value, odd.usual,
    )  # fmt: skip
    # Steps are read closely around a failure: the share of the batches read is not that of all.
    several = len(odd.steps) > 1
    if len(odd.steps) > 0.05 * odd.read:
        which = f"{len(odd.steps):,} of the {odd.read:,} batches read are" if several else f"1 of {odd.read} batches is"
        weigh.against(f"{which} like that, so it may be a property of the data", 2.0, len(odd.steps))
    # A batch that is bad shows in the loss and the gradient of its own step.
    _weigh_loss(case, odd, weigh)
    norm = case.scalar("grad_norm").finite()
    here = norm.at(odd.step)
    if len(norm) > HISTORY and here > 5 * float(np.median(norm.values)):
        weigh.speaks(
            f"the gradient norm of step {odd.step} is {number(here)}, usual is {number(float(np.median(norm.values)))}",
            1.0,
            here,
        )
    # An experiment may know the sample.
    samples = sorted(
        (one for one in experiments(case, OddSample) if one.step in odd.steps), key=lambda one: one.step or 0
    )
    sample = next((one for one in samples if one.sample is not None), None)
    which = ""
    if sample is not None:
        which = f" (sample {sample.sample})" if sample.step == odd.seen else ""
        weigh.speaks(f"sample {sample.sample} of step {sample.step} has a value of size {number(sample.value)}, the "
                     f"usual one of that batch {number(sample.usual)}", 0.5, sample.value)  # fmt: skip
    finding = weigh.conclude(
        f"{_called(odd)}: at step {odd.seen} {'the' if several else 'its'} {odd.stat} is {number(odd.value)} instead "
        f"of about {number(odd.usual)}{which}",
        _remedy(case, odd, sample),
        step=odd.step,
        failure=case.trouble.name or "loss spike",
    )
    return replace(finding, title=f"{_amount(odd).capitalize()} batches unlike the others") if several else finding


def _other_units(case: Case) -> Finding | None:
    """Weigh inputs that come in other units from a step on, at which the loss jumped, though it came down again."""
    change = input_shift(case)
    if change is None:
        return None
    before, after = change.since, min(change.until + NEAR, case.steps_taken)
    jumped = next((step for step in range(before + 1, after + 1) if _jumped(case, step)), None)
    if jumped is None:
        return None
    weigh, usual = Weighing(), float(np.median(case.loss.finite.between(0, jumped - 1).values))
    weigh.speaks(change.said, 3.0 + min(_orders(change), 1.0), change.after, change.before)
    weigh.speaks(f"the loss of step {jumped} is {number(case.loss.series.at(jumped))}, the median before it "
                 f"{number(usual)}", 2.5, case.loss.series.at(jumped), usual)  # fmt: skip
    weigh.against("the training gets over it", 1.0)
    return _unlike(case, weigh, change, jumped)


def _orders(change: ChangePoint) -> float:
    return abs(math.log10(change.after / change.before)) - 1 if change.after > 0 < change.before else 1.0


def _from_then_on(case: Case, change: ChangePoint) -> Finding:
    """Weigh inputs that are unlike those before from a step on, and no larger: zeros, another unit, a shift."""
    weigh = Weighing()
    weigh_change(case, weigh, change)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    return _unlike(case, weigh, change, began(case, change))


def _unlike(case: Case, weigh: Weighing, change: ChangePoint, step: int) -> Finding:
    finding = weigh.conclude(
        f"batches unlike those before: {change.said}",
        Remedy(
            "Look at the batches from that step on: another file or shard, another unit, a transform that returns "
            "nothing.",
            "print(x.mean(), x.std())  # before and after that step",
        ),
        step=step,
        since=change.since,
        failure=case.trouble.name or "loss spike",
    )
    return replace(finding, title="Many batches unlike the others")


def _remedy(case: Case, odd: Outlier, sample: OddSample | None) -> Remedy:
    """Return the remedy: to find the rows; clamping and clipping, at sizes from before the failure, come second."""
    limit = case.healthy_grad_norm
    clip = f"torch.nn.utils.clip_grad_norm_(model.parameters(), {literal(limit)})" if np.isfinite(limit) else ""
    bound = literal(3 * odd.reach)
    clamp = f"x = x.clamp(-{bound}, {bound})"
    look = f"print((x.abs() > {bound}).nonzero())  # the rows to repair or drop"
    shown = ", ".join(str(step) for step in odd.steps[:SHOWN])
    batches = f"the batches of steps {shown}" if len(odd.steps) > 1 else "that batch"
    more = f" and {len(odd.steps) - SHOWN} more" if len(odd.steps) > SHOWN else ""
    far, usual = _far_targets(case, odd.step)
    targets = ""
    if usual > 0:
        look += f"\nprint((target.abs() > {literal(3 * usual)}).nonzero())  # rows whose target is far off"
        targets = (
            f" Targets are far off, too ({number(far)}, usual are up to {number(usual)} in size): clamping the inputs "
            "leaves them, so drop those rows or leave them out of the loss."
        )
    named = f" (such as sample {sample.sample} of step {sample.step})" if sample is not None else ""
    return Remedy(
        f"Find the rows that are far off in {batches}{more}{named}, and repair or drop them. Clamping the values "
        "and clipping the gradient norm only keep them from ruining the weights: the rows stay wrong." + targets,
        f"{look}\n{clamp}\n{clip}".strip(),
        (before("forward", clamp), *([before("step", clip)] if clip else [])),
    )


def _far_targets(case: Case, step: int) -> tuple[float, float]:
    """Return the target of a regression that is farthest off from a step on, with its sign, and the usual size of
    targets: the largest before that step. NaN for both if no target is far off.
    """
    for slot in slots(case):
        far = max((slot.min or 0.0, slot.max or 0.0), key=abs)
        earlier = [one for at, one in case.run.versions(TargetsFact) if at < step and one.slot == slot.slot]
        usual = max(abs(earlier[-1].min or 0.0), abs(earlier[-1].max or 0.0)) if earlier else 0.0
        if not slot.classes and abs(far) > FAR * usual > 0:
            return far, usual
    return math.nan, math.nan


def _called(odd: Outlier) -> str:
    if len(odd.steps) == 1:
        return "one batch unlike all others"
    return f"{_amount(odd)} batches unlike the others, from step {odd.step} on"


def _amount(odd: Outlier) -> str:
    return "a few" if len(odd.steps) <= FEW else "many"


def _article(stat: str) -> str:
    return "an" if stat == "rms" else "a"


def _target(case: Case) -> Finding | None:
    """Weigh a single target that gives the whole loss of its batch: its square over the batch size, for a mean."""
    loss = case.loss.finite
    if len(loss) <= HISTORY:
        return None
    for slot in slots(case):
        far, rows = max(abs(slot.max or 0.0), abs(slot.min or 0.0)), _rows(case, slot)
        if slot.kind not in SQUARED or far < ALONE * (slot.std or math.inf) or rows is None:
            continue
        made = far**2 if slot.kind == "mse" else far
        for each in (made / rows, made):
            hit = (loss.values > 0.8 * each) & (loss.values < 1.25 * each)
            if not hit.any() or hit.mean() > RARE or each <= SPIKE * float(np.median(loss.values)):
                continue
            # So many targets of that size would give this standard deviation: each needs a loss of its own.
            if slot.samples * (slot.std / far) ** 2 > 2 * int(hit.sum()) + 2:
                continue
            index = int(np.argmax(hit))
            usual = _around(loss.values, hit, index)
            if each > SPIKE * usual:
                return _one_target(case, int(loss.steps[index]), float(loss.values[index]), usual, far, rows)
    return None


def _rows(case: Case, slot: TargetsFact) -> int | None:
    """Return the number of targets of one loss, None if it is not known. A step may have more samples than that."""
    term = term_of(case, slot)
    sizes = case.run.scalar("batch_size").finite().values
    if term is not None and term.target_shape:
        return max(1, math.prod(term.target_shape))
    return max(1, int(np.median(sizes))) if len(sizes) else None


def _around(values: npt.NDArray[np.float64], hit: npt.NDArray[np.bool_], index: int) -> float:
    """Return the median loss of the steps around one, without those that are as large for the same reason.

    A loss that falls from its first steps on is no spike, though it is far above the median of the run.
    """
    near = slice(max(0, index - 2 * HISTORY), index + 2 * HISTORY + 1)
    others = values[near][~hit[near]]
    return float(np.median(others)) if len(others) else math.inf


def _one_target(case: Case, step: int, value: float, usual: float, far: float, rows: int) -> Finding:
    weigh = Weighing()
    weigh.speaks(
        f"the loss of step {step} is {number(value)}, that of the steps around it {number(usual)}", 2.5, value, usual
    )
    weigh.speaks(f"one target of {number(far)} alone makes such a loss among {plural(rows, 'target')}", 3.0, far)
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


def _surprise(times: float) -> float:
    """Return the weight of an outlier, which grows with factors above 100, since measured data has a heavy tail."""
    return 2.5 + min(max(0.0, 1.2 * (math.log10(max(times, 1.0)) - 2)), 3.0)


def _weigh_loss(case: Case, odd: Outlier, weigh: Weighing) -> None:
    """Weigh the loss of the outlier's step and of the steps after it."""
    loss = case.loss.finite
    here, others = case.loss.series.at(odd.step), loss.values[loss.steps != odd.step]
    before = case.loss.finite.between(0, odd.step - 1).values
    if case.onset is not None and case.onset < odd.step and case.trouble.kind != "stuck":
        weigh.against(f"the trouble began before, at step {case.onset}", 4.0)
        return
    early = len(before) >= HISTORY
    beside = before if early else others
    usual = float(np.median(beside)) if len(others) else float("nan")
    limit = 2 * usual
    if usual <= 0:  # twice a negative level is below it; and a loss that falls below zero began above it
        near = before if early else loss.between(0, odd.step + 4 * HISTORY).values
        usual = float(np.median(near))
        limit = max(2 * usual, usual + FAR * float(np.median(np.abs(near - usual))))
    if not np.isfinite(here) or here > limit:
        of = "the median before it" if early else "the median of the other steps"
        weigh.speaks(f"the loss of step {odd.step} is {number(here)}, {of} {number(usual)}", 2.5, here, limit)
    else:
        # A batch norm hides such a batch from the loss, and keeps it in its running statistics.
        weigh.against("the loss of that step is like that of the others", 2.0 if case.has_norms else 3.5, here,
                      limit)  # fmt: skip
    if case.trouble.broke and case.onset is not None and odd.step <= case.onset <= odd.step + NEAR:
        weigh.speaks(
            f"the run broke within {plural(case.onset - odd.step + 1, 'step')} of it, at step {case.onset}", 1.5,
        )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="One batch unlike all others",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | UNITS,
    judge=judge,
    page=__doc__ or "",
)
