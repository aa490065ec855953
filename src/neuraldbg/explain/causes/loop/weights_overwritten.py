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
    after it, or where the loss lost a quarter of what was learnt at once and has not come back to its level. A program
    that changes its weights all the time, and trained well with it, does so on purpose, and so does one that begins
    anew with another optimizer; a jump without such a change has another cause, such as a rate that was raised.

What to do
    Find the code that writes to these weights, and do it before the training. Where it is meant, as in a pruning or a
    return to a better state, load the optimizer's state as well, or make a new optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.evidence.late_changes import weigh_change
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.setbacks import AT_ONCE, LOST, setback
from neuraldbg.explain.evidence.wording import listing, number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.resume import ResumeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

OFTEN = 3
"""Earlier changes of the same kind without harm from which a program is known to make them on purpose."""


def judge(case: Case) -> Finding | None:
    """Weigh changes of weights from outside by the loss before them, right after them and at the end."""
    turns = [one for _, one in case.run.versions(ChangeFact, what="weights")]
    change, onset = case.change("weights"), case.onset
    if change is not None and onset is not None and case.trouble.any:
        late = onset - change.until
        weigh = Weighing()
        weigh_change(case, weigh, change, 5.0 if late <= AT_ONCE else 2.0)
        if late > AT_ONCE:
            said = f"the trouble began {plural(late, 'step')} later: other weights show at once"
            weigh.against(said, 2.0, late, AT_ONCE)
        weigh.speaks(case.trouble.phrase, 1.0)
        return _found(case, weigh, turns, change.until, change.since, change.names)
    for turn in turns:
        weigh = Weighing()
        if _costly(case, weigh, turn, sum(one.until > turn.until for one in turns)):
            return _found(case, weigh, turns, turn.until, turn.since, turn.names)
    return None


def _costly(case: Case, weigh: Weighing, turn: ChangeFact, more: int) -> bool:
    """Weigh a loss that rose with a change, or with it and ``more`` of its kind, and has not come back to the level
    before; return False if it did not, or has.
    """
    cost = setback(case, turn.since, turn.until)
    if cost is None:
        return False
    share = max(cost.share, cost.orders)
    if cost.sharp and share > LOST:
        said = f"the loss was at {number(cost.before)} before, and at {number(cost.after)} in the steps right after it"
        weigh.speaks(said, 4.0, share, LOST)
    elif more >= OFTEN:
        said = f"it was at {number(cost.before)} before, and more changes of this kind came with its rise"
        weigh.speaks(said, 2.5, more)
    else:
        return False
    weigh.speaks(f"it has not come back to that level: it ends at {number(cost.end)}", 1.5, cost.end, cost.before)
    return True


def _found(
    case: Case, weigh: Weighing, turns: list[ChangeFact], until: int, since: int, names: tuple[str, ...]
) -> Finding:
    """Weigh signs that a change is meant, and conclude."""
    before = sum(one.until < until for one in turns)
    if before >= OFTEN:
        said = f"the program had changed weights in this way {before} times before, without harm"
        weigh.against(said, 3.0, before, OFTEN)
    if any(abs(one.until - until) <= AT_ONCE for _, one in case.run.versions(ChangeFact, what="optimizer")):
        weigh.against("another optimizer object took over then, as when a training begins anew", 5.0)
    if any(fact.model_loaded == until for fact in case.run.known_each(ResumeFact)):
        weigh.speaks("a checkpoint was loaded into the model at that step", 0.5)
    said = listing(names) if names else "the weights"
    when = f"at step {until}" if until <= since + 1 else f"between steps {since} and {until}"
    layers = {owner(name) for name in names}
    return weigh.conclude(
        f"weights that were overwritten: something that is no optimizer changed {said} {when}",
        Remedy(
            f"Find the code that writes to {said} between two steps: an assignment to .data, an operation in place "
            "under torch.no_grad(), load_state_dict, an initialisation. Leave it out, or do it before the training.",
            f"with torch.no_grad():\n    ...  # what writes to {said}: before the loop, not in it",
        ),
        layer=layers.pop() if len(layers) == 1 else None,
        step=until,
        since=since if until > since + 1 else None,
        failure=case.trouble.name or "lost progress",
    )


CAUSE = Cause(
    module=__name__,
    title="Weights overwritten",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    place="step",
    page=__doc__ or "",
)
