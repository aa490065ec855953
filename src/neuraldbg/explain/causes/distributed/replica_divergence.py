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
"""Steps with equal gradients from which on it is known that they are averaged, and steps with different learning rates
from which on ranks are trained differently."""
SKIPPED = 0.95
"""Share of the most steps of a rank below which another one skips steps."""


def judge(case: Case) -> Finding | None:
    """Weigh weights that are no longer equal on all ranks, by their gradients and settings."""
    job = case.job
    if job is None:
        return None
    weights = job.difference("weights")
    if weights is None:
        return _never_equal(job) or _other_rates(job)
    weigh = Weighing()
    since = f"at step {weights.since} all were equal" if weights.since is not None else "they began equal"
    weigh.speaks(
        f"weights of {len(weights.names)} of {plural(weights.count, 'parameter')} differ between the ranks at step "
        f"{weights.step}, later by up to {percent(weights.size)} of their norm; {since}",
        6.0, weights.size,
    )  # fmt: skip
    why, remedy, code = _reason(job, weights, weigh)
    return weigh.conclude(
        f"replicas that drift apart: {why}",
        Remedy(remedy, code),
        step=max(0, weights.step - 1) if weights.since == weights.step - 1 else weights.step,
        since=weights.since,
        failure="replicas that differ",
        layer=_layer(weights),
        ranks=weights.ranks if len(weights.ranks) == 1 else (),
    )


def _reason(job: Ranks, weights: Difference, weigh: Weighing) -> tuple[str, str, str]:
    """Weigh what makes them drift: skipped steps, learning rates, weights that somebody wrote to, gradients that are
    not averaged. Averaged gradients stay equal, though the weights do not. Return it in words, with the remedy.
    """
    steps = {rank: run.steps for rank, run in job.runs.items()}
    fewer = min(steps, key=lambda rank: steps[rank])
    completed = all(run.info.outcome.kind == "completed" for run in job.runs.values())
    if completed and steps[fewer] < SKIPPED * max(steps.values()):
        weigh.speaks(f"rank {fewer} made {steps[fewer]} optimizer steps, another one {max(steps.values())}", 3.0)
        return (
            f"rank {fewer} skips steps of its optimizer ({steps[fewer]} of {max(steps.values())})",
            "Step on all ranks or on none: decide by a number that is the same on all, such as a reduced one.",
            "",
        )
    if job.rates_differ(weights.step):
        return (f"the learning rate differs: {_rates(job, weights.step, weigh)}", *_SAME_RATES)
    for rank in weights.ranks if len(weights.ranks) == 1 else job.runs:
        change = next((one for _, one in job.runs[rank].versions(ChangeFact, what="weights")), None)
        if change is not None and (weights.since or 0) <= change.until <= weights.step:
            weigh.speaks(f"on rank {rank} something that is no optimizer changed weights at step {change.until}", 3.0)
            return (
                f"something that is no optimizer changed weights of rank {rank} at step {change.until}",
                f"Find the code that writes to weights on rank {rank} alone, and do the same on all ranks.",
                "",
            )
    count, total, scaled = job.gradients_after(weights.since or 0)
    if scaled is not None:
        rank, factor = scaled
        weigh.speaks(
            f"the gradients of rank {rank} are those of the others times {number(factor)}: it alone scales them",
            3.0,
            factor,
        )
        return (
            f"rank {rank} alone clips or scales its gradients",
            "Do the same to the gradients on all ranks, by a norm that is the same on all.",
            "",
        )
    if count:
        return _not_averaged(job, weigh, count, total)
    weigh.speaks(f"the gradients are equal in all {total} steps compared: the update itself differs", 1.0)
    return (
        "the update differs, though gradients and learning rates do not",
        (
            "Look for what one rank alone does between backward pass and step: another optimizer, another state that "
            "was loaded, weights that are written to."
        ),
        "",
    )


def _not_averaged(job: Ranks, weigh: Weighing, count: int, total: int) -> tuple[str, str, str]:
    """Weigh gradients that differ although those that are averaged never do."""
    said = f"gradients differ between the ranks in {count} of {plural(total, 'step')} compared since then"
    weigh.speaks(f"{said}: they are not averaged", 3.0, count)
    if {wrapper for place in job.places.values() for wrapper in place.wrappers.values()} == {""}:
        weigh.speaks("the model is called without a wrapper for data parallelism", 1.0)
        return (
            "gradients are not averaged, for the model is called without a wrapper",
            "Call the wrapper in each training step, not the module inside of it.",
            "model = DistributedDataParallel(model)\nout = model(x)  # not model.module(x)",
        )
    return (
        "gradients are not averaged",
        (
            "Make the last backward pass before each step one that synchronises: outside of no_sync(), through the "
            "wrapper, with no hook that takes its place."
        ),
        "",
    )


_SAME_RATES = (
    "Give all ranks the same learning rate: a schedule must not hang on what one rank alone measures.",
    "",
)


def _rates(job: Ranks, step: int, weigh: Weighing) -> str:
    """Weigh learning rates that differ at a step, or before it. Return them in words."""
    before = job.rates(step - 1)
    rates = before if len(set(before.values())) > 1 else job.rates(step)
    told = ", ".join(f"{number(rate)} on rank {rank}" for rank, rate in list(rates.items())[:4])
    weigh.speaks(f"the learning rate is {told}", 3.0)
    return told


def _other_rates(job: Ranks) -> Finding | None:
    """Weigh learning rates that differ between ranks of which each holds a part of the model: no weights tell there."""
    steps = [step for stream, ranks in job.replicas for step in job.steps(stream, ranks)]
    apart = [step for step in steps if len(set(job.rates(step).values())) > 1]
    if not job.data_parallel or len(apart) < FEW:
        return None
    weigh = Weighing()
    told = _rates(job, apart[0], weigh)
    weigh.speaks(f"it differs in {len(apart)} of {plural(len(steps), 'step')} compared", 3.0, len(apart), FEW)
    return weigh.conclude(
        f"parts of one model that are trained differently: the learning rate differs: {told}",
        Remedy(*_SAME_RATES),
        step=apart[0],
        failure="parts that are trained differently",
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
    place="step",
    page=__doc__ or "",
)
