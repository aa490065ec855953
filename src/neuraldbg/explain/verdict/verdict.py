"""The verdict of a run: failing, suspect, healthy or inconclusive, with a summary that a stranger understands.

- ``failing``: the training broke (NaN, divergence), or it learns nothing and a credible cause explains that.
- ``suspect``: the training runs, but a credible cause is likely to hurt the result; or it learns nothing and no cause
  was found.
- ``healthy``: the training runs and no credible cause was found. Events alone never make a run suspect.
- ``inconclusive``: too little was read, or no cause was found but something that may hold a fault could not be read
  (``gaps``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.loss_curve import FEW
from neuraldbg.explain.evidence.training_loop import rise
from neuraldbg.explain.evidence.wording import number, percent, plural
from neuraldbg.explain.finding import Tier
from neuraldbg.explain.verdict.ranking import CREDIBLE, ends_so
from neuraldbg.nouns import Unjudged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Hypothesis

PASSES = 10
"""Backward passes without an optimizer step after which the summary explains why steps may not be seen."""
MANY = 2000
"""Steps after which a loss that has hardly fallen is no longer just slow to start."""
UNTOLD = ("label_noise", "target_misaligned")
"""Causes that look like a task whose inputs hardly predict the targets."""
LITTLE = 0.06
"""Leave-one-out R^2 of targets from inputs below which a loss that hardly falls may be the best there is."""
SURE = 0.9
"""Confidence from which the summary leaves out "most likely"."""
UNRELATED = (
    "AttributeError",
    "FileNotFoundError",
    "ImportError",
    "KeyError",
    "MemoryError",
    "ModuleNotFoundError",
    "NameError",
    "OSError",
    "PermissionError",
    "SyntaxError",
    "TypeError",
)
"""Names of exceptions that say nothing about the training itself."""


def credible(case: Case, hypotheses: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
    """Return the hypotheses to show: all for a run with a symptom or a halt, else only the credible ones."""
    if case.trouble.any or _halted(case):
        return hypotheses
    return tuple(h for h in hypotheses if h.confidence >= CREDIBLE)


def judge(case: Case, hypotheses: tuple[Hypothesis, ...], certain: frozenset[str]) -> tuple[str, str]:
    """Return verdict and summary. ``certain`` has the ids of the causes that are read from the program itself."""
    named = [h for h in hypotheses if h.confidence >= CREDIBLE]
    top = named[0] if named else None
    steps = case.run.steps or len(case.history)
    # Without a step there is no training to judge; only a cause of the script's own error can be named.
    if steps == 0:
        if top is not None:
            what = f"the script ended with {_raised(case)} before its first step"
            return "failing", _sentence(what, top, hypotheses)
        return "inconclusive", _nothing_seen(case)
    # The run failed: a credible cause is named as the reason only if such an end can come from it.
    ending = _ending(case)
    trouble = case.trouble
    if trouble.broke or (trouble.any and top is not None) or (_halted(case) and top is not None):
        what = trouble.phrase or f"training was halted ({case.run.info.outcome.message})"
        if top is not None and not ends_so(case, top.explains):
            return "failing", _sentence(what, None, ()) + f" Beside it: {top.sentence}{_place(top)}." + ending
        return "failing", _sentence(what, top, hypotheses, rise(case, trouble.step)) + ending
    # A short run shows no trend, so only a cause that is read from the program itself counts there.
    sure = [h for h in named if h.cause in certain]
    if steps < FEW and not sure:
        if _halted(case):
            return "suspect", _sentence(f"training was halted ({case.run.info.outcome.message})", top, hypotheses)
        return (
            "inconclusive",
            f"Only {plural(steps, 'step')} of training: too few to judge, and nothing is plainly wrong.{ending}",
        )
    if top is not None:
        others = f" ({len(named) - 1} more below)" if len(named) > 1 else ""
        return (
            "suspect",
            f"The model trains, but a fault is likely to hurt the result: {top.sentence}{_place(top)}{others}.{ending}",
        )
    return _without_a_cause(case, hypotheses, ending)


def _without_a_cause(case: Case, hypotheses: tuple[Hypothesis, ...], ending: str) -> tuple[str, str]:
    """Return verdict and summary of a run that did not break, has no credible cause and was long enough to judge."""
    trouble, steps = case.trouble, case.run.steps or len(case.history)
    if _crashed(case):
        return (
            "inconclusive",
            f"The script broke off after {plural(steps, 'step')}, in which {_course(case, lower=True)}.{ending}",
        )
    if trouble.kind == "slow" and case.loss.still_falling and len(case.loss) < MANY:
        return "inconclusive", f"{_capital(trouble.phrase)}, but it still falls: too few steps to tell.{ending}"
    nothing_else = not hypotheses or hypotheses[0].cause in UNTOLD
    if trouble.guess or (trouble.kind in ("slow", "stuck") and nothing_else and _little_told(case)):
        hint = "Either the inputs do not tell the targets, or something is wrong that is none of the known causes"
        return "inconclusive", f"{_capital(trouble.phrase)}. {hint}.{ending}"
    if trouble.any or _halted(case):
        what = trouble.phrase or f"training was halted ({case.run.info.outcome.message})"
        return "suspect", _sentence(what, None, hypotheses, rise(case, trouble.step)) + ending
    if trouble.kind == "unclear" and len(case.loss) < 100:
        return "inconclusive", f"{_course(case)} in {plural(steps, 'step')}: too few to tell.{ending}"
    if unseen := gaps(case):
        told = f"No problem found in {plural(steps, 'step')}: {_course(case, lower=True)}"
        more = f" ({len(unseen) - 1} more below)" if len(unseen) > 1 else ""
        hides = f"But a fault may hide in what was not read: {unseen[0].what} {unseen[0].reason}{more}"
        return "inconclusive", f"{told}. {hides}.{ending}"
    return "healthy", f"No problem found in {plural(steps, 'step')}: {_course(case, lower=True)}.{ending}"


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
        return f"{_capital(what)}. No cause is sure; the most likely is {first.cause} ({percent(first.confidence)})."
    return f"{_capital(what)}. None of the known causes explains it{f'; {beside}' if beside else ''}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _place(hypothesis: Hypothesis) -> str:
    """Write layer and step, unless the hypothesis's sentence has them already."""
    where = "seen at" if hypothesis.category == "data" else "in"
    told = not hypothesis.layer or hypothesis.layer in hypothesis.sentence
    layer = "" if told else f", {where} layer {hypothesis.layer!r}"
    step = hypothesis.step
    when = "" if not step or f"step {step}" in hypothesis.sentence else f", since step {step}"
    return layer + when


def _course(case: Case, *, lower: bool = False) -> str:
    loss = case.loss
    if not len(loss):
        text = "No loss was seen"
    elif loss.learned and not loss.finite.values.min() < 0 < loss.finite.values.max():
        text = f"The loss fell from {number(loss.initial)} to {loss.ending}"
    else:
        text = f"The loss went from {number(loss.initial)} to {loss.ending}"
    return text[:1].lower() + text[1:] if lower else text


def _halted(case: Case) -> bool:
    return case.run.info.outcome.kind == "halted"


def _crashed(case: Case) -> bool:
    """Return True if an exception ended the script that may have to do with the training."""
    return case.run.info.outcome.kind == "raised" and not _unrelated(case)


def _unrelated(case: Case) -> bool:
    return _raised(case).startswith(UNRELATED) and not case.trouble.broke


def _raised(case: Case) -> str:
    message = case.run.info.outcome.message.strip()
    return message.splitlines()[-1].rstrip(".") if message else "an exception"


def _ending(case: Case) -> str:
    """Write how the script ended, empty for the usual end."""
    outcome = case.run.info.outcome
    if outcome.kind == "raised":
        where = f" at {outcome.where}" if outcome.where else ""
        remark = ", which has nothing to do with the training" if _unrelated(case) else ""
        return f" The script ended with {_raised(case)}{where}{remark}."
    return " The run was interrupted." if outcome.kind == "interrupted" else ""


def _nothing_seen(case: Case) -> str:
    """Write the things that were searched for and found, for a run without a step."""
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
            "does it by hand, on tensors that no module holds: call capture_step() after each step to have those seen."
        )
    transformed = int(seen.get("transformed", 0))
    if transformed >= PASSES and not backwards:
        by_hand += (
            f" Modules were called {transformed} times inside of a function transform (torch.func.grad, vmap): "
            "gradients that are made there, and weights that no module holds, cannot be followed. A loop that calls "
            "loss.backward() can."
        )
    return (
        "No training step was seen. Looked for: steps of any torch optimizer, backward passes, calls of torch modules. "
        f"Found: {'; '.join(found)}.{by_hand}{_ending(case)}"
    )
