"""The limit of gradient clipping is so low that nearly nothing of each gradient is left.

What it is
    Clipping is meant to cut rare, huge gradients. With a limit far below the usual gradient it cuts all of them, and
    every step has the same tiny length, whatever the loss says: the learning rate is in effect smaller by that factor.

Symptoms
    The loss falls very slowly or not at all, and a larger learning rate helps.

Evidence
    The norm before clipping is known at each step, and so is the limit. Clipping that is active in nearly all steps is
    common where training goes well (recurrent networks, reinforcement learning), and no fault: it is named only where
    at most a tenth of the gradient is left, updates are tiny and the loss goes nowhere. Adam and its kin rescale what
    is left, so they hardly care. A limit that the program sets in mid-run is seen by itself: it is named where updates
    fade from then on while the learning rate stays.

What to do
    Raise the limit to about the usual norm of the gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.faded_updates import faded
from neuraldbg.explain.evidence.wording import literal, moved, number, percent, rounded
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.clip import ClipFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.faded_updates import Faded
    from neuraldbg.explain.finding import Finding

ALWAYS = 0.9
LEFT = 0.1
"""Largest share of the gradient left by clipping at which the limit is suspected."""
SMALL, USUAL = 2e-4, 1e-3
"""norm(update) / norm(weight) below which steps are tiny, and above which they are usual."""
STEPS = 10
FLAT = 0.8
"""Root mean square of a clipped gradient over its limit, above which nearly every element was cut."""


def judge(case: Case) -> Finding | None:
    """Weigh clipping by norm, then by value, in a run that has a symptom and did not break."""
    if (fade := faded(case, "clip")) is not None and (found := _since(case, fade)) is not None:
        return found
    if not case.trouble.any or case.trouble.broke:
        return None
    return _by_norm(case) or _by_value(case)


def _since(case: Case, fade: Faded) -> Finding | None:
    """Weigh a limit of the norm that the program set in mid-run."""
    begun, limit = fade.change.since, fade.change.after or 0.0
    norms = case.scalar("unclipped_norm").finite().between(begun, case.steps_taken).values
    if not len(norms) or not limit > 0:
        return None
    usual = float(np.median(norms))
    left = limit / usual if usual > 0 else 1.0
    if left > LEFT:
        return None
    weigh = Weighing()
    was = f"set from {number(fade.change.before)} to" if fade.change.before else "set to"
    weigh.speaks(
        f"the limit was {was} {number(limit)} {fade.at}, and gradients have a norm of "
        f"{number(usual)} since: {percent(left)} of it is left",
        3.0 if left > LEFT / 10 else 4.0, left, LEFT,
    )  # fmt: skip
    fade.weigh(weigh, case)
    return weigh.conclude(
        f"clipping limit of {number(limit)} {fade.when} where gradients have a norm of {number(usual)}",
        _raised(usual),
        step=fade.change.until,
        since=begun,
        failure=case.trouble.name or "slow learning",
    )


def _raised(usual: float) -> Remedy:
    return Remedy(
        f"Raise the limit to about the usual norm of the gradient, {rounded(usual)}.",
        f"torch.nn.utils.clip_grad_norm_(model.parameters(), {literal(float(rounded(usual)))})",
    )


def _by_norm(case: Case) -> Finding | None:
    norm, limit = case.scalar("unclipped_norm").finite(), case.scalar("clip_limit").finite()
    count = min(len(norm), len(limit))
    if count < STEPS or any(fact.scaled for fact in case.run.known_each(ClipFact)):
        return None
    # A limit that cuts some gradients is usual: nearly all must be cut, to a small rest.
    norms, limits = norm.values[:count], limit.values[:count]
    active = norms > limits
    left = float(np.median(limits[active] / norms[active])) if active.any() else 1.0
    if active.mean() < ALWAYS or left > LEFT:
        return None
    usual = float(np.median(norms))
    weigh = Weighing()
    weigh.speaks(
        f"{percent(float(active.mean()))} of the gradients were clipped, to {percent(left)} of their usual norm of "
        f"{number(usual)}",
        2.5 if left > LEFT / 10 else 3.5, left, LEFT,
    )  # fmt: skip
    _add_symptoms(case, weigh)
    limit_now = float(np.median(limits))
    return weigh.conclude(
        f"clipping limit of {number(limit_now)} where gradients have a norm of {number(usual)}: "
        f"{percent(left)} of each is left",
        _raised(usual),
        step=int(norm.steps[0]),
        failure=case.trouble.name or "slow learning",
    )


def _by_value(case: Case) -> Finding | None:
    about = next((fact for fact in case.run.known_each(ClipFact) if fact.kind == "value"), None)
    if about is None or about.right < STEPS or about.scaled:
        return None
    limit = about.limit
    rows = case.layout.rows("param_grad")
    if not rows or limit <= 0:
        return None
    # If the rms is near the limit, nearly all elements have the size of the limit.
    rms = [case.run.series(row, "rms").finite().values for row in rows]
    flat = [float(np.median(values)) >= FLAT * limit for values in rms if len(values)]
    share = float(np.mean(flat)) if flat else 0.0
    if share < ALWAYS:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"in {percent(share)} of the tensors nearly all elements were cut to {number(limit)}", 3.0, share, ALWAYS
    )
    _add_symptoms(case, weigh)
    return weigh.conclude(
        f"clipping limit of {number(limit)} for each element, to which nearly all of them are cut",
        Remedy(
            "Raise the limit by two orders of magnitude, or clip the norm.",
            f"torch.nn.utils.clip_grad_value_(model.parameters(), {literal(100 * limit)})",
        ),
        step=0,
        failure=case.trouble.name or "slow learning",
    )


def _add_symptoms(case: Case, weigh: Weighing) -> None:
    weigh.speaks(case.trouble.phrase, 1.0)
    ratio = case.typical_update_ratio
    if ratio < SMALL:
        weigh.speaks(f"updates are {moved(ratio)}", 1.5, ratio, SMALL)
    elif ratio > USUAL:
        weigh.against(f"updates are {moved(ratio)} anyway", 3.0, ratio, USUAL)
    if case.adaptive and not ratio < SMALL:
        weigh.against(f"{case.optimizer_name} rescales the rest", 2.0)


CAUSE = Cause(
    module=__name__,
    title="Gradient clipping limit too low",
    tier=Tier.CERTAIN,
    explains=STALL,
    judge=judge,
    place="step",
    entails=frozenset({"lr_too_low"}),
    page=__doc__ or "",
)
