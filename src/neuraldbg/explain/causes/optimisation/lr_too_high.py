"""The learning rate is too high: steps overshoot.

What it is
    Each update is so large that it jumps over the minimum it aims for, and the next gradient is larger still. A
    healthy update is about a thousandth of the weights' own size; near a tenth and above, training is a random walk
    or an explosion.

Symptoms
    The loss rises right after the first steps, swings wildly, or becomes NaN; ReLU units die in masses after a
    jump; classifiers settle on a constant guess.

Evidence
    The ratio norm(update) / norm(weight) is measured at each step, and the loss after the first updates is compared
    with the one before them. "Lower the learning rate" softens nearly every failure, so this cause is only named
    when no more specific one (gradients never cleared, a summed loss, inputs or targets of wrong scale, a bad
    batch, an unstable operation) explains the run. A network can also lose all it had learnt in a few steps and stay
    at the level of guessing: then the largest updates of the run stand at that place. Where the rate itself rose
    shortly before, by hand or by a schedule, that step is named, and the rate in force there is judged.

What to do
    Divide the learning rate by ten, or so that the update ratio is about 1e-3; warm up; clip the gradient
    norm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import arguments
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.late_changes import LATE, began, raised, weigh_change
from neuraldbg.explain.evidence.optimizer_steps import climbs, weigh_blind
from neuraldbg.explain.evidence.record_readings import LR_MAX, LR_USUAL
from neuraldbg.explain.evidence.simpler_causes import simpler_reasons
from neuraldbg.explain.evidence.symptom import relapse
from neuraldbg.explain.evidence.wording import literal, moved, number, plural, rounded
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.loss_branches import LossBranchesFact
from neuraldbg.nouns.facts.schedule import ScheduleFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.change_points import ChangePoint
    from neuraldbg.explain.evidence.symptom import Relapse
    from neuraldbg.explain.finding import Finding

HIGH = 0.1
"""Update ratio above which steps overshoot; 1e-3 is healthy (Karpathy, CS231n notes)."""
LARGE = 0.03
"""Median update ratio, thirty times a healthy one, with which a run breaks by itself."""
USUAL = 0.01
"""Largest usual update ratio."""
SCATTER = 3.0
"""Standard deviations of one step's loss that an early rise must exceed where the run did not break."""
DEAD = 1e-6
"""Update ratio below which a network does not move; 1e-3 is healthy."""
FEW = 10
NEW, FAR_UP = 1.2, 3.0
"""Ratio to the largest learning rate before from which one is new to the training, and to the one just before from
which it is far higher."""
AFTER = 50
"""Steps after the onset within which the updates at a raised learning rate are read."""
BEFORE, LARGER = 30, 3.0
"""Steps before a relapse in which its cause, a large update, must lie, and the size of that in median updates."""
WELL, NEAR = 0.2, 1.8
"""Share of its first value to which a loss has fallen that was learnt well, and factor above its lowest level up to
which it ends there."""
RISE = 1.5
"""Ratio of the loss within ten steps to the first one, above which the first updates did harm."""


def judge(case: Case) -> Finding | None:
    """Weigh the size of the updates and their effect on the loss."""
    change, lr = _raised(case), case.rate
    ratio = _ratio(case, change)
    largest, usual = LR_MAX[case.lr_class], LR_USUAL[case.lr_class]
    # Updates along the gradient are another fault, whatever their size.
    back = _destroyed(case)
    if (not ratio > USUAL and not lr > largest and back is None and change is None) or climbs(case):
        return None
    weigh = Weighing()
    if change is not None:
        weigh_change(case, weigh, change, LATE if change.after >= FAR_UP * change.before else LATE / 2)
    if back is not None:
        weigh.speaks(
            f"the loss had come down to {number(back.low)}, went back to that of guessing at step {back.step}, with "
            f"the largest updates of the run, and stayed there for {plural(back.steps, 'step')}", 5.5, back.low,
        )  # fmt: skip
    else:
        _weigh_updates(weigh, ratio)
    if lr > largest:
        weigh.speaks(
            f"a learning rate of {number(lr)} is beyond what is in common use with {case.optimizer_name} "
            f"(at most {number(largest)})", min(1.0 + math.log10(lr / largest), 2.0), lr, largest,
        )  # fmt: skip
    elif 0 < lr <= usual and change is None:
        weigh.against(f"a learning rate of {number(lr)} is usual with {case.optimizer_name}", 1.5, lr, usual)
    _weigh_course(case, weigh, calm=back is None, same=change is None)
    # A rate beyond common use needs no other reason.
    if lr <= largest:
        for statement, value in simpler_reasons(case)[:2]:
            weigh.against(f"{statement}, which does this at any learning rate", 1.5, value)
    updates = case.scalar("update_ratio").finite()
    over = updates.steps[updates.values > HIGH]
    size = f"updates as large as {moved(ratio)}" if ratio > USUAL else ""
    rate = f"a learning rate of {number(lr)} with {case.optimizer_name}"
    if change is not None:
        rate += f", which {change.words.removeprefix('the learning rate ')} {change.when}"
    if not lr > 0:  # an update that the program writes itself
        rate = "a learning rate that is too high"
    return weigh.conclude(
        f"{rate}{',' if change is None else ' and'} {'which ' * (change is None)}makes {size}" if size else rate,
        _remedy(case, case.first_update_ratio if case.first_update_ratio > USUAL else ratio)
        if change is None
        else _undo(case, change),
        step=began(case, change) if change is not None else int(over[0]) if len(over) else 0,
        since=change.since if change is not None else None,
        failure=case.trouble.name or "unstable training",
        tier=Tier.CERTAIN if change is not None else Tier.SPECIFIC if lr > 10 * largest else None,
    )


def _raised(case: Case) -> ChangePoint | None:
    """Return the rise of the learning rate before the onset; None if it rose to what had been well before, as at a warm
    restart.
    """
    change = raised(case, "lr")
    if change is None:
        return None
    before = case.scalar("lr").finite().between(0, change.since).values
    return change if change.after > NEW * float(before.max()) else None


def _ratio(case: Case, change: ChangePoint | None) -> float:
    """Return the largest update of the first steps or, if it is far too large, of all; after a change that of the steps
    behind it, NaN if none was read.
    """
    updates = case.scalar("update_ratio").finite()
    if change is not None:
        values = updates.between(change.until, max(case.onset or 0, change.until) + AFTER).values
        return float(values.max()) if len(values) else float("nan")
    late = updates.values
    ratio = case.early_update_ratio
    return max(ratio, float(late.max())) if len(late) and late.max() > 10 * HIGH else ratio


def _undo(case: Case, change: ChangePoint) -> Remedy:
    """Return the remedy for a rate that was raised during the training: the one with which the loss fell."""
    schedule = next((one.type for one in case.run.known_each(ScheduleFact) if one.steps), "")
    who = f"Let {schedule} stay at" if schedule else "Leave the learning rate at"
    return Remedy(
        f"{who} {number(change.before)} or below, with which the loss fell; a higher one needs a slow rise.",
        f"for group in optimizer.param_groups:\n    group['lr'] = {literal(change.before)}",
    )


def _weigh_updates(weigh: Weighing, ratio: float) -> None:
    if ratio > HIGH:
        weigh.speaks(
            f"updates are as large as {moved(ratio)}",
            min(2.0 + math.log10(ratio / HIGH), 3.5),
            ratio,
            HIGH,
        )
    elif ratio > USUAL:
        weigh.speaks(f"updates are {moved(ratio)}, more than usual", 0.4, ratio, USUAL)
    elif math.isfinite(ratio):
        weigh.against(f"updates are {moved(ratio)}, which is usual", 2.0, ratio, USUAL)


def _destroyed(case: Case) -> Relapse | None:
    """Return a relapse of the loss with far larger updates than before; None if there is none."""
    back, updates = relapse(case), case.scalar("update_ratio").finite()
    if back is None or any(targets.one_class(slot) for slot in targets.slots(case)):  # each class unlearns the last
        return None
    near = updates.between(max(0, back.step - BEFORE), back.step + FEW).values
    earlier = updates.between(0, max(0, back.step - BEFORE)).values
    return back if len(near) and len(earlier) and near.max() > LARGER * float(np.median(earlier)) else None


def _weigh_course(case: Case, weigh: Weighing, *, calm: bool, same: bool) -> None:
    loss, trouble = case.loss, case.trouble
    if not trouble.any and calm:
        weigh.against("the training is not in trouble", 4.5 if _well(case) else 3.0 if case.learned else 2.0)
    elif trouble.any:
        weigh.speaks(trouble.phrase, 1.0)
        if not trouble.broke and not loss.rose and same:
            weigh.against("the loss never rose above its first value, as it does when steps overshoot", 3.0,
                          loss.peak, loss.initial)  # fmt: skip
            if trouble.kind == "slow":
                weigh.against("it falls all the way, slowly", 2.0)
    if trouble.kind == "stuck":
        _weigh_death(case, weigh)
    # Losses of rewards, whose level means little, and of single samples jump as much at any time.
    above = (loss.early_rise - 1) * loss.initial > SCATTER * loss.noise
    if loss.early_rise > RISE and (trouble.broke or (above and _compares(case)) or case.early_update_ratio > HIGH):
        weigh.speaks(
            f"within ten steps the loss rose to {number(loss.early_rise)} times its first value",
            1.5,
            loss.early_rise,
            RISE,
        )
    elif trouble.broke and case.onset is not None and case.onset > 20 and loss.gain > 0.05 and same:
        long = min(1.0 + 2 * math.log10(case.onset / 20), 3.0)
        weigh.against(f"the loss fell until step {case.onset} with the same learning rate", long, case.onset)
    if trouble.broke and case.onset is not None:
        _weigh_before(case, weigh, case.onset)
        if same and not loss.early_rise > RISE and case.onset > 0:
            weigh_blind(case, weigh)
    origin = case.origin
    if origin is not None and same and not loss.early_rise > RISE and origin.step > 0:
        before = case.scalar("update_ratio").finite().between(0, origin.step - 1).values
        if len(before) and before.max() < HIGH:
            weigh.against("the first NaN came without large updates before it", 2.5, float(before.max()), HIGH)
    if (
        trouble.any
        and all(abs(s.mean) < 10 and 0.05 < s.rms < 10 for s in case.inputs if not s.integer)
        and case.inputs
    ):
        weigh.speaks("inputs are of usual scale and finite", 0.4)


def _well(case: Case) -> bool:
    """Return True if the loss fell to a small part of its first value, and ends at its best."""
    loss = case.loss
    return case.learned and 0 < loss.last < min(WELL * loss.initial, NEAR * loss.best)


def _weigh_before(case: Case, weigh: Weighing, onset: int) -> None:
    """Weigh the size of the updates long before the run broke: before a bad batch they are usual."""
    before = case.held(case.scalar("update_ratio").finite().between(0, onset - 4)).values
    if len(before) >= FEW and float(np.median(before)) > LARGE:
        weigh.speaks(
            f"long before, in half of the steps, updates were at least {moved(float(np.median(before)))}", 1.5,
            float(np.median(before)), LARGE,
        )  # fmt: skip


def _compares(case: Case) -> bool:
    """Return True if every part of the loss compares outputs with targets; else its level may mean little."""
    parts = [name for _, fact in case.run.versions(LossBranchesFact) for name in fact.names if fact.kind == "terms"]
    named = all("loss" in part.split(" of ")[0] or "crossentropy" in part for part in parts)
    return named and all(term.kind != "unknown" for term in case.terms)


def _weigh_death(case: Case, weigh: Weighing) -> None:
    """Weigh a large update after which weights hardly move: every unit is saturated or dead."""
    updates = case.held(case.scalar("update_ratio").finite())
    quarter = len(updates) // 4
    if quarter < FEW or not float(np.median(updates.values[-quarter:])) < DEAD:
        return
    largest = int(np.argmax(updates.values[:quarter]))
    if updates.values[largest] > HIGH:
        weigh.speaks(
            f"after step {int(updates.steps[largest])}, whose updates were {moved(float(updates.values[largest]))}, "
            "they hardly move any more: units have died", 1.5,
            float(updates.values[largest]), HIGH,
        )  # fmt: skip


def _remedy(case: Case, ratio: float) -> Remedy:
    lr = case.lr
    if not lr > 0:
        return Remedy("Divide the learning rate by ten and watch the update ratio: about 1e-3 is healthy.")
    # The ratio is proportional to the learning rate for SGD: aim a decade below HIGH, and at least a decade lower.
    scaled = lr * min(0.1, USUAL / ratio) if ratio > 0 else lr / 10
    # Common practice bounds the proposal: damaged weights and unusual first steps give extreme ratios.
    lowest = min(LR_USUAL[case.lr_class] / 100, lr / 10)
    suggested = rounded(max(lowest, min(scaled, LR_MAX[case.lr_class] / 10)))
    norm = case.healthy_grad_norm
    clip = (
        f"\n# and, against single large steps, before optimizer.step():\n"
        f"torch.nn.utils.clip_grad_norm_(model.parameters(), {literal(norm)})"
        if norm > 0 and not case.loss.early_rise > RISE
        else ""
    )
    return Remedy(
        f"Lower the learning rate from {number(lr)} to about {suggested}.",
        f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(), lr={suggested}){clip}",
        (arguments(f"lr={suggested}"),),
    )


CAUSE = Cause(
    module=__name__,
    title="Learning rate too high",
    tier=Tier.PALLIATIVE,
    entails=frozenset({"logit_drift"}),
    explains=BLOW_UP | UNITS | (STALL - {"update_ratio_low"}),
    judge=judge,
    page=__doc__ or "",
)
