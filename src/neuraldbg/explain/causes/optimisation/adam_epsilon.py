"""Adam's epsilon outweighs the gradients, or is too small for the number format.

What it is
    Adam divides each step by sqrt(v) + eps, where v is a running mean of the squared gradient, and so sqrt(v) its usual
    size. The small eps only guards against a division by zero. Where it is larger than sqrt(v) it sets the size of the
    steps, which become far smaller than the learning rate says. In float16 the usual 1e-8 is exactly 0 and guards
    nothing.

Symptoms
    With a large eps, or tiny gradients: hardly any movement at a usual learning rate. With states in float16: NaN or
    infinity in the weights after the first step, though loss and gradients were finite.

Evidence
    Samples of v are read from the optimizer's state and compared with eps, and eps is read in the number format of that
    state. Elements with no gradient at all do not count. With a learning rate that is too low, v is far above eps, and
    the steps are as small as the rate says. Values such as 1e-3 that some papers use are no fault where the model
    learns. An epsilon that the program raises in mid-run is seen by itself: it is named where updates fade from then on
    while the learning rate stays.

What to do
    Set eps back to 1e-8 (1e-6 to 1e-4 for float16 states, or keep weights and states in float32). If the gradients are
    tiny because the loss is divided by something large, scale the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import NONFINITE, STALL, Cause
from neuraldbg.explain.edits import arguments
from neuraldbg.explain.evidence.faded_updates import faded
from neuraldbg.explain.evidence.optimizer_steps import POOR, below_eps, poor, weigh_trouble
from neuraldbg.explain.evidence.wording import literal, moved, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.faded_updates import Faded
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.optimizer_state import OptimizerStateFact

MANY = 0.7
"""Share of the elements with sqrt(v) below epsilon, from which epsilon sets the size of the steps."""
USUAL = 1e-6
"""Largest usual epsilon."""
LARGE = 1e-4
RAISED = 100.0
"""Least factor by which an epsilon that was raised may set the size of the steps."""


def judge(case: Case) -> Finding | None:
    """Weigh epsilon against the second moments, and against the number format."""
    if (change := faded(case, "eps")) is not None and (found := _raised(case, change)) is not None:
        return found
    share, latest = below_eps(case)
    if latest is None or (case.learned and not poor(case) > POOR):
        return None
    if latest.eps > 0 and not latest.eps_kept > 0:
        return _underflows(case, latest)
    return _outweighs(case, share, latest) if share >= MANY else None


def _raised(case: Case, fade: Faded) -> Finding | None:
    """Weigh an epsilon that the program raised in mid-run."""
    before, after = fade.change.before or 0.0, fade.change.after or 0.0
    if after < RAISED * before or after < USUAL:
        return None
    weigh = Weighing()
    weigh.speaks(f"eps was set from {number(before)} to {number(after)} {fade.at}",
                 3.0, after, RAISED * before)  # fmt: skip
    fade.weigh(weigh, case)
    return weigh.conclude(
        f"an epsilon that is too large {fade.when}: eps={number(after)} with {case.optimizer_name}",
        Remedy(
            f"Set eps from {number(after)} back to {number(before)}.",
            f"for group in optimizer.param_groups:\n    group['eps'] = {literal(before)}",
        ),
        step=fade.change.until,
        since=fade.change.since,
        failure=case.trouble.name or "slow learning",
    )


def _underflows(case: Case, latest: OptimizerStateFact) -> Finding | None:
    origin = case.origin
    if origin is None:
        return None
    weigh, eps = Weighing(), latest.eps
    # A division by zero makes the update non-finite first; anything earlier has another cause.
    weigh.speaks(f"the optimizer keeps its state in {latest.dtype}, where eps={number(eps)} is exactly 0", 3.5, eps, 0)
    lost = not np.isfinite(case.scalar("loss").at(origin.step))
    forward = origin.has("input", "activation", "op") or lost
    if origin.has("update", "param") and not forward:
        weigh.speaks(
            f"at step {origin.step} the update was not finite though loss and gradients were", 2.5, origin.step
        )
    elif forward and origin.step > 0 and origin.step <= 3:
        weigh.speaks(f"values became NaN or infinite right after the first updates, at step {origin.step}", 1.5)
    elif origin.step > 20:
        weigh.against(f"the run was finite until step {origin.step} with the same epsilon", 2.5, origin.step)
    if origin.has("input"):
        weigh.against(f"the input of step {origin.step} was already not finite", 5.0, origin.step)
    elif forward and origin.step == 0:
        weigh.against("the loss was not finite before the first update, at step 0", 5.0, 0)
    return weigh.conclude(
        f"an epsilon that {latest.dtype} cannot hold: eps={number(eps)} is 0 there, and {case.optimizer_name} "
        "divides by zero",
        Remedy(
            "Keep weights and optimizer in float32 and use autocast, or raise eps to 1e-4.",
            f"model.float()  # and autocast around the forward pass\noptimizer = torch.optim.{case.optimizer_name}("
            f"model.parameters(), lr={literal(case.lr)}, eps=1e-4)",
            (arguments("eps=1e-4"),),
        ),
        step=origin.step,
        failure=case.trouble.name or "division by zero",
    )


def _outweighs(case: Case, share: float, latest: OptimizerStateFact) -> Finding | None:
    eps, typical, ratio = latest.eps, latest.typical, case.typical_update_ratio
    weigh = Weighing()
    weigh.speaks(
        f"eps={number(eps)} is larger than the usual gradient (about {number(typical)}) of {percent(share)} of the "
        "elements read", 2.5 if share >= 0.9 else 1.5, share, MANY,
    )  # fmt: skip
    if eps > LARGE:
        weigh.speaks(f"eps={number(eps)} is far above the usual 1e-8", 2.0, eps, LARGE)
    elif eps > USUAL:
        weigh.speaks(f"eps={number(eps)} is above the usual 1e-8", 1.0, eps, USUAL)
    values = case.gradients.values
    if eps <= USUAL and len(values) >= 3 and values.min() < 1e-4 * values.max():
        weigh.against("gradients vanish over depth, which comes before epsilon", 2.5, float(values.min()))
    # If epsilon sets the steps, updates are small and the run does not blow up.
    if ratio < 1e-4:
        weigh.speaks(f"updates are only {moved(ratio)}", 1.5, ratio, 1e-4)
    elif ratio > 1e-3:
        weigh.against(f"updates are {moved(ratio)}, which is not too small", 2.5, ratio, 1e-3)
    if case.trouble.broke:
        weigh.against("the run blew up, which small steps do not do", 4.0)
    else:
        weigh_trouble(case, weigh)
    # With a usual epsilon it is the gradients that are too small, and the remedy differs.
    tiny = eps <= USUAL
    what = (
        f"gradients so tiny that {case.optimizer_name}'s epsilon outweighs them"
        if tiny
        else f"an epsilon that is too large: eps={number(eps)} with {case.optimizer_name}"
    )
    scale = f"The gradients are about {number(typical)}: do not divide the loss by so much, or set eps to 1e-15."
    return weigh.conclude(
        f"{what}, {number(eps)} against {number(typical)}"
        if tiny
        else f"{what} outweighs gradients of {number(typical)}",
        Remedy(
            scale if tiny else f"Set eps from {number(eps)} back to 1e-8.",
            f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(), lr={literal(case.lr)}, "
            f"eps={'1e-15' if tiny else '1e-8'})",
            (arguments(f"eps={'1e-15' if tiny else '1e-8'}"),),
        ),
        step=0,
        failure=case.trouble.name or "slow learning",
    )


CAUSE = Cause(
    module=__name__,
    title="Adam's epsilon too large or too small",
    tier=Tier.SPECIFIC,
    explains=STALL | NONFINITE,
    entails=frozenset({"lr_too_low"}),
    judge=judge,
    page=__doc__ or "",
)
