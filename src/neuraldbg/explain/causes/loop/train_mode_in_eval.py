"""Validation runs in training mode: dropout is active and batch norm learns from the validation data.

What it is
    ``model.eval()`` was not called before the validation or test passes. ``torch.no_grad()`` switches off gradients and
    nothing else: dropout still drops, and batch norm normalises with the batch at hand and moves its running
    statistics towards it.

Symptoms
    Validation looks worse than it is (dropout), differs from run to run and with the batch size (batch norm), and the
    model has seen the statistics of the validation data.

Evidence
    Passes of a trained model without gradients, or with gradients and no backward, are counted between optimizer steps,
    with the mode of its dropout and batch-norm layers. A validation is several such passes now and then. Passes of that
    kind in every step belong to the training, several on the same input are Monte Carlo dropout, batch norm that
    averages over all batches (``momentum=None``) is being recalibrated, and programs that evaluate in evaluation mode
    elsewhere know what they do. None of these is a fault.
    Dropout can also be on for good: ``F.dropout(x, p)`` and ``dropout_p`` of attention ignore the mode. There
    a copy of the model in evaluation mode is called twice, and whoever draws is named with its line. Where the call
    says so (``training=True``) it is meant.

What to do
    ``model.eval()`` before the validation, ``model.train()`` after it; ``F.dropout(x, p, training=self.training)``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.inputs import agreed, batches, place
from neuraldbg.explain.evidence.metric_trends import BESIDE, held_out
from neuraldbg.explain.evidence.wording import listing, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.evaluation_modes import EvaluationModesFact
from neuraldbg.nouns.facts.experiment import EvalRandom

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

RARE = 0.5
"""Largest number of validations for one step; more of such passes are part of the training."""

_ALWAYS = re.compile(r"dropout\w*\(.*,true\b")
"""Pattern of ``F.dropout(x, p, True)``, where ``training`` is a positional argument."""


def judge(case: Case) -> Finding | None:
    """Weigh the evaluations of each trained model, then dropout that ignores the mode."""
    if len(case.run.streams) > 1:
        return None  # several optimizers: passes without gradients are part of the training of the others
    weighed = [_weigh(case, seen) for seen in case.run.known_each(EvaluationModesFact)]
    found = [finding for finding in weighed if finding is not None]
    return max(found, key=lambda finding: finding.log_odds) if found else _functional(case)


def _functional(case: Case) -> Finding | None:
    """Weigh dropout that ignores the mode, in a model that is evaluated in evaluation mode."""
    found = agreed(case, EvalRandom, lambda one: one.random)
    if found is None:
        return None
    # The copy shows that outputs are random in evaluation mode; the line must be a dropout that ignores the mode.
    draw = next((draw for draw in found.draws if _forgets_mode(draw.call)), None)
    bursts = sum(fact.bursts for fact in batches(case) if fact.model == found.model)
    if draw is None or bursts < 1:
        return None
    weigh = Weighing()
    weigh.speaks(
        "a copy of the model in evaluation mode gave another output for the same input, since a dropout that does not "
        f"depend on the mode draws random numbers{place(draw.where)}", 4.5, draw.call,
    )  # fmt: skip
    told = f"{plural(bursts, 'evaluation')}{case.counted} ran in evaluation mode, and values were dropped anyway"
    weigh.speaks(told, 1.0, bursts)
    attention = "scaled_dot_product" in draw.call
    return weigh.conclude(
        f"dropout that stays active in evaluation mode{place(draw.where)}",
        Remedy(
            "Let dropout ask for the mode.",
            "F.scaled_dot_product_attention(q, k, v, dropout_p=p if self.training else 0.0)"
            if attention
            else "F.dropout(x, p, training=self.training)",
        ),
        step=0,
        failure="unreliable validation",
        at=draw.where,
        doing="dropout is applied",
    )


def _forgets_mode(call: str) -> bool:
    """Return True if a statement applies dropout and mentions neither ``training`` nor a fixed True."""
    text = call.replace(" ", "").lower()
    return "dropout" in text and "training" not in text and not _ALWAYS.search(text)


def _weigh(case: Case, seen: EvaluationModesFact) -> Finding | None:
    weight = _strength(seen)
    layers = [*seen.norms, *seen.dropout]
    if weight == 0.0 or not layers:
        return None
    weigh = Weighing()
    kind = "with gradients and no backward" if seen.grad else "without gradients"
    weigh.speaks(
        f"{plural(seen.passes, 'pass')} {kind} in {plural(seen.train_bursts, 'evaluation')}{case.counted} ran "
        "in training mode".replace("passs", "passes"),
        weight, seen.train_bursts, 0,
    )  # fmt: skip
    # A program that also evaluates in evaluation mode knows the switch, so these passes may be intended.
    if seen.eval_bursts:
        weigh.against(
            f"{plural(seen.eval_bursts, 'evaluation')}{case.counted} ran in evaluation mode", 4.0, seen.eval_bursts
        )
    else:
        weigh.speaks("no evaluation ran in evaluation mode", 0.5, 0)
    if seen.norms:
        weigh.speaks(f"each of these passes moved the running statistics of {listing(seen.norms)}", 0.7)
    if seen.dropout:
        weigh.speaks(f"{listing(seen.dropout)} dropped values in them", 0.4)
    if trend := held_out(case.metric_trends):
        weigh.speaks(f"the logged {trend.phrase}, while the training loss fell", BESIDE)
    active = [word for word, names in (("batch norm", seen.norms), ("dropout", seen.dropout)) if names]
    return weigh.conclude(
        f"a validation in training mode: {' and '.join(active)} of {seen.model!r} "
        f"{'are' if len(active) > 1 else 'is'} active in it",
        Remedy(
            "Switch to evaluation mode before the validation, and back after it.",
            "model.eval()\nwith torch.no_grad():\n    for x, y in val_loader:\n        ...\nmodel.train()",
        ),
        step=seen.first,
        failure="unreliable validation",
    )


def _strength(seen: EvaluationModesFact) -> float:
    """Return the weight of the evidence that the passes are a validation; 0 if they may be something else."""
    if seen.repeated * 2 >= seen.passes and not seen.same:
        return 0.0  # Monte Carlo dropout
    rare = seen.train_bursts <= RARE * max(seen.steps, 1)
    if rare and seen.longest >= 2 and seen.train_bursts >= 2:
        return 5.0
    if rare and seen.longest >= 3:
        return 3.0
    if seen.train_bursts >= 3 and not seen.grad:
        if seen.same:
            return 4.4 if rare else 2.6
        return 2.8 if seen.train_bursts <= 0.3 * seen.steps else 0.0
    return 0.0


CAUSE = Cause(
    module=__name__,
    title="Evaluation in training mode",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    place="evaluation",
    page=__doc__ or "",
)
