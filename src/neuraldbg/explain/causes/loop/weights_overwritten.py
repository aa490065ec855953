"""Weights are changed by something that is no optimizer, and what was learnt is lost.

What it is
    Between a step of the optimizer and the next, code of the program writes to weights: it initialises a layer once
    more, loads older ones or those of another model, assigns to ``.data``, multiplies or clears them in place, or swaps
    in an average and does not swap it back. The optimizer goes on from there, with a momentum of the old weights.

Symptoms
    The loss jumps from one step to the next, to the level of an untrained model or far above it. Then it falls anew, or
    stays where it is.

Evidence
    In each step a few elements of the weights are compared with what the step before has left. A change of more than
    0.3 of a weight's size is a fact, with its step and its parameters; averages that are swapped in and out again,
    clipping and constraints are smaller, or gone before the next step. It is weighed where the trouble began right
    after it, or where the loss lost a quarter of what was learnt at once and has not come back to its level. A program
    that changes its weights all the time, and trained well with it, does so on purpose, and so does one that begins
    anew with another optimizer. Smaller changes before each step, from some step on, are named where the loss ends
    above its level before; a jump without such a change has another cause, such as a rate that was raised. The lines
    of a training step's functions are searched for those that write to weights; one alone is quoted.

What to do
    Find the code that writes to these weights, and do it before the training. Where it is meant, as in a pruning or a
    return to a better state, load the optimizer's state as well, or make a new optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.evidence.late_changes import weigh_change
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.setbacks import AT_ONCE, LOST, setback, slow_return
from neuraldbg.explain.evidence.weight_writes import WRITES, search, weigh_lines, writing_lines
from neuraldbg.explain.evidence.wording import listing, number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.resume import ResumeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

EACH, MOSTLY = 10, 0.9
"""Least readings before and since changes at each step, and share of those since that must have one."""
SMALL = 0.03
"""Least size of such changes, relative to the weight's: averages, clipping and constraints make smaller ones."""
PRUNED = 0.05
"""Share of a weight's elements that are set to 0, while others are not, from which that is a pruning."""
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
        first = _first_of_row(case, change.until)
        since = change.since if first == change.until else first - 1
        return _found(case, weigh, turns, first, since, change.names)
    for turn in turns:
        weigh = Weighing()
        if _costly(case, weigh, turn, sum(one.until > turn.until for one in turns)) or (
            len(turns) < OFTEN and _late_back(case, weigh, turn)
        ):
            return _found(case, weigh, turns, turn.until, turn.since, turn.names)
    return _at_each_step(case)


def _first_of_row(case: Case, until: int) -> int:
    """Return the first of the steps in a row before which something changed the weights, up to a change of them."""
    steps = case.scalar("outside").finite().steps
    row = steps[steps <= until][::-1]
    gaps = np.flatnonzero(np.diff(row) < -1)
    return int(row[gaps[0]] if len(gaps) else row[-1]) if len(row) else until


def _at_each_step(case: Case) -> Finding | None:
    """Weigh small changes from outside before each step, from some step on, by what became of the loss since."""
    outside, read = case.scalar("outside").finite(), case.scalar("update_ratio").finite().steps
    if not len(outside):
        return None
    read = read[np.isin(read - 1, read)]  # of others it is not known how the weights were after the step before
    until = int(outside.steps[0])
    before, since = read[read < until], read[read >= until]
    changed = int(np.isin(since, outside.steps).sum())
    if min(len(before), changed) < EACH or changed < MOSTLY * len(since):
        return None
    last, size = int(before[-1]), float(np.median(outside.values))
    cost = setback(case, until - 1, until)
    if cost is None or size < SMALL:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"in {changed} of {plural(len(since), 'step')} read right after another from step {until} on, something "
        f"that is no optimizer had changed the weights in between, by {number(size)} times their size; in the "
        f"{len(before)} read so before, nothing had",
        3.0, changed, MOSTLY * len(since),
    )  # fmt: skip
    said = f"the loss was at {number(cost.before)} before, and ends at {number(cost.end)}"
    weigh.speaks(said, 2.5, cost.end, cost.before)
    return _found(case, weigh, [], until, last, ())


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


def _late_back(case: Case, weigh: Weighing, turn: ChangeFact) -> bool:
    """Weigh a loss that jumped at a change, far beyond its noise, and took long to come back to its level."""
    # A state that is gone back to on purpose is loaded with the optimizer's.
    whole = any(fact.optimizer_loaded and fact.model_loaded is not None for fact in case.run.known_each(ResumeFact))
    found = slow_return(case, turn.since, turn.until)
    if found is None or whole:
        return False
    level, now, took = found
    said = f"the loss was at {number(level)} before, and at {number(now)} in the steps right after it"
    weigh.speaks(said, 4.0, now, level)
    share = took / max(case.run.steps, 1)
    weigh.speaks(f"it took {plural(took, 'step')} to come back, {percent(share)} of the run", 0.5, took)
    return True


def _pruned(case: Case, until: int) -> float:
    """Return the largest share of a weight's elements that became exactly 0 from a step on, of weights that kept
    others; 0 if none did.
    """
    shares = [0.0]
    for row in case.layout.rows("param"):
        zeros, count = (case.run.series(row, name) for name in ("zeros", "count"))
        share = zeros.values / np.maximum(count.values, 1)
        before, after = share[zeros.steps < until], share[zeros.steps >= until]
        if len(before) and len(after) and after[-1] < 1:
            shares.append(float(after[-1] - before[-1]))
    return max(shares)


def _found(
    case: Case, weigh: Weighing, turns: list[ChangeFact], until: int, since: int, names: tuple[str, ...]
) -> Finding:
    """Weigh signs that a change is meant, and conclude."""
    before = sum(one.until < until for one in turns)
    if before >= OFTEN:
        said = f"the program had changed weights in this way {before} times before, without harm"
        weigh.against(said, 3.0, before, OFTEN)
    pruned = _pruned(case, until)
    if pruned > PRUNED:
        said = f"{percent(pruned)} of the elements of a weight are exactly 0 since then, as in pruning"
        weigh.against(said, 5.0, pruned, PRUNED)
    if any(abs(one.until - until) <= AT_ONCE for _, one in case.run.versions(ChangeFact, what="optimizer")):
        weigh.against("another optimizer object took over then, as when a training begins anew", 5.0)
    if any(fact.model_loaded == until for fact in case.run.known_each(ResumeFact)):
        weigh.speaks("a checkpoint was loaded into the model at that step", 0.5)
    lines, said = writing_lines(case, names), listing(names) if names else "the weights"
    line = weigh_lines(weigh, lines)
    when = f"at step {until}" if until <= since + 1 else f"between steps {since} and {until}"
    layers = {owner(name) for name in names}
    anywhere = (
        f"Find the code that writes to {said} between two steps: an assignment to .data, an operation in place "
        "under torch.no_grad(), load_state_dict, an initialisation."
    )
    return weigh.conclude(
        f"weights that were overwritten: something that is no optimizer changed {said} {when}",
        Remedy(
            f"{search(lines, anywhere)} Leave it out, or do it before the training.",
            f"with torch.no_grad():\n    ...  # what writes to {said}: before the loop, not in it",
        ),
        layer=layers.pop() if len(layers) == 1 else None,
        step=until,
        since=since if until > since + 1 else None,
        failure=case.trouble.name or "lost progress",
        at=line,
        doing=WRITES,
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
