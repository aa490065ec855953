"""The loss is maximised: a minus too many, or one too few.

What it is
    ``backward`` and ``step`` make the number smaller that they are given. If a cross entropy or a squared error
    enters with a minus (or a log-likelihood without one, or the optimizer is told to maximise), the model learns to
    be wrong.

How it shows
    The loss falls below zero and on without end, faster and faster, and accuracy falls below chance.

How it is told apart
    The sign is read along the graph, from the number given to ``backward`` to the term: two minus signs cancel, as
    in a written-out lower bound. A minus is meant where a generator works against a critic, where a perturbation of
    the input is trained and not the model, and in policy gradients, whose weights have both signs. So it is named
    only if the whole loss is one negated term that compares the model with its targets, one optimizer trains it, and
    the fit gets worse.

What to do
    Take the minus away, or write it where it is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.explain import targets
from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause, Tier
from neuraldbg.explain.finding import Weighing
from neuraldbg.explain.trouble import guessing_loss
from neuraldbg.explain.words import number
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.case import Case
    from neuraldbg.explain.finding import Finding

WORSE = 1.5
"""How many times the size of the loss must grow to show that the fit gets worse."""
FEW = 5


def judge(case: Case) -> Finding | None:
    """Weigh the sign of the only term."""
    if len(case.terms) != 1 or len(case.run.streams) > 1 or case.optimizer.get("owned") == 0:
        return None
    term, slots = case.terms[0], targets.slots(case)
    if any(not slot.get("single") or not slot.get("alone") for slot in slots):
        return None
    # A term that was ever minimised, as where steps alternate, is negated on purpose.
    signs = {t.get("sign", 0) for _, t in targets.readings(case)}
    maximised = any(slot.get("maximised") for slot in slots)
    if signs != ({1} if maximised else {-1}):
        return None
    return _weigh(case, term, maximised)


def _weigh(case: Case, term: dict[str, Any], maximised: bool) -> Finding | None:
    values = case.loss.finite.values
    if len(values) < FEW:
        return None
    kind, weigh, initial, last = str(term.get("kind")), Weighing(), case.loss.initial, case.loss.last
    direction = 1.0 if maximised else -1.0
    if maximised:
        weigh.speaks("the optimizer has maximize=True, and the loss grows with the misfit", 4.0, "maximize")
    elif term.get("picked"):
        weigh.speaks("the log-probability of the right class is minimised: the minus of the likelihood is missing", 3.5,
                     "log-likelihood")  # fmt: skip
    else:
        weigh.speaks(f"the only term of the loss ({kind}) enters with a minus", 4.0, "minus")
    grown = direction * last - direction * initial
    scale = max(abs(initial), 1e-12)
    if grown > (WORSE - 1) * scale or len(values) < len(case.loss.series):
        weigh.speaks(f"the misfit grows: the loss went from {number(initial)} to {number(last)}", 3.0, last, initial)
    elif grown < 0.05 * scale:
        weigh.against(f"the fit did not get worse: the loss went from {number(initial)} to {number(last)}", 4.0, last)
    else:
        weigh.speaks(f"the loss went from {number(initial)} to {number(last)}", 0.5, last, initial)
    guess = guessing_loss(case)
    if abs(initial) < 0.5 * guess:
        weigh.against(
            "the model was good at the task before, as where it is made to forget on purpose", 3.0, initial, guess
        )
    return weigh.conclude(
        f"a loss ({kind}) that is maximised" + (" by the optimizer" if maximised else ""),
        Remedy(
            "Minimise the misfit: leave out maximize=True." if maximised else "Give backward the misfit itself.",
            "optimizer = torch.optim." + f"{case.optimizer_name}(model.parameters())  # without maximize=True"
            if maximised
            else "loss = -loss  # or leave out the minus where the loss is written",
        ),
        layer=term.get("layer"),
        step=0,
        failure="growing misfit",
    )


CAUSE = Cause(
    id="loss_sign_flip",
    category="loss",
    title="the loss is maximised",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
