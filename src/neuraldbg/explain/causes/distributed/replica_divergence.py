"""The ranks train different models: their weights were equal and have drifted apart.

What it is
    Under data parallelism each rank holds a copy of the model, and the copies stay equal because all ranks begin with
    the same weights, average their gradients, and apply the same update. One of the three is broken: the model is
    called without its wrapper (``ddp.module(x)``), the wrapper never sees the backward pass (``no_sync`` left on, a
    hook that was replaced), weights were never broadcast, the learning rate or another setting differs, or one rank
    writes to its weights.

Symptoms
    Often none: each rank's loss falls. The model that is saved by rank 0 has learnt from a part of the data, the loss
    of the others means another model, and the effective batch is smaller than intended.

Evidence
    In the same steps each rank keeps fingerprints of its weights and gradients. Weights that were equal at the first
    of these steps differ at a later one, and at the last, by more than rounding. Gradients that differ while weights
    are still equal were not averaged; with equal gradients the update itself differs, and learning rates are
    compared. Parameters of which each rank holds a part are not compared, and neither are weights that differed from
    the start: each rank may train a model of its own. Weights that are averaged now and then are equal again.

What to do
    Call the wrapper, not the module inside; leave ``no_sync()`` for the last backward pass before a step; broadcast
    the weights once before the training; set optimizers up alike on all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.wording import number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.ranks import Difference, Ranks
    from neuraldbg.explain.finding import Finding

FEW = 2
"""Steps with equal gradients from which on it is known that they are averaged."""


def judge(case: Case) -> Finding | None:
    """Weigh weights that are no longer equal on all ranks, by their gradients and settings."""
    job = case.job
    if job is None:
        return None
    weights = job.difference("weights")
    if weights is None:
        return _never_equal(job)
    weigh = Weighing()
    since = f"at step {weights.since} all were equal" if weights.since is not None else "they began equal"
    weigh.speaks(
        f"weights of {len(weights.names)} of {plural(weights.count, 'parameter')} differ between the ranks at step "
        f"{weights.step}, later by up to {percent(weights.size)} of their norm; {since}",
        6.0, weights.size,
    )  # fmt: skip
    why, remedy, code, step = _reason(job, weights, weigh)
    where = f" on rank {weights.ranks[0]}" if len(weights.ranks) == 1 else ""
    return weigh.conclude(
        f"replicas that drift apart{where}: {why}",
        Remedy(remedy, code),
        step=step,
        since=weights.since if step == weights.step else None,
        failure="replicas that differ",
        layer=_layer(weights),
    )


def _reason(job: Ranks, weights: Difference, weigh: Weighing) -> tuple[str, str, str, int]:
    """Weigh what differs first: gradients, learning rates, or weights that somebody wrote to."""
    gradients = job.difference("gradients") or job.difference("gradients", always=True)
    if gradients is not None and gradients.step < weights.step:
        weigh.speaks(
            f"gradients of {len(gradients.names)} of {plural(gradients.count, 'parameter')} differ from step "
            f"{gradients.step} on, before the weights do: they are not averaged over the ranks",
            3.0, gradients.step, weights.step,
        )  # fmt: skip
        wrapped = {wrapper for place in job.places.values() for wrapper in place.wrappers.values()}
        if wrapped == {""}:
            weigh.speaks("the model is called without a wrapper for data parallelism", 1.0)
            return (
                f"gradients are not averaged from step {gradients.step} on: the model is called without its wrapper",
                "Call the wrapper in each training step, not the module inside of it.",
                "model = DistributedDataParallel(model)\nout = model(x)  # not model.module(x)",
                gradients.step,
            )
        return (
            f"gradients are not averaged from step {gradients.step} on",
            (
                "Make the last backward pass before each step one that synchronises: outside of no_sync(), through "
                "the wrapper, with no hook that takes its place."
            ),
            "",
            gradients.step,
        )
    if job.rates_differ(weights.step):
        before = job.rates(weights.step - 1)
        rates = before if len(set(before.values())) > 1 else job.rates(weights.step)
        told = ", ".join(f"{number(rate)} on rank {rank}" for rank, rate in rates.items())
        weigh.speaks(f"the gradients are equal, and the learning rate is {told}", 3.0)
        return (
            f"the learning rate differs: {told}",
            "Give all ranks the same learning rate: a schedule must not hang on what one rank alone measures.",
            "",
            weights.step,
        )
    for rank in weights.ranks if len(weights.ranks) == 1 else job.runs:
        change = next((one for _, one in job.runs[rank].versions(ChangeFact, what="weights")), None)
        if change is not None and change.until <= weights.step:
            weigh.speaks(f"on rank {rank} something that is no optimizer changed weights at step {change.until}", 3.0)
            return (
                f"something that is no optimizer changed weights of rank {rank} at step {change.until}",
                f"Find the code that writes to weights on rank {rank} alone, and do the same on all ranks.",
                "",
                change.until,
            )
    if gradients is None:
        weigh.speaks("the gradients are equal in all steps compared: the update itself differs", 1.0)
    return (
        "the update differs, though gradients and learning rates do not",
        (
            "Look for what one rank alone does between backward pass and step: clipping by its own norm, a skipped "
            "step, another optimizer, another state that was loaded."
        ),
        "",
        weights.step,
    )


def _never_equal(job: Ranks) -> Finding | None:
    """Weigh weights that never were equal while gradients are averaged: nobody sent them to all ranks."""
    weights = job.difference("weights", always=True)
    if weights is None or not job.averaged:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"weights of {len(weights.names)} parameters differ between the ranks from the first step on, by up to "
        f"{percent(weights.size)} of their norm",
        4.0, weights.size,
    )  # fmt: skip
    weigh.speaks("their gradients are equal on all ranks: they are averaged", 3.0, None, FEW)
    return weigh.conclude(
        "replicas that never were equal: gradients are averaged, and each rank began with weights of its own",
        Remedy(
            "Send the weights of rank 0 to all ranks before the training, as DistributedDataParallel does.",
            "for x in model.state_dict().values():\n    torch.distributed.broadcast(x, src=0)",
        ),
        step=weights.step,
        failure="replicas that differ",
    )


def _layer(weights: Difference) -> str | None:
    """Return the layer of the tensors that differ, where it is one."""
    layers = {name.rpartition(".")[0] for name in weights.names}
    return next(iter(layers)) or None if len(layers) == 1 else None


CAUSE = Cause(
    module=__name__,
    title="Replicas drift apart",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL,
    judge=judge,
    place="backward",
    page=__doc__ or "",
)
