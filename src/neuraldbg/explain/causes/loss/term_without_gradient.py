"""A term of the loss is a number: it is added to the loss, and trains nothing.

What it is
    A loss is a sum of terms, and one of them was made without a graph: from a prediction that went through argmax,
    a comparison, a rounding, numpy, ``.item()``, ``detach()`` or ``torch.no_grad()``. Its value moves the curve of the
    loss, and its gradient is zero.

Symptoms
    The other terms are minimised and this one is not, or only as far as the others happen to bring it. Nothing raises,
    since the sum has a graph.

Evidence
    Where ``backward`` is called, the variables that the loss is the sum of are read by their names, as far as the sum
    is written there. A term that never has a graph and has other values at every reading measures something that
    changes with the training, or with the batch. A constant, a sum's first zero and terms that have no parameters by
    their nature (the determinant of a preprocessing, the entropy of a teacher, a prior) are no fault.
    Where several optimizers step, each summand of the graph is walked to its parameters: one that reaches nothing of
    the optimizer that steps after it, and only tensors of another one which has a backward pass of its own, does not
    train what it is for (the adversarial term of a generator whose images were detached).

What to do
    Compute the term from the model's output with operations that have a gradient: probabilities for decisions, a
    sigmoid for a threshold. Leave it out of the loss if it is only to be printed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence.wording import listing, number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.reach import ReachFact
from neuraldbg.nouns.facts.terms import TermsFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.terms import NamedTerm

READINGS, CHANGES = 3, 2
"""Readings of a term, and those in which it had another value, from which on it is no constant."""
LOSSY = re.compile(r"loss|cost|err|nll|bce|mse|penal|reg|dice|iou|adv|constrain", re.IGNORECASE)
"""Names of what is to be minimised."""
MEANT = re.compile(r"det(?!ect)|jac|ldj|const|prior|teacher|target|base|log_?p_?data|^h_", re.IGNORECASE)
"""Names of terms that have no parameters by their nature."""


def judge(case: Case) -> Finding | None:
    """Weigh the terms that reach nothing of the optimizer that steps, and those that never had a graph."""
    return _elsewhere(case) or _numbers(case)


def _elsewhere(case: Case) -> Finding | None:
    """Weigh a summand whose gradient goes to the tensors of another optimizer alone, which has a loss of its own."""
    fact = case.run.known(ReachFact)
    summands = fact.summands if fact is not None else ()
    for one in summands:
        others = [each for each in summands if each.place == one.place and each is not one and each.hits]
        if one.hits or one.read < READINGS or not others or not one.reached or set(one.reached) - set(one.own):
            continue
        name = one.name or "one summand of the loss"
        weigh = Weighing()
        weigh.speaks(
            f"{name} reached no tensor of optimizer {one.stream}, which stepped after it, in any of {one.read:,} "
            f"readings; it reached those of optimizer {listing([str(each) for each in one.reached])}",
            4.5, one.hits, one.read,
        )  # fmt: skip
        weigh.speaks("that one has a backward pass of its own, and what it got here is cleared or mixed in", 0.7)
        return weigh.conclude(
            f"a term of the loss that does not reach what it should train: {name} has no gradient for the tensors of "
            f"optimizer {one.stream}",
            Remedy(
                "Compute the term from the output of the model that it shall train, without detach(): detach only "
                "for the loss of the other one.",
                "loss_generator = adversarial(discriminator(fake), real_label)  # not fake.detach()",
            ),
            step=0,
            failure="term that is not minimised",
            at=one.place,
            doing="the loss is differentiated",
        )
    return None


def _numbers(case: Case) -> Finding | None:
    """Weigh the terms that never had a graph."""
    fact = case.run.known(TermsFact)
    terms = fact.terms if fact is not None else ()
    dry = [one for one in terms if not one.graph and one.read >= READINGS and one.changes >= CHANGES and _moves(one)]
    trained = [one for one in terms if one.graph]
    if not dry:
        return None
    one = max(dry, key=lambda each: (bool(LOSSY.search(each.name)), each.read))
    weigh = Weighing()
    low, high = number(one.low or 0.0), number(one.high or 0.0)
    weigh.speaks(
        f"{one.name}, which is added to the loss, had no graph in any of {one.read:,} readings, and values from {low} "
        f"to {high}",
        3.6, one.graph, one.read,
    )  # fmt: skip
    if trained:
        weigh.speaks(f"{listing([each.name for each in trained])}, added beside it, had one", 0.4, len(trained))
    if LOSSY.search(one.name):
        weigh.speaks("by its name it is to be minimised", 0.8, one.name)
    if MEANT.search(one.name):
        weigh.against("by its name it has no parameters", 4.0, one.name)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.7)
    return weigh.conclude(
        f"a term of the loss without a gradient: {one.name} is added as a number, and nothing makes it smaller",
        Remedy(
            f"Compute {one.name} from the model's output with operations that have a gradient: no argmax, comparison, "
            "rounding, numpy, item() or detach() on the way.",
            "probability = torch.sigmoid(output)  # not (output > 0).float()",
        ),
        step=0,
        failure="term that is not minimised",
        at=one.place,
        doing="the loss is differentiated",
    )


def _moves(one: NamedTerm) -> bool:
    """Return True if a term's values differ by more than rounding."""
    if one.low is None or one.high is None:
        return False
    return one.high - one.low > 1e-6 * max(abs(one.low), abs(one.high))


CAUSE = Cause(
    module=__name__,
    title="Term of the loss without a gradient",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="loss",
)
