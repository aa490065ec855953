"""Weights are changed by something that is no optimizer, and what was learnt is lost.

What it is
    Between a step of the optimizer and the next, code of the program writes to weights: it initialises a layer once
    more, loads older ones or those of another model, assigns to ``.data``, multiplies or clears them in place, or swaps
    in an average and does not swap it back. The optimizer goes on from there, with a momentum of the old weights.

Symptoms
    The loss jumps from one step to the next, to the level of an untrained model or far above it. Then it falls anew,
    or stays where it is.

Evidence
    In each step a few elements of the weights are compared with what the step before has left. A change of more than
    0.3 of a weight's size is a fact, with its step and its parameters; averages that are swapped in and out again,
    clipping and constraints are smaller, or gone before the next step. It is weighed where the trouble began right
    after it. A program that changes its weights all the time, and trained well with it, does so on purpose; a jump
    without such a change has another cause, such as a learning rate that was raised.

What to do
    Find the code that writes to these weights, and do it before the training. Where it is meant, as in a pruning or a
    return to a better state, load the optimizer's state as well, or make a new optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.evidence.late_changes import weigh_change
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.wording import listing, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.resume import ResumeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.change_points import ChangePoint
    from neuraldbg.explain.finding import Finding

AT_ONCE = 3
"""Steps within which other weights show in the loss: at the next step, or, in evaluations, soon after."""
OFTEN = 3
"""Earlier changes of the same kind without harm from which a program is known to make them on purpose."""


def judge(case: Case) -> Finding | None:
    """Weigh a change of weights from outside that came right before the trouble."""
    change, onset = case.change("weights"), case.onset
    if change is None or onset is None or not case.trouble.any:
        return None
    weigh, late = Weighing(), onset - change.until
    weigh_change(case, weigh, change, 5.0 if late <= AT_ONCE else 2.0)
    if late > AT_ONCE:
        weigh.against(f"the trouble began {plural(late, 'step')} later: other weights show at once", 2.0, late, AT_ONCE)
    before = [one for _, one in case.run.versions(ChangeFact, what="weights") if one.until < change.until]
    if len(before) >= OFTEN:
        weigh.against(
            f"the program had changed weights in this way {len(before)} times before, without harm",
            3.0, len(before), OFTEN,
        )  # fmt: skip
    if any(fact.model_loaded == change.until for fact in case.run.known_each(ResumeFact)):
        weigh.speaks("a checkpoint was loaded into the model at that step", 0.5)
    weigh.speaks(case.trouble.phrase, 1.0)
    names = listing(change.names) if change.names else "the weights"
    return weigh.conclude(
        f"weights that were overwritten: something that is no optimizer changed {names} {change.when}",
        Remedy(
            f"Find the code that writes to {names} between two steps: an assignment to .data, an operation in place "
            "under torch.no_grad(), load_state_dict, an initialisation. Leave it out, or do it before the training.",
            f"with torch.no_grad():\n    ...  # what writes to {names}: before the loop, not in it",
        ),
        layer=_layer(change),
        step=change.until,
        since=change.since if change.until > change.since + 1 else None,
        failure=case.trouble.name,
    )


def _layer(change: ChangePoint) -> str | None:
    """Return the layer that all changed parameters belong to, None if there are several."""
    layers = {owner(name) for name in change.names}
    return layers.pop() if len(layers) == 1 else None


CAUSE = Cause(
    module=__name__,
    title="Weights overwritten",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    place="step",
    page=__doc__ or "",
)
