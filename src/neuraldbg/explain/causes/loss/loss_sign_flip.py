"""The loss is maximised: a minus too many, or one too few.

What it is
    ``backward`` and ``step`` make the number smaller that they are given. If a cross entropy or a squared error
    enters with a minus (or a log-likelihood without one, or the optimizer is set to maximise), the model learns to
    be wrong.

Symptoms
    The loss falls below zero and on without end, faster and faster, and accuracy falls below chance.

Evidence
    The sign is read along the graph, from the number given to ``backward`` to the term: two minus signs cancel, as in
    a written-out lower bound. A minus is meant where a generator works against a critic, where a perturbation of the
    input is trained and not the model, and in policy gradients, whose weights have both signs. So it is named only if
    the whole loss is one negated term that compares the model with its targets, one optimizer trains it, and the fit
    gets worse. The divergence of a variational autoencoder is known by its form and may stand beside other terms:
    with the wrong sign it has no lower bound. A policy gradient is known by its form, too; whether its weights are
    rewards or costs only the names in the program tell, so that it is named where they speak of rewards alone.

What to do
    Take the minus away, or write it where it is missing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import arguments, before
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.change_points import sign_turn
from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.explain.evidence.late_changes import began, weigh_change
from neuraldbg.explain.evidence.wording import literal, number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.loss import LossFact, LossTerm
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.change_points import ChangePoint
    from neuraldbg.explain.finding import Finding

WORSE = 1.5
"""Least factor by which the loss must grow to show that the fit gets worse."""
REWARDS = re.compile(r"\brewards?\b|\badvantages?\b|\badvs?\b|_rewards?\b|\breturns_?\w+|\bdiscounted_\w+")
COSTS = re.compile(r"\bcosts?\b|regret|_costs?\b", re.IGNORECASE)
"""Names of what an agent seeks, and of what it avoids."""
TURNED_ROUND = re.compile(r"[=(,*]\s*-\s*[\w.\[\]]*(adv|reward|return)", re.IGNORECASE)
"""A minus in front of such a name: then the weight itself is turned, and not the product."""
FEW = 5
TURNED = 2
"""Readings of a loss with the other sign, to the end of the run, that show that it was turned if nothing else does."""


def judge(case: Case) -> Finding | None:
    """Weigh the sign of the only term, or of a divergence beside others."""
    return _only_term(case) or _divergence(case) or _policy(case)


def _policy(case: Case) -> Finding | None:
    """Weigh a policy whose loss grows with the log-probability of actions that are rewarded, by the names of the
    weights.
    """
    signs = [loss.policy for _, loss in case.run.versions(LossFact) if loss.policy is not None]
    if not signs or any(sign != 1 for sign in signs) or len(case.loss) < FEW:
        return None  # a fact is logged again when it changes
    fact = case.run.known(PlacesFact)
    places = fact.lines if fact is not None else {}
    texts = [
        line.text for kind, lines in places.items() if kind == "loss" or kind.startswith("code ") for line in lines
    ]
    code = "\n".join(texts)
    if not REWARDS.search(code) or COSTS.search(code) or TURNED_ROUND.search(code):
        return None
    weigh = Weighing()
    weigh.speaks(
        "the loss grows with the log-probability of an action times its weight: actions with a large weight become "
        "less likely", 2.5, "plus", "minus",
    )  # fmt: skip
    weigh.speaks(f"by its names the program knows rewards ({REWARDS.findall(code)[0]}), and no costs", 2.0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        "a policy gradient with the wrong sign: actions that are rewarded become less likely",
        Remedy("Write the minus of the policy gradient.", "loss = -(log_prob * advantage).mean()"),
        step=0,
        failure="reward that falls",
        tier=Tier.SPECIFIC,
    )


def _divergence(case: Case) -> Finding | None:
    """Weigh the divergence of a variational autoencoder that is maximised instead of minimised."""
    signs = [loss.gaussian_kl for _, loss in case.run.versions(LossFact)]
    values = case.loss.finite.values
    if not signs or any(sign != -1 for sign in signs) or not case.alone or len(values) < FEW:
        return None
    weigh, last = Weighing(), case.loss.last
    weigh.speaks(
        "the divergence 1 + s - m**2 - exp(s) of a variational autoencoder enters with a plus, so that it has no lower "
        "bound", 5.0, "plus", "minus",
    )  # fmt: skip
    if last < min(0.0, case.loss.initial) or len(values) < len(case.loss.series):
        said = f"the loss fell from {number(case.loss.initial)} to {case.loss.ending}, below zero"
        weigh.speaks(said, 2.0, last, 0.0)
    else:
        weigh.against(f"the loss stays above zero: {case.loss.ending}", 2.0, last, 0.0)
    return weigh.conclude(
        "a Kullback-Leibler divergence that is maximised: its sign is the wrong way round",
        Remedy("Give the divergence its minus: it is -0.5 times the sum.",
               "kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())"),
        step=0, failure="loss that falls without end",
    )  # fmt: skip


def _only_term(case: Case) -> Finding | None:
    """Weigh the sign of the only term of the loss."""
    if len(case.terms) != 1 or not case.alone or (case.optimizer is not None and case.optimizer.owned == 0):
        return None
    term, slots = case.terms[0], targets.slots(case)
    # A loss that falls without end may break hundreds of steps after its sign was turned, or never.
    change = case.change("sign", "maximize") or _far_back(case)
    if change is not None and _turned(case, change):  # passes of two kinds, one after the other
        return _late(case, term, change)
    if any(not slot.single or not slot.alone for slot in slots):
        return None
    # A term that is minimised in some readings, as where steps alternate, is negated on purpose.
    signs = {t.sign for _, t in targets.readings(case)}
    maximised = any(slot.maximised for slot in slots)
    if signs != ({1} if maximised else {-1}):
        return None
    return _weigh(case, term, maximised)


def _far_back(case: Case) -> ChangePoint | None:
    """Return a turn of the loss's sign whenever it was, if the fit got worse since and no failure began before it."""
    change = sign_turn(case)
    if change is None or (case.onset is not None and case.onset < change.since):
        return None
    before = case.loss.finite.between(0, change.since).values[-case.loss.window :]
    worse = len(before) and -case.loss.last > float(np.median(before)) + case.loss.noise
    return change if worse or case.trouble.broke else None


def _turned(case: Case, change: ChangePoint) -> bool:
    """Return True if the misfit was minimised in all readings before a change, and maximised in all from it on."""
    if change.what == "maximize":
        return change.after > change.before
    signs = [(step, t.sign) for step, t in targets.readings(case)]
    after = sum(step > change.since for step, _ in signs)
    return after >= (1 if case.trouble.any else TURNED) and all(
        sign == (1 if step <= change.since else -1) for step, sign in signs
    )


def _late(case: Case, term: LossTerm, change: ChangePoint) -> Finding:
    """Weigh a sign that turned round during a training that went well."""
    weigh = Weighing()
    if case.onset is not None:
        weigh_change(case, weigh, change, 5.0)
    else:
        weigh.speaks(f"{change.said}; since then the loss ends at {case.loss.ending}", 5.0, case.loss.last)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    by = " by the optimizer" if change.what == "maximize" else ""
    return weigh.conclude(
        f"a loss ({term.kind}) that is maximised{by}: {change.said}",
        Remedy("Minimise the loss all the time: look for what turns its sign round.", "loss = abs(weight) * loss"),
        layer=term.layer,
        step=began(case, change),
        since=change.since,
        failure="growing misfit",
    )


def _weigh(case: Case, term: LossTerm, maximised: bool) -> Finding | None:
    values = case.loss.finite.values
    if len(values) < FEW:
        return None
    kind, weigh, initial, last = term.kind, Weighing(), case.loss.initial, case.loss.last
    direction = 1.0 if maximised else -1.0
    if maximised:
        weigh.speaks("the optimizer has maximize=True, and the loss grows with the misfit", 4.0, "maximize")
    elif term.picked:
        weigh.speaks("the log-probability of the right class is minimised: the minus of the likelihood is missing", 3.5,
                     "log-likelihood")  # fmt: skip
    else:
        weigh.speaks(f"the only term of the loss ({kind}) enters with a minus", 4.0, "minus")
    # A wrong sign makes the fit worse; a fit that stays or improves contradicts it.
    grown = direction * last - direction * initial
    scale = max(abs(initial), 1e-12)
    change = f"the loss went from {number(initial)} to {case.loss.ending}"
    if grown > (WORSE - 1) * scale or len(values) < len(case.loss.series):
        weigh.speaks(f"the misfit grows: {change}", 3.0, last, initial)
    elif grown < 0.05 * scale:
        weigh.against(f"the fit did not get worse: {change}", 4.0, last)
    else:
        weigh.speaks(change, 0.5, last, initial)
    # Unlearning maximises a loss on purpose, and begins with a trained model.
    guess = guessing_loss(case)
    if abs(initial) < 0.5 * guess:
        weigh.against(
            "the model was good at the task before, as where it is made to forget on purpose", 3.0, initial, guess
        )
    if maximised:
        made = f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(), lr={literal(case.lr)})"
        code = f"{made}  # without maximize=True"
        remedy = Remedy("Minimise the loss: leave out maximize=True.", code, (arguments("maximize=False"),))
    else:
        code = "loss = -loss  # or leave out the minus where the loss is written"
        remedy = Remedy("Minimise the loss: take the minus away.", code, (before("backward", "loss = -loss"),))
    return weigh.conclude(
        f"a loss ({kind}) that is maximised" + (" by the optimizer" if maximised else ""),
        remedy,
        layer=term.layer,
        step=0,
        failure="growing misfit",
    )


CAUSE = Cause(
    module=__name__,
    title="Loss is maximised",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
