"""A value is made for the training, or given to a function, and never used.

What it is
    A mask comes with the batch and is not applied; a term of the loss is computed and not added; the output of an
    activation gets a name, and the next layer is given its input; ``forward`` takes a mask and ignores it; the
    old log-probabilities of a policy are stored and computed again. The program does what is written, and not what is
    meant.

Symptoms
    Whatever the value was for does not happen. The rest trains, so that the curve of the loss shows little.

Evidence
    The source of the functions that a training step runs is read, without running it: names that are bound and never
    read again. By itself that is careless at most, so that only those are named that a training is meant to use by
    their kind: the output of a layer, a mask that ``forward`` is given, and by their names terms of a loss, masks,
    lengths and ends of episodes. Where a step of an environment returns the end of an episode the program may know it
    anyway, and a layer or a shape may return more than is needed. Linters warn of the same lines (F841, ARG002).

What to do
    Use the value where it was meant, or delete the line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.unused import UnusedFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.unused import UnusedValue

TERMS = re.compile(r"loss|^kl|kld|penalt|(^|_)reg(ular\w*)?$|^gp$|entropy|dice", re.IGNORECASE)
"""Names of terms of a loss."""
GIVEN = re.compile(
    r"mask|(^|_)b?dones?(_|$)|terminal|truncat|(^|_)lens?$|length|sample_weights?$|class_weights?$", re.IGNORECASE
)
"""Names of what comes with a batch to be applied to it."""
OLD = re.compile(r"(^|_)old(_|$)|behaviou?r|advantage|returns?$|^adv$", re.IGNORECASE)
"""Names of what an agent stores for its update."""
LAYER = re.compile(r"=\s*self\.\w+(\[[^]]*\])?\(")
"""An assignment of what a layer returns."""
ASIDE = re.compile(r"step\w*\(|reset\w*\(|rollout|\.shape|\.size\(|self\.|pad_packed|att\w*\(", re.IGNORECASE)
"""What returns more than is used as a rule: the step of an environment, a shape, a layer, attention."""
MADE = re.compile(r"=\s*\w+\(")
"""What a function of the program returns."""
SHOWN = 3


def judge(case: Case) -> Finding | None:
    """Weigh the values that a training is meant to use."""
    fact = case.run.known(UnusedFact)
    found = [(weight, said, one) for one in (fact.values if fact is not None else ()) for weight, said in _meant(one)]
    if not found:
        return None
    weight, said, worst = max(found, key=lambda each: each[0])
    weigh = Weighing()
    weigh.speaks(f"{worst.name} {said}, and {_where(worst)} never reads it", weight, worst.name)
    others = list(dict.fromkeys(one.name for _, _, one in found if one.name != worst.name))
    if others:
        weigh.speaks(f"so it is with {', '.join(others[:SHOWN])}", 0.3, len(others))
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.7)
    return weigh.conclude(
        f"a value that is never used: {worst.name} {said}",
        Remedy(f"Use {worst.name} where it was meant, or delete it.", ""),
        step=0,
        failure="something that does not happen",
        at=worst.place,
        doing="the value is made",
        tier=Tier.SPECIFIC,
    )


def _where(one: UnusedValue) -> str:
    return "the script" if one.function == "<module>" else f"{one.function}()"


def _meant(one: UnusedValue) -> list[tuple[float, str]]:
    """Return weight and reason of a value that a training is meant to use; [] for any other."""
    text = one.place.text
    if one.how == "parameter":
        return [(3.0, "is given to forward()")] if one.function == "forward" and GIVEN.search(one.name) else []
    if one.how == "assigned" and one.function != "<module>" and LAYER.search(text):
        return [(4.0, "is what a layer returns")]
    if one.how == "assigned" and TERMS.search(one.name) and "(" in text and not MADE.search(text):
        return [(3.0, "is by its name a term of the loss")]
    if one.how == "assigned" and OLD.search(one.name) and "(" in text:
        return [(2.7, "is by its name what an agent stores for its update")]
    if GIVEN.search(one.name) and not ASIDE.search(text):
        return [(2.7, "is by its name what a batch is to be used with")]
    return []


CAUSE = Cause(
    module=__name__,
    title="Value that is never used",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="",
)
