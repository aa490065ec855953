"""The averaged copy of the model is not what it should be: never updated, or not averaged.

What it is
    A slowly moving average of the weights (EMA, SWA, ``torch.optim.swa_utils.AveragedModel``) is often evaluated in
    place of the trained model. It must be updated after each step or epoch. Without the update, or with a decay of 1,
    it keeps the initial weights; with a decay of 0 it is the trained model itself. The batch norm statistics of an
    averaged model are not averaged with the weights: they have to be computed for it (``update_bn``).

Symptoms
    Training goes well and validation, done with the copy, stays at the level of an untrained model, or shows no
    difference between copy and model.

Evidence
    When the copy is evaluated, some of its weights are compared bit by bit with those of the trained model, then and
    at the first step, and with its own at the evaluation before; writes to it that leave it where it began are seen
    too. It is a fault for an ``AveragedModel`` or a copy that is called an average. A target network that is still as
    it began when a run of hundreds of steps is over is likely one. Fixed teachers, reference models and best
    checkpoints are copies too and may well stay as they are: they are not named.

What to do
    Call the update after each optimizer step, with a decay between 0 and 1, and ``update_bn`` before evaluating a copy
    with batch norm.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.edits import after
from neuraldbg.explain.evidence.wording import listing, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.copies import CopiesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

AVERAGE = re.compile(
    r"(^|[._])(ema|swa|avg)([._\d]|$)|averag|shadow|polyak|moving|ema_?model|model_?ema", re.IGNORECASE
)
"""Pattern of the names of copies that are averages."""
FOLLOWER = re.compile(r"target|teacher|momentum", re.IGNORECASE)
"""Pattern of the names of copies that may be averages, or fixed."""
TARGET = re.compile(r"target|tgt|momentum|_k$|key_enc", re.IGNORECASE)
"""Pattern of the names of copies that compute targets (values or codes) for a training."""
WHOLE = 300
"""Steps of a finished run in which a copy that computes targets should have been updated."""
TWICE = 2
MANY = 5
LATE = 20
"""Steps after which even an average with a decay of 0.99999 has moved further than NOWHERE."""
NOWHERE = 1e-5
"""Largest distance of the copy from the first weights, relative to the trained model's; rounding alone gives 1e-6."""


def judge(case: Case) -> Finding | None:
    """Weigh every copy that was evaluated; return the clearest finding."""
    over = case.run.info.outcome.kind == "completed"
    found = [finding for copy in case.run.known_each(CopiesFact) if (finding := _weigh(copy, over=over)) is not None]
    return max(found, key=lambda finding: finding.log_odds) if found else None


def _weigh(copy: CopiesFact, *, over: bool) -> Finding | None:
    if not copy.moved or not copy.evaluated:
        return None
    names = [copy.model, *copy.names]
    average = copy.kind == "AveragedModel" or any(AVERAGE.search(name) for name in names)
    if copy.swapped:
        return _first_weights(copy)
    if copy.stale_norms and _keeps_moving(copy):
        return _stale_norms(copy)  # under any name: new weights with statistics of no batch are never meant
    if _without_effect(copy):
        return _in_vain(copy)  # an update that changes nothing is never meant either
    if not (average or any(FOLLOWER.search(name) for name in names)):
        return None
    if copy.averaged == 0 or (copy.constant and copy.began_equal):
        return _never_updated(copy, average=average, over=over)
    if average and copy.follows and copy.evaluated > TWICE and (copy.averaged or 3) > TWICE:
        return _no_average(copy)
    if average and copy.stale_norms:
        return _stale_norms(copy)
    return None


def _never_updated(copy: CopiesFact, *, average: bool, over: bool) -> Finding | None:
    # Weights that stayed bitwise the first ones are a fact; if the copy is an average is known only from its names.
    weigh = Weighing()
    names, times = (copy.model, *copy.names), plural(copy.evaluated, "time")
    if copy.averaged == 0:
        weigh.speaks(f"its counter n_averaged is 0, and it was evaluated {times}", 4.0, 0)
    if copy.constant and copy.began_equal:
        more = 1.0 if copy.evaluated >= TWICE else 0.0
        weigh.speaks(
            f"whenever it was evaluated ({times}, last before step {copy.last}), its weights were bitwise those "
            f"with which {copy.of!r} began, while {copy.of!r} itself has moved",
            4.0 + more, copy.evaluated,
        )  # fmt: skip
    if average:
        weigh.speaks("it is an average by its type or name", 0.7, copy.model)
    elif over and copy.last - copy.first >= WHOLE and any(TARGET.search(name) for name in names):
        weigh.against(
            f"it may be a fixed copy on purpose, though targets are renewed within {copy.last} steps as a rule", 1.5,
            copy.last - copy.first, WHOLE,
        )  # fmt: skip
    else:
        weigh.against("it may be a fixed copy on purpose, or be updated only now and then", 3.5)
    if copy.stale_norms and not average and copy.evaluated >= MANY:
        weigh.speaks(
            f"{listing(copy.stale_norms)} of it never saw a batch: it is a copy of an untrained model", 2.7,
            len(copy.stale_norms), 0,
        )  # fmt: skip
    return weigh.conclude(
        f"an averaged copy that is never updated: {_variable(copy)!r} still has the initial weights",
        Remedy(
            f"Update {_variable(copy)!r} after each optimizer step, with a decay below 1.",
            f"optimizer.step()\n{_update(copy)}",
            (after("step", _update(copy)),),
        ),
        step=copy.first,
        failure="evaluation of untrained weights",
    )


def _keeps_moving(copy: CopiesFact) -> bool:
    """Return True if the copy's weights follow the trained ones between evaluations without being equal to them."""
    written = max(copy.written, copy.refreshed)
    return copy.evaluated > TWICE and written >= TWICE and not copy.constant and not copy.follows


def _without_effect(copy: CopiesFact) -> bool:
    """Return True if the copy is updated many times and its weights stay at the first weights of the training."""
    tried = max(copy.written, copy.refreshed)
    return tried >= MANY and copy.last >= LATE and copy.lag is not None and copy.lag < NOWHERE


def _in_vain(copy: CopiesFact) -> Finding:
    weigh = Weighing()
    tried = "its weights were written to" if copy.written >= MANY else "its running statistics were renewed"
    weigh.speaks(
        f"{tried} before {max(copy.written, copy.refreshed)} of {copy.evaluated} evaluations that were looked "
        f"at, and its weights are still those with which {copy.of!r} began, or a multiple of them",
        5.5, copy.lag, NOWHERE,
    )  # fmt: skip
    return weigh.conclude(
        f"an averaged copy whose update has no effect: {_variable(copy)!r} never gets away from the initial weights",
        Remedy(
            f"Write the result of the average into the weights of {_variable(copy)!r}, in place, and mind which model "
            "each factor multiplies.",
            f"optimizer.step()\n{_update(copy)}",
            (after("step", _update(copy)),),
        ),
        step=copy.first,
        failure="evaluation of untrained weights",
    )


def _first_weights(copy: CopiesFact) -> Finding | None:
    if copy.evaluated < TWICE or not (copy.constant and copy.began_equal):
        return None
    weigh = Weighing()
    weigh.speaks(
        f"in all {copy.evaluated} evaluations the weights of {copy.model!r} were bitwise those of step 0, though "
        "they move in training: they are exchanged for the evaluation",
        5.2, copy.evaluated,
    )  # fmt: skip
    if copy.unseen:
        weigh.against(f"later evaluations than that before step {copy.last} may not have been seen", 2.0)
    return weigh.conclude(
        "averaged weights that are never updated: the model is evaluated with its initial ones",
        Remedy(
            "Update the average after each optimizer step, with a decay below 1.", f"optimizer.step()\n{_update(copy)}"
        ),
        step=copy.first,
        failure="evaluation of untrained weights",
    )


def _no_average(copy: CopiesFact) -> Finding:
    weigh = Weighing()
    weigh.speaks(
        f"in all {copy.evaluated} evaluations its weights were bitwise those of {copy.of!r}: nothing is averaged",
        4.6, copy.evaluated,
    )  # fmt: skip
    if copy.apart:
        weigh.against("later evaluations were not seen, and in the end its weights are others", 3.0)
    return weigh.conclude(
        f"an averaged copy that is no average: {_variable(copy)!r} is overwritten with the newest weights each time",
        Remedy(
            "Use a decay between 0.9 and 0.9999, and mind which of the two weights it multiplies.",
            f"optimizer.step()\n{_update(copy)}",
        ),
        step=copy.first,
        failure="averaging without effect",
    )


def _stale_norms(copy: CopiesFact) -> Finding:
    weigh = Weighing()
    weigh.speaks(
        f"{listing(copy.stale_norms)} of it never saw a batch (num_batches_tracked is 0)",
        5.0, len(copy.stale_norms), 0,
    )  # fmt: skip
    return weigh.conclude(
        f"an averaged copy without batch norm statistics: {_variable(copy)!r} is evaluated with means of 0 and "
        "variances of 1",
        Remedy(
            "Compute the statistics for the averaged weights before evaluating them, or average the buffers too.",
            f"torch.optim.swa_utils.update_bn(train_loader, {_variable(copy)})",
        ),
        step=copy.first,
        failure="evaluation with wrong statistics",
    )


def _variable(copy: CopiesFact) -> str:
    if copy.swapped:
        return "ema_model"
    names = [name for name in (*copy.names, copy.model) if name.replace(".", "").isidentifier()]
    return next((name for name in names if AVERAGE.search(name)), names[0] if names else "ema_model")


def _update(copy: CopiesFact) -> str:
    name = _variable(copy)
    if copy.kind == "AveragedModel":
        return f"{name}.update_parameters(model)"
    return (
        "with torch.no_grad():\n"
        f"    for averaged, p in zip({name}.parameters(), model.parameters()):\n"
        "        averaged.lerp_(p, 1 - 0.999)"
    )


CAUSE = Cause(
    module=__name__,
    title="Averaged copy of the model never updated",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    place="evaluation",
    page=__doc__ or "",
)
