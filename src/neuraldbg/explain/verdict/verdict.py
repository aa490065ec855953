"""The verdict of a run: failing, suspect, healthy or inconclusive, with a summary that a stranger understands.

- ``failing``: the training broke (NaN, divergence), an exception ended the script, or the model learns nothing and a
  credible cause explains that.
- ``suspect``: the training runs, but a credible cause is likely to hurt the result; or it learns nothing and no cause
  was found.
- ``healthy``: the training runs and no credible cause was found. Events alone never make a run suspect.
- ``inconclusive``: too little was read, or no cause was found but something that may hold a fault could not be read
  (``gaps``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.loss_curve import FEW, WORTH
from neuraldbg.explain.evidence.metric_trends import trend_words
from neuraldbg.explain.evidence.one_batch import one_batch_words
from neuraldbg.explain.evidence.symptom import rest_of
from neuraldbg.explain.evidence.training_loop import brief, crashed, raised
from neuraldbg.explain.evidence.unfed_layers import unfed_words
from neuraldbg.explain.evidence.wording import listing, number, percent, plural
from neuraldbg.explain.finding import Tier
from neuraldbg.explain.verdict.ranking import CREDIBLE, ends_so
from neuraldbg.nouns import Unjudged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.loss_curve import LossSummary
    from neuraldbg.nouns import Hypothesis

PASSES = 10
"""Backward passes without an optimizer step after which the summary explains why steps may not be seen."""
MANY = 2000
"""Steps after which a loss that has hardly fallen is no longer just slow to start."""
LOW = 3.0
"""Ratio of the level of a loss at its end to its lowest one from which the lowest one is told, too."""
CHANGES = 3
"""Changes of the program before a failure that are told beside it where no cause is credible."""
UNTOLD = ("label_noise", "target_misaligned")
"""Causes that look like a task whose inputs hardly predict the targets."""
LITTLE = 0.06
"""Leave-one-out R^2 of targets from inputs below which a loss that hardly falls may be the best there is."""
SURE = 0.9
"""Confidence from which the summary leaves out "most likely"."""


def credible(case: Case, hypotheses: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
    """Return the hypotheses to show: all for a run with a symptom or a halt, else only the credible ones. Those that an
    error of the script shows come first.
    """
    if case.trouble.any or _halted(case):
        return hypotheses
    shown = sorted(hypotheses, key=lambda h: not of_crash(case, h)) if crashed(case) else hypotheses
    named = (h for h in shown if h.confidence >= CREDIBLE)
    return tuple(replace(h, rank=rank) for rank, h in enumerate(named, start=1))


def of_crash(case: Case, hypothesis: Hypothesis) -> bool:
    """Return True if the evidence for a hypothesis is the error that ended the script."""
    message = raised(case)
    said = brief(message).partition(": ")[2] or message
    told = [(one.statement, one.value) for one in hypothesis.evidence if one.supports]
    return any(said in words or (isinstance(value, str) and value in message) for words, value in told if message)


@dataclass(frozen=True)
class Judged:
    """The verdict of a run, with its summary in one sentence or two."""

    verdict: str
    summary: str
    """The symptom and its cause."""
    headline: str = ""
    """The symptom alone, for a screen that shows the cause below it; "" if no cause is named."""


def judge(
    case: Case, hypotheses: tuple[Hypothesis, ...], certain: frozenset[str], apart: frozenset[str] = frozenset()
) -> Judged:
    """Judge the run. ``certain`` has the ids of the causes that are read from the program itself, ``apart`` those of
    faults that do no harm to what the model learns.
    """
    aside = [h for h in hypotheses if h.confidence >= CREDIBLE and h.cause in apart]
    judged = _judge(case, tuple(h for h in hypotheses if h.cause not in apart), certain)
    if not aside:
        return judged
    said = f"Beside that, {aside[0].failure}: {aside[0].sentence}."
    if judged.verdict == "healthy" or (judged.verdict == "inconclusive" and case.run.steps >= FEW):
        trains = f"The model trains, but with {aside[0].failure}"
        ending = _ending(case)
        return Judged("suspect", f"{trains}: {aside[0].sentence}.{ending}", f"{trains}.{ending}")
    return replace(judged, summary=f"{judged.summary} {said}")


def _judge(case: Case, hypotheses: tuple[Hypothesis, ...], certain: frozenset[str]) -> Judged:
    """Judge the run by the faults that harm what the model learns."""
    named = [h for h in hypotheses if h.confidence >= CREDIBLE]
    top = named[0] if named else None
    steps = case.run.steps or len(case.history)
    # Without a step there is no training to judge; only a cause of the script's own error can be named.
    if crashed(case) and not case.trouble.broke:
        return _crash(case, named, steps)
    if steps == 0:
        return Judged("inconclusive", _nothing_seen(case))
    # The run failed: a credible cause is named as the reason only if such an end can come from it.
    ending = _ending(case)
    trouble = case.trouble
    if trouble.broke or (trouble.any and top is not None) or (_halted(case) and top is not None):
        what = trouble.phrase or f"training was halted ({case.run.info.outcome.message})"
        if top is not None and not ends_so(case, top.explains):
            said = _sentence(what, None, ())
            summary = f"{said} Another fault was found: {top.sentence}{_place(top)}.{ending}"
            return Judged("failing", summary, f"{said} Another fault was found.{ending}")
        headline = f"{_capital(what)}.{ending}" if top is not None else ""
        return Judged("failing", _sentence(what, top, hypotheses, _beside(case)) + ending, headline)
    # A short run shows no trend, so only a cause that is read from the program itself counts there.
    sure = [h for h in named if h.cause in certain]
    if steps < FEW and not sure:
        if _halted(case):
            return Judged(
                "suspect", _sentence(f"training was halted ({case.run.info.outcome.message})", top, hypotheses)
            )
        said = f"Only {plural(steps, 'step')} of training: too few to judge, and nothing is plainly wrong.{ending}"
        return Judged("inconclusive", said)
    if top is not None:
        others = f" ({len(named) - 1} more below)" if len(named) > 1 else ""
        rises = _rises(case)
        said = f"{_capital(rises)}; a fault" if rises else "The model trains, but a fault"
        said += " is likely to hurt the result"
        return Judged("suspect", f"{said}: {top.sentence}{_place(top)}{others}.{ending}", f"{said}.{ending}")
    return _without_a_cause(case, hypotheses, ending)


def _crash(case: Case, named: list[Hypothesis], steps: int) -> Judged:
    """Judge a run that an exception ended: it fails, and what it did before is told beside."""
    outcome = case.run.info.outcome
    when = f"after {plural(steps, 'step')}" if steps else "before its first step"
    where = f", at {outcome.where}," if outcome.where else ""
    what = f"The script crashed {when}{where} with {brief(raised(case))}"
    reason = next((h for h in named if of_crash(case, h)), None)
    if reason is not None:
        return Judged(
            "failing", f"{what}, because of {reason.sentence}{_place(replace(reason, step=None))}.", f"{what}."
        )
    before = case.trouble.phrase or _moved(case)
    said = f"{what}." + (f" Until then {before}." if steps else "")
    if named:
        return Judged("failing", f"{said} Another fault was found: {named[0].sentence}{_place(named[0])}.",
                      f"{said} Another fault was found.")  # fmt: skip
    return Judged("failing", said)


def _without_a_cause(case: Case, hypotheses: tuple[Hypothesis, ...], ending: str) -> Judged:
    """Judge a run that did not break, has no credible cause and was long enough to judge."""
    trouble, steps = case.trouble, case.run.steps or len(case.history)
    if trouble.kind == "slow" and case.loss.still_falling and len(case.loss) < MANY:
        return Judged("inconclusive", f"{_capital(trouble.phrase)}, and still falls: too few steps to judge.{ending}")
    nothing_else = not hypotheses or hypotheses[0].cause in UNTOLD
    if trouble.guess or (trouble.kind in ("slow", "stuck") and nothing_else and _little_told(case)):
        hint = "Either the inputs do not predict the targets, or the fault is none of the known causes"
        tried = f". {_capital(one_batch_words(case))}" if one_batch_words(case) else ""
        return Judged("inconclusive", f"{_capital(trouble.phrase)}. {hint}{tried}.{ending}")
    if trouble.any or _halted(case):
        what = trouble.phrase or f"training was halted ({case.run.info.outcome.message})"
        return Judged("suspect", _sentence(what, None, hypotheses, _beside(case)) + ending)
    if trouble.kind == "unclear" and len(case.loss) < 100:
        said = f"{_capital(_moved(case))} over {plural(steps, 'step')}: too few to judge.{ending}"
        return Judged("inconclusive", said)
    told = f"No known problem found in {_counted(case, steps)}: {_moved(case)}"
    if aside := trend_words(case.metric_trends):
        told += f", {aside}"
    if (rest := rest_of(case)) is not None:
        told += f", and no gradient has reached the weights {rest.since}"
    if unseen := gaps(case):
        more = f" ({len(unseen) - 1} more below)" if len(unseen) > 1 else ""
        hides = f"A fault may hide in what was not read: {unseen[0].what} {unseen[0].reason}{more}"
        return Judged("inconclusive", f"{told}. {hides}.{ending}")
    return Judged("healthy", f"{told}.{ending}")


def _counted(case: Case, steps: int) -> str:
    """Write a number of steps: of trainings one after another, or of optimizers by turns, which are not iterations."""
    if case.trainings:
        return f"{plural(steps, 'step')} of {len(case.trainings)} trainings, one after another"
    optimizers = len(case.run.streams)
    return f"{steps:,} optimizer steps of {optimizers} optimizers" if optimizers > 1 else plural(steps, "step")


def gaps(case: Case) -> list[Unjudged]:
    """Return everything that could not be read and may hold a fault: a run with any is never called healthy. Each
    reason is the rest of a sentence that begins with ``what``.
    """
    seen = case.run.info.coverage
    failed: Mapping[str, int] = seen.get("failed") or {}
    unread: Mapping[str, str] = seen.get("unread") or {}
    return [
        *(Unjudged(what, f"failed {plural(times, 'time')}") for what, times in failed.items() if times),
        *(Unjudged(what, reason) for what, reason in unread.items()),
    ]


def _little_told(case: Case) -> bool:
    """Return True if a kernel regression on a few hundred samples hardly predicts the targets from the inputs."""
    return any(slot.fit is not None and slot.fit.score < LITTLE for slot in targets.slots(case))


def certain_ids(tiers: dict[str, Tier]) -> frozenset[str]:
    """Return the ids of the causes that are read from the program itself."""
    return frozenset(id_ for id_, tier in tiers.items() if tier is Tier.CERTAIN)


def _sentence(what: str, top: Hypothesis | None, hypotheses: tuple[Hypothesis, ...], beside: str = "") -> str:
    if top is not None:
        sure = "because of" if top.confidence >= SURE else "most likely because of"
        return f"{_capital(what)} {sure} {top.sentence}{_place(top)}."
    if hypotheses:
        first = hypotheses[0]
        likely = f"No cause is certain; the most likely is {first.cause} ({percent(first.confidence)})"
        return f"{_capital(what)}. {likely}{f'; {beside}' if beside else ''}."
    return f"{_capital(what)}. None of the known causes explains it{f'; {beside}' if beside else ''}."


def _beside(case: Case) -> str:
    """Write the observations that stand out in a run without a credible cause; "" if there are none."""
    changes = (change.said for change in case.changes[:CHANGES])
    return "; ".join(filter(None, [unfed_words(case), *changes, one_batch_words(case)]))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _place(hypothesis: Hypothesis) -> str:
    """Write layer and step, unless the hypothesis's sentence has them already."""
    where = "seen at" if hypothesis.category == "data" else "in"
    told = not hypothesis.layer or re.search(rf"(?<![\w.]){re.escape(hypothesis.layer)}(?![\w.])", hypothesis.sentence)
    layer = "" if told else f", {where} layer {hypothesis.layer!r}"
    step = hypothesis.step
    said = re.search(rf"\bstep {step}\b|between (steps )?\d", hypothesis.sentence)
    when = "" if not step or said else f", since step {step}"
    if when and hypothesis.since is not None:
        when = f", since a step between {hypothesis.since} and {step}"
    return layer + when


def _moved(case: Case) -> str:
    """Write the change of each loss over the run."""
    streams = [one for one in case.loss_names if not case.trainings or one == case.stream]
    said = [_moved_one(case.loss_of(one), case.loss_words(one)) + _during(case, one) for one in streams]
    return listing(said) if said else "no loss was recorded"


def _rises(case: Case) -> str:
    """Write the losses that rose in a run of which none fell; "" if none rose, or one fell: then the model trains."""
    streams = [one for one in case.loss_names if not case.trainings or one == case.stream]
    losses = {one: case.loss_of(one) for one in streams}
    if any(loss.learned for loss in losses.values()):
        return ""
    return listing([_moved_one(loss, case.loss_words(one)) for one, loss in losses.items() if _rose(loss)])


def _rose(loss: LossSummary) -> bool:
    """Return True if a loss of one sign ended above its first value by more than noise."""
    return not _signed(loss) and loss.relative < -WORTH and loss.last - loss.initial > 4 * loss.noise


def _signed(loss: LossSummary) -> bool:
    return bool(len(loss.finite)) and bool(loss.finite.values.min() < 0 < loss.finite.values.max())


def _during(case: Case, stream: int) -> str:
    """Write in which of several trainings the loss of an optimizer was, with a space before; "" if there is one."""
    mine = next((training for training in case.trainings if training.stream == stream), None)
    return f" in {mine}" if mine is not None else ""


def _moved_one(loss: LossSummary, words: str) -> str:
    verb = "went" if _signed(loss) else "fell" if loss.learned else "rose" if _rose(loss) else "went"
    low = ""
    if loss.left_best and loss.last > LOW * loss.best > 0:  # it came back only in part
        low = f", after a low of {number(loss.best)} by step {loss.best_step}"
        if loss.jumped and loss.stays:
            low += f" and a jump at step {loss.risen_from}"
    return f"{words} {verb} from {number(loss.initial)} to {loss.ending}{low}"


def _halted(case: Case) -> bool:
    return case.run.info.outcome.kind == "halted"


def _ending(case: Case) -> str:
    """Write how the script ended, empty for the usual end."""
    outcome = case.run.info.outcome
    if outcome.kind == "raised":
        where = f" at {outcome.where}" if outcome.where else ""
        return f" The script ended with {brief(outcome.message)}{where}."
    return " The run was interrupted." if outcome.kind == "interrupted" else ""


def _nothing_seen(case: Case) -> str:
    """Write what was searched for and what was found, for a run without a step."""
    if case.by_hand:
        return f"No step was recorded: record_step, or a loss or gradient of a part, begins one.{_ending(case)}"
    # The counts of each thing a training needs show which one is missing.
    info, seen = case.run.info, case.run.info.coverage
    backwards = int(seen.get("backwards", 0))
    made, passes = int(seen.get("optimizers", 0)), int(seen.get("passes", 0))
    models = f"{plural(len(info.models), 'model')} ({', '.join(info.models[:3])})" if info.models else "no model"
    if info.models or passes:
        models += f", called {plural(passes, 'time')}, {plural(int(seen.get('seen', 0)), 'layer')} reached"
    found = [
        "0 optimizer steps",
        f"{plural(made, 'optimizer')} made" if made else "no optimizer",
        f"{backwards or 'no'} backward pass{'es' if backwards > 1 else ''}",
        models,
    ]
    # Backward passes or function transforms without an optimizer: the likely reason that no step was seen.
    by_hand = ""
    if backwards >= PASSES and not made:
        by_hand = (
            " No parameter of a module that is called was changed. Either nothing updates the weights, or the program "
            "does it by hand, on tensors that no module holds: call capture_step() after each step to record those."
        )
    transformed = int(seen.get("transformed", 0))
    if transformed >= PASSES and not backwards:
        by_hand += (
            f" Modules were called {transformed} times inside of a function transform (torch.func.grad, vmap): "
            "gradients that are made there, and weights that no module holds, cannot be followed. A loop that calls "
            "loss.backward() can."
        )
    return (
        "No training step was seen. Searched for: steps of torch optimizers, backward passes, calls of torch modules. "
        f"Found: {'; '.join(found)}.{by_hand}{_ending(case)}"
    )
