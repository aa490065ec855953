"""The learning rate does not follow the schedule that was meant: wrong unit, stepped too often, never, past its end.

What it is
    A scheduler changes the learning rate each time its ``step()`` is called. Its settings count those calls: epochs if
    it is stepped once an epoch, batches if it is stepped after each batch. Mixing them up makes a decay over thirty
    epochs happen in thirty batches, or a warm-up over a thousand batches last a thousand epochs. It may also be stepped
    twice, or never, or run past its end, where some schedules begin to rise again, become negative or raise an error. A
    scheduler that is made anew in each epoch begins anew each time.

Symptoms
    The loss falls and then freezes, since the learning rate is practically 0; or it hardly falls at all, since the
    warm-up never ends; or it goes up and down with a learning rate that does.

Evidence
    The learning rate of every step is known, and so are the scheduler's settings and how often it was stepped against
    its optimizer; with a DataLoader it is known how many steps an epoch has. A schedule that is begun in mid-run and
    climbs far beyond all that the rate was, until the training breaks, is one without an end. A warm-up from 0,
    restarts, a cycle, and a rate that reaches 0 with the last steps of a run are what schedules are for, and no fault.

What to do
    Step once in the unit of the settings: after each batch with settings in batches, after each epoch with settings in
    epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.change_points import SETTLED
from neuraldbg.explain.evidence.schedule_shapes import shape
from neuraldbg.explain.evidence.training_loop import DEAD, DEAD_SHARE, DEAD_STEPS, completed, dropped, raised, rates
from neuraldbg.explain.evidence.wording import number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.schedule import ScheduleFact

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

Facts: TypeAlias = tuple[ScheduleFact, ...]
STUCK_LOW = 0.05
"""Largest share of the intended learning rate that a warm-up reaches without having started."""
STEPS = 20
ENDS = frozenset({"T_0", "T_max", "milestones", "step_size_up", "total_iters", "total_steps"})
"""Settings of schedules that end, or come back."""
RISES, CLIMBED = 0.9, 10.0
"""Share of the steps in which a rate rises, and factor beyond all that it was, by which a schedule climbs without
end."""
RARELY = 5
"""Optimizer steps for one step of the scheduler, from which it is stepped once an epoch."""
SHORT_CYCLE = 100
"""Half period of a cosine in steps, below which it was not meant in batches."""
TOLD, FALLS = 6, 0.7
"""Least number of values that a scheduler got, and least share of them that fell."""
FACTOR, ALIKE = 0.02, 2.0
"""Largest factor of a whole run from which on it is none, and ratio up to which it is the learning rate itself."""
AGAIN, REACHED, EVEN = 3, 0.6, 0.1
"""Schedulers alike of one optimizer, the largest share of its way that any of them went, and the largest difference
between the steps from one to the next as a share of them, from which one was meant that is made anew each time."""
DECAYING = ("StepLR", "MultiStepLR", "ExponentialLR")
FAST = 0.02
"""Share of the learning rate left after the first of several epochs, below which the decay was too fast."""
PER_EPOCH = (
    "for epoch in range(epochs):\n    for x, y in loader:\n        ...\n        optimizer.step()\n    scheduler.step()"
)
PER_BATCH = "for x, y in loader:\n    ...\n    optimizer.step()\n    scheduler.step()"


def judge(case: Case) -> Finding | None:
    """Weigh each way in which a schedule can be wrong; return the clearest finding."""
    found = [ended for ended in (_past_its_end(case), *(_rate(case, stream) for stream in case.run.streams)) if ended]
    facts = case.run.known_each(ScheduleFact)
    ways: tuple[Callable[[Case, ScheduleFact, Facts], Finding | None], ...] = (
        _climbs, _cosine_turns, _decays_at_once, _factor_is_a_rate, _made_again, _never_gets_going, _never_stepped,
        _twice, _wrong_way,
    )  # fmt: skip
    found += [finding for fact in facts for way in ways if (finding := way(case, fact, facts)) is not None]
    return max(found, key=lambda finding: finding.log_odds, default=None)


def _conclude(case: Case, weigh: Weighing, sentence: str, remedy: Remedy, step: int | None) -> Finding:
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.7)
    return weigh.conclude(sentence, remedy, step=step, failure=case.trouble.name or "unintended learning rate")


def _past_its_end(case: Case) -> Finding | None:
    message = raised(case)
    if "Tried to step" not in message or "total" not in message:
        return None
    weigh = Weighing()
    weigh.speaks(f"the script ended with {message.splitlines()[-1].rstrip('.')}", 7.0)
    return _conclude(
        case, weigh, "schedule that is stepped more often than it was made for",
        Remedy(
            "Give the scheduler as many steps as it will be stepped.",
            "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr, total_steps=epochs * len(loader))",
        ),
        case.run.steps,
    )  # fmt: skip


def _rate(case: Case, stream: int) -> Finding | None:
    """Weigh a learning rate that is negative, or practically 0 for a large part of the run."""
    lr = rates(case, stream)
    if len(lr) < 2 * DEAD_STEPS:
        return None
    negative = np.flatnonzero(lr.values < 0)
    weigh = Weighing()
    if len(negative):
        first = int(lr.steps[negative[0]])
        weigh.speaks(f"the learning rate is negative from step {first} on", 6.5, float(lr.values.min()), 0.0)
        if negative[0] == 0:
            sentence = f"a learning rate that is negative from the start ({number(float(lr.values[0]))}): it climbs"
            return _conclude(case, weigh, sentence, Remedy("Give a learning rate above 0."), first)
        return _conclude(
            case, weigh, f"schedule that runs past its end: the learning rate is {number(float(lr.values.min()))}",
            Remedy("Keep the factor at 0 or above.", "factor = max(0.0, 1 - step / total_steps)"), first,
        )  # fmt: skip
    # A schedule may end near 0; only a long rest of the run at that level was not intended.
    peak = float(lr.values.max())
    alive = np.flatnonzero(lr.values > DEAD * peak)
    if not peak > 0 or not len(alive):
        return None
    dead = len(lr) - 1 - int(alive[-1])
    if dropped(case, stream) is not None:
        return None  # a rate that was set, and no schedule
    if dead < DEAD_STEPS or dead < DEAD_SHARE * len(lr) or (len(case.run.streams) > 1 and not case.trouble.any):
        return None
    first, zero = int(lr.steps[alive[-1] + 1]), not lr.values[-1] > 0
    weigh.speaks(
        f"the learning rate fell from {number(peak)} to {number(float(lr.values[-1]))}, and {percent(dead / len(lr))} "
        "of the steps were taken with less than a ten-thousandth of it",
        4.5 if zero else 3.7, dead / len(lr), DEAD_SHARE,
    )  # fmt: skip
    about = _of_stream(case, stream)
    if about is not None:
        _add_settings(weigh, about)
    return _conclude(
        case, weigh, f"learning rate that a schedule brought below a ten-thousandth of its peak by step {first} of "
        f"{case.run.steps}, and to {number(float(lr.values[-1]))} at the end",
        Remedy(
            "Let the schedule last as long as the training: count its settings in the unit in which it is stepped.",
            PER_EPOCH if about is None or about.type in DECAYING else "total_steps = epochs * len(loader)",
        ),
        first,
    )  # fmt: skip


def _climbs(case: Case, fact: ScheduleFact, _: Facts) -> Finding | None:
    """Weigh a schedule that was begun in mid-run and raises the learning rate until the training breaks."""
    lr, onset = rates(case, fact.stream), case.onset or 0
    if fact.stream is None or not fact.steps or ENDS & fact.params.keys() or not SETTLED < fact.made < onset:
        return None
    # A scheduler is known from the first step whose facts are read; the rate tells when it began to climb.
    flat = np.flatnonzero(np.diff(lr.between(0, fact.made).values) <= 0)
    begun = int(lr.steps[flat[-1] + 1]) + 1 if len(flat) else 0
    climb, before = lr.between(begun, onset), lr.between(0, begun - 1).values
    if begun <= SETTLED or len(climb) < STEPS or not len(before) or not before.max() > 0:
        return None
    rises = float((np.diff(climb.values) > 0).mean())
    first, last = float(climb.values[0]), float(climb.values[-1])
    if rises < RISES or last < CLIMBED * max(first, float(before.max())):
        return None
    weigh = Weighing()
    weigh.speaks(
        f"a scheduler raised the learning rate from {number(first)} at step {begun} to {number(last)} by step {onset}, "
        f"in {percent(rises)} of the steps; before, it was {number(float(before.max()))} at most",
        7.0, last / first, CLIMBED,
    )  # fmt: skip
    _add_settings(weigh, fact)
    return _conclude(
        case, weigh, f"schedule ({fact.type}) that raises the learning rate without end from step {begun} on",
        Remedy("Let it decay: a factor below 1, or a schedule with an end.",
               "scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.999)"),
        begun,
    )  # fmt: skip


def _wrong_way(case: Case, fact: ScheduleFact, _: Facts) -> Finding | None:
    """Weigh a ReduceLROnPlateau that expects a rising number, such as an accuracy, and gets a falling one, a loss."""
    waits = fact.waits
    if waits is None or waits.mode != "max" or not waits.cuts:
        return None
    first, last, told = waits.first, waits.last, waits.rises + waits.falls
    if told < TOLD or waits.falls < FALLS * told:
        return None
    if not last < first - 0.1 * abs(first) or not case.learned:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{fact.type} waits for its number to rise (mode='max'), and it fell from "
        f"{number(first)} to {number(last)}, in {waits.falls} of {told} times{case.counted}, as a loss does",
        4.5, waits.falls, FALLS * told,
    )  # fmt: skip
    weigh.speaks(f"it took that for no progress and cut the learning rate {plural(waits.cuts, 'time')}", 1.0,
                 waits.cuts)  # fmt: skip
    return _conclude(
        case, weigh, "schedule that waits for a loss to rise: it cuts the learning rate while the training gets better",
        Remedy("Wait for a loss to fall, or hand the scheduler an accuracy.",
               "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='min')"),
        waits.cut_at or 0,
    )  # fmt: skip


def _of_stream(case: Case, stream: int) -> ScheduleFact | None:
    return next((f for f in case.run.known_each(ScheduleFact) if f.stream == stream and f.steps), None)


def _setting(fact: ScheduleFact, *names: str) -> float:
    """Return the first of some settings that is a number and not 0; 0 if there is none."""
    values = (fact.params.get(name) for name in names)
    return next((float(value) for value in values if value and not isinstance(value, tuple)), 0.0)


def _add_settings(weigh: Weighing, fact: ScheduleFact) -> None:
    told = {k: list(v) if isinstance(v, tuple) else v for k, v in fact.params.items() if k != "eta_min"}
    params = ", ".join(f"{k}={v}" for k, v in told.items())
    steps, taken = fact.steps, fact.optimizer_steps
    said = f"{fact.type}({params}) was stepped {steps} times in {plural(taken, 'optimizer step')}"
    weigh.speaks(said, 0.8, steps)
    if fact.pass_steps:
        weigh.speaks(f"one pass over the data has {plural(fact.pass_steps, 'step')}", 0.2)


def _each_step(fact: ScheduleFact) -> bool:
    return fact.steps >= STEPS and 0.8 * fact.optimizer_steps <= fact.steps


def _cosine_turns(case: Case, fact: ScheduleFact, _: Facts) -> Finding | None:
    """Weigh a cosine that is stepped per batch with a half period in epochs: the learning rate swings up and down."""
    half, position, epoch = _setting(fact, "T_max"), fact.position or 0.0, fact.pass_steps
    if fact.type != "CosineAnnealingLR" or half <= 0 or position < 2 * half or not _each_step(fact):
        return None
    if epoch >= half > 0 and fact.passes < 2:
        return None  # all within one pass: there is no other unit
    if half >= (epoch or SHORT_CYCLE):
        return None
    # Without a known epoch only the short period is evidence: a few restarts may be intended.
    weigh, turns = Weighing(), int(position // (2 * half))
    weigh.speaks(
        f"the cosine has a half period of T_max={number(half)} and was stepped {fact.steps} times, once a batch, so "
        f"that the learning rate went down and up again {turns} times",
        4.0 if epoch else 3.0, position / half, 2.0,
    )  # fmt: skip
    if turns >= 3:
        weigh.speaks("that is more than a restart or two", 0.5, turns, 3)
    if epoch:
        weigh.speaks(f"one pass over the data has {plural(epoch, 'step')}, so T_max counts epochs", 0.8, epoch)
    return _conclude(
        case, weigh, f"cosine schedule of T_max={number(half)} epochs that is stepped at each batch: the learning rate "
        f"swings {turns} times",
        Remedy("Step it once an epoch, or count T_max in batches.", PER_EPOCH), int(half),
    )  # fmt: skip


def _decays_at_once(case: Case, fact: ScheduleFact, _: Facts) -> Finding | None:
    """Weigh a decay per epoch that is stepped per batch: nearly all of the learning rate is gone in the first epoch."""
    epoch = fact.pass_steps
    if fact.type not in DECAYING or not _each_step(fact) or fact.passes < 2 or fact.stream is None:
        return None
    lr = rates(case, fact.stream).between(fact.made, fact.made + epoch)
    if len(lr) < 5 or not lr.values[0] > 0 or lr.values[-1] > FAST * lr.values[0]:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"within the first pass over the data the learning rate fell from {number(float(lr.values[0]))} to "
        f"{number(float(lr.values[-1]))}",
        4.0, float(lr.values[-1] / lr.values[0]), FAST,
    )  # fmt: skip
    _add_settings(weigh, fact)
    # The fault shows where the learning rate is first lowered: until then it is that of a schedule stepped per epoch.
    lowered = int(lr.steps[np.flatnonzero(lr.values != lr.values[0])[0]])
    return _conclude(
        case, weigh, f"decay per epoch ({fact.type}) that is stepped at each batch: the learning rate is gone "
        "within the first epoch",
        Remedy("Step it once an epoch.", PER_EPOCH), lowered,
    )  # fmt: skip


def _factor_is_a_rate(case: Case, fact: ScheduleFact, _: Facts) -> Finding | None:
    """Weigh a factor that is a learning rate itself: the schedule multiplies the rate by it."""
    if (
        fact.type not in ("LambdaLR", "MultiplicativeLR")
        or fact.steps < STEPS
        or not fact.base_lr
        or not completed(case)
    ):
        return None
    share = _low(case, fact)
    if not 0 < share <= FACTOR:
        return None
    base, peak = fact.base_lr, share * fact.base_lr
    weigh = Weighing()
    weigh.speaks(
        f"{fact.type} multiplies the learning rate of {number(base)} by its factor, and the factor was never above "
        f"{number(share)}: the learning rate never rose above {number(peak)}",
        4.0, share, FACTOR,
    )  # fmt: skip
    if abs(np.log(share / base)) < np.log(ALIKE):
        weigh.speaks("the largest factor is about the learning rate itself", 1.0, share, base)
    return _conclude(
        case, weigh, f"schedule ({fact.type}) whose factor is at most {number(share)}, as a learning rate is: the rate "
        f"is at most {number(peak)} in place of {number(base)}",
        Remedy("Return a factor, 1 for the learning rate that the optimizer was made with; or make the optimizer with "
               "lr=1.0.", "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step) / lr)"),
        fact.made,
    )  # fmt: skip


def _alike(fact: ScheduleFact, facts: Facts) -> list[ScheduleFact]:
    """Return the schedulers of the same optimizer with the same class and settings, the first one first."""
    of = (fact.type, fact.stream, fact.optimizer, fact.params)
    alike = (f for f in facts if (f.type, f.stream, f.optimizer, f.params) == of)
    return sorted(alike, key=lambda f: f.made)


def _made_again(case: Case, fact: ScheduleFact, facts: Facts) -> Finding | None:
    """Weigh a scheduler that is made anew at even distances, in each epoch, and never gets far."""
    alike = _alike(fact, facts)
    milestones = fact.params.get("milestones")
    first = milestones[0] if isinstance(milestones, tuple) and milestones else None
    end = first or _setting(fact, "total_steps", "T_max", "step_size", "total_iters")
    if fact is not alike[0] or len(alike) < AGAIN or fact.stream is None or not end:
        return None
    apart = np.diff(np.unique([f.made for f in alike]))
    taken = max(max(f.steps, f.position or 0) for f in alike)
    if len(apart) + 1 < AGAIN or not fact.pass_steps or abs(float(np.median(apart)) - fact.pass_steps) > 1:
        return None  # not once a pass over the data: tasks, or stages
    if np.ptp(apart) > max(2, EVEN * apart.max()) or not 0 < taken <= REACHED * end:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{fact.type} was made at least {len(alike)} times with the same settings for the same optimizer, every "
        f"{plural(int(np.median(apart)), 'step')}, and each began anew: none went further than {number(taken)} of "
        f"the {number(end)} steps to its end",
        5.0, taken / end, REACHED,
    )  # fmt: skip
    weigh.speaks(f"so the learning rate {shape(rates(case, fact.stream))}", 0.8)
    return _conclude(
        case, weigh, f"schedule ({fact.type}) that is made anew every {plural(int(np.median(apart)), 'step')}, so that "
        "it never gets beyond its beginning",
        Remedy("Make the scheduler once, before the loop over epochs.",
               f"scheduler = torch.optim.lr_scheduler.{fact.type}(optimizer, ...)\n{PER_EPOCH}"),
        next(f.made for f in alike if f.made > alike[0].made),
    )  # fmt: skip


def _intended(fact: ScheduleFact) -> float:
    return _setting(fact, "max_lr") or fact.base_lr or 0.0


def _low(case: Case, fact: ScheduleFact) -> float:
    """Return the highest learning rate as a share of the intended one; NaN if unknown."""
    lr, meant = rates(case, fact.stream).values, _intended(fact)
    return float(lr.max() / meant) if len(lr) and meant > 0 else float("nan")


def _never_gets_going(case: Case, fact: ScheduleFact, facts: Facts) -> Finding | None:
    """Weigh a schedule with settings in batches that is stepped once an epoch."""
    steps, taken = fact.steps, fact.optimizer_steps
    one_of_many = len(_alike(fact, facts)) >= AGAIN
    if not steps or taken < STEPS or steps * RARELY > taken or one_of_many or not completed(case):
        return None
    total, share = _setting(fact, "total_steps", "T_max"), _low(case, fact)
    weigh = Weighing()
    if share <= STUCK_LOW:
        weigh.speaks(
            f"the learning rate never rose above {percent(share)} of the {number(_intended(fact))} that was meant",
            4.5, share, STUCK_LOW,
        )  # fmt: skip
    if total and 0.8 * taken <= total <= 1.25 * taken and fact.type in ("OneCycleLR", "CosineAnnealingLR"):
        weigh.speaks(f"it was made for {number(total)} steps, as many as there were batches", 3.5, total, taken)
    if not weigh.items:
        return None
    _add_settings(weigh, fact)
    return _conclude(
        case, weigh, f"schedule in batches ({fact.type}) that is stepped only {plural(steps, 'time')}, once an "
        "epoch",
        Remedy("Step it after each batch.", PER_BATCH), fact.made,
    )  # fmt: skip


def _never_stepped(case: Case, fact: ScheduleFact, facts: Facts) -> Finding | None:
    taken = fact.optimizer_steps
    others = any(f.steps for f in facts if f.stream == fact.stream)
    if fact.steps or others or taken < STEPS or not completed(case) or fact.type == "ReduceLROnPlateau":
        return None
    share, passes = _low(case, fact), fact.passes
    weigh = Weighing()
    weigh.speaks(f"{fact.type} was made and never stepped, in {plural(taken, 'optimizer step')}", 1.5, 0, 1)
    if share <= STUCK_LOW:
        weigh.speaks(
            f"the learning rate stayed at {percent(share)} of the {number(_intended(fact))} that was meant",
            5.0, share, STUCK_LOW,
        )  # fmt: skip
    if passes >= 3:
        weigh.speaks(f"there were at least {passes} passes over the data in which to step it", 2.0, passes, 3)
    return _conclude(
        case, weigh, f"schedule ({fact.type}) that is never stepped: the learning rate stays where it began",
        Remedy("Call scheduler.step() after optimizer.step(), in the unit of its settings.", PER_EPOCH),
        fact.made,
    )  # fmt: skip


def _twice(case: Case, fact: ScheduleFact, _: Facts) -> Finding | None:
    double, steps = fact.double, fact.steps
    if double < 3 or double < 0.4 * steps or fact.type == "ReduceLROnPlateau" or fact.early > 2:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{double} of {steps} calls of its step(){case.counted} came right after another, with no training between",
        4.0,
        double,
    )
    _add_settings(weigh, fact)
    return _conclude(
        case, weigh, f"schedule ({fact.type}) that is stepped twice each time: it is over in half the time",
        Remedy("Call scheduler.step() once for each epoch or batch.", PER_BATCH), fact.made,
    )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="Learning rate schedule set up wrongly",
    tier=Tier.CERTAIN,
    explains=STALL | BLOW_UP,
    judge=judge,
    place="scheduler",
    page=__doc__ or "",
)
