"""A function of torch is given arguments that it accepts and that mean something else than it expects.

What it is
    Torch checks shapes and dtypes, and not what numbers mean. A loss for pairs expects 1 and -1 and takes 0 and 1;
    a grid of coordinates goes from -1 to 1 and pixels are taken as well; a mask of zeros and ones as an index chooses
    the first two elements; a mask of 0 and 1 that is added to attention scores leaves nothing out; logits that went
    through a softmax already are normalised twice; numbers of shape (N) with numbers of shape (N, 1) give (N, N).
    Nothing raises, and the model trains on what came of it.

Symptoms
    Often none but a poor result: the loss falls to a level and stays, or a part of the model learns nothing.

Evidence
    Arguments are checked with their real values in the steps whose facts are read, at the call or in the graph of the
    loss, and each rule is one of the function's documentation. A rule that is broken in every call that was read is
    sure; one that is broken now and then may be data. Some breaches have causes of their own, which say more:
    missing_log_softmax, double_softmax, double_sigmoid, target_out_of_range, target_broadcast, unstable_op.

What to do
    Look at the line that is named, and at the documentation of the function: give what it expects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.evidence.contract_rules import RULES, SURE, WEAK
from neuraldbg.explain.evidence.wording import plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.contracts import ContractsFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.contracts import BrokenContract

NEARLY = 0.9
"""Share of the calls from which on a rule is broken in nearly all: a last batch is at times another one."""
SOME = 0.5
"""Share of the calls below which a breach is one of some batches."""
ONCE = 2
"""Calls from which on a breach is no accident of one batch."""
SUMMAND = 3.1
"""Log-odds by which a summand of the loss without a graph speaks for a loss function that was given none: either alone
may be a number that is logged, or added on purpose."""
STUCK = 4.0
"""Log-odds by which a loss that does not move speaks for a factor of 0 in it."""
OTHERS = 2
"""Other rules that are broken, named beside the worst."""


def judge(case: Case) -> Finding | None:
    """Weigh each rule that is broken; the finding with the most evidence is returned."""
    fact = case.run.known(ContractsFact)
    broken = [one for one in (fact.broken if fact is not None else ()) if one.rule in RULES]
    found = [_weigh(case, one, [other for other in broken if other is not one]) for one in broken]
    return max(found, key=lambda one: one.log_odds, default=None)


def _name(one: BrokenContract) -> str:
    return one.function.rpartition(".")[2] if "__" not in one.function else "indexing"


def _weigh(case: Case, one: BrokenContract, others: Sequence[BrokenContract] = ()) -> Finding:
    rule, weigh = RULES[one.rule], Weighing()
    share, name = one.broken / max(1, one.calls), _name(one)
    often = (
        f"in each of the {plural(one.calls, 'call')}"
        if one.broken >= one.calls
        else f"in {one.broken:,} of {one.calls:,} calls"
    )
    weigh.speaks(
        f"{name} was given {one.given}, {often} that were read, from step {one.first} to step {one.last}",
        rule.weight, one.given,
    )  # fmt: skip
    weigh.speaks(f"it expects {rule.expects}: {rule.comes}", 0.0)
    for other in [each for each in others if RULES[each.rule].weight > WEAK][:OTHERS]:
        weigh.speaks(f"{_name(other)} was given {other.given} as well, from step {other.first} on", 0.0, other.given)
    if one.rule == "without_graph" and any(other.rule == "adds_constant" for other in others):
        weigh.speaks("at the same steps the loss is a sum, and one of its summands has no graph", SUMMAND)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, STUCK if one.rule == "times_nought" and case.trouble.kind == "stuck" else 0.5)
    if one.broken < ONCE:
        weigh.against("it was read in one call", 1.5, one.broken, ONCE)
    if share < SOME:
        weigh.against("most calls on that line keep the rule", 4.0, share, SOME)
    elif share < NEARLY:
        weigh.against("some calls on that line keep the rule", 1.5, share, NEARLY)
    return weigh.conclude(
        f"{one.given} given to {name}, which expects {rule.expects}",
        Remedy(f"{rule.text} See {one.link}.", rule.code),
        layer=one.layer if one.layer != "loss" else None,
        step=one.first,
        failure="wrong result",
        at=one.place,
        doing=f"{name} is called",
        tier=Tier.SPECIFIC if rule.weight < SURE else None,
    )


CAUSE = Cause(
    module=__name__,
    title="Function given what it does not expect",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
