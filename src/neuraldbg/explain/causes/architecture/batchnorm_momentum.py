"""The running statistics of batch normalisation follow only the last batch, or never move.

What it is
    In PyTorch ``momentum`` is the share of the *new* batch in the running statistics, 0.1 by default. In Keras and many
    papers it is the share of the *old* ones, 0.99. A 0.99 carried over makes the running statistics those of the last
    batch; a momentum of 0 or nearly so leaves them at mean 0 and variance 1, where they began.

Symptoms
    Training looks normal, since batch norm uses the batch's own statistics there. In evaluation mode the model is much
    worse, or jumps from one evaluation to the next.

Evidence
    The number is read from the layers. Small momenta are right for long runs (EfficientNet uses 0.01, and None averages
    over all batches): what counts is how far the running statistics can have moved in the steps of this run. Layers
    in evaluation mode, and pretrained ones whose statistics are kept on purpose, do not count.

What to do
    ``momentum=0.1``, or one minus the number of the other library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.layer_facts import as_number, evaluated, late_gap, training_norms
from neuraldbg.explain.evidence.wording import listing, literal, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Reading
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.norms import NormLayer

LAST_ONLY = 0.8
"""Momentum from which one batch outweighs all earlier ones four to one; the default is 0.1."""
NEVER = 2e-4
"""Largest momentum with which nothing is averaged within an epoch; TensorFlow's 0.999 is 1e-3 here."""
MOVED = 0.05
"""Share of the distance from the initial to the true statistics, below which they have not moved."""
ENOUGH = 40
"""Steps after which running statistics should have moved."""
SMOOTH = 0.05
"""Distance of a batch's mean from the running one, in standard deviations, below which one batch is as good as all."""


def judge(case: Case) -> Finding | None:
    """Weigh the batch-norm layers with an extreme momentum, large ones first."""
    found = {layer: seen for layer, seen in training_norms(case).items() if seen[-1].of.tracking}
    fast = {path: seen for path, seen in found.items() if _momentum(seen) >= LAST_ONLY}
    if fast:
        return _weigh_fast(case, fast)
    steps = case.run.steps or len(case.history)
    slow = {
        path: seen for path, seen in found.items()
        if _momentum(seen) <= NEVER and seen[0].of.fresh and 1 - (1 - _momentum(seen)) ** steps < MOVED
    }  # fmt: skip
    return _weigh_slow(case, slow, steps) if slow and steps >= ENOUGH else None


def _momentum(seen: list[Reading[NormLayer]]) -> float:
    """Return the newest momentum; NaN if all batches are averaged."""
    return as_number(seen[-1].of.momentum)


def _weigh_fast(case: Case, fast: dict[str, list[Reading[NormLayer]]]) -> Finding:
    layer = min(fast, key=case.depth)
    momentum = _momentum(fast[layer])
    weigh = Weighing()
    weigh.speaks(
        f"{called(layer)} has a momentum of {number(momentum)}: its running statistics are {percent(momentum)} those "
        "of the last batch", 4.5 if momentum >= 0.95 else 3.7, momentum, LAST_ONLY,
    )  # fmt: skip
    gap = late_gap(fast[layer], 1)
    if gap > 2 * SMOOTH:
        weigh.speaks(f"from batch to batch the mean moves by {number(gap)} standard deviations", 0.7, gap, 2 * SMOOTH)
    elif gap < SMOOTH:
        weigh.against("the batches are so large that one is as good as all", 1.0, gap, SMOOTH)
    _weigh_use(case, weigh)
    return weigh.conclude(
        f"a batch-norm momentum of {number(momentum)} in {listing(list(fast))}, which in PyTorch is the weight of the "
        "new batch",
        _remedy(list(fast), 1 - momentum if momentum < 1 else 0.1),
        layer=layer,
        step=0,
        failure="evaluation with statistics of one batch",
    )


def _weigh_slow(case: Case, slow: dict[str, list[Reading[NormLayer]]], steps: int) -> Finding:
    layer = min(slow, key=case.depth)
    momentum = _momentum(slow[layer])
    weigh = Weighing()
    share = 1 - (1 - momentum) ** steps
    weigh.speaks(
        f"with a momentum of {literal(momentum)} the running statistics of {called(layer)} have gone {percent(share)} "
        f"of the way from their initial values in {steps} steps", 5.0, momentum, NEVER,
    )  # fmt: skip
    _weigh_use(case, weigh)
    return weigh.conclude(
        f"a batch-norm momentum of {literal(momentum)} in {listing(list(slow))}: running statistics stay as they began",
        _remedy(list(slow), 0.1),
        layer=layer,
        step=0,
        failure="evaluation with initial statistics",
    )


def _weigh_use(case: Case, weigh: Weighing) -> None:
    if evaluated(case):
        weigh.speaks("the program evaluates, which uses the running statistics", 1.2)
    else:
        weigh.against("no evaluation was seen that would use the running statistics", 0.7)


def _remedy(layers: list[str], momentum: float) -> Remedy:
    value = literal(min(0.1, max(0.01, round(momentum, 3))))
    code = (
        "for module in model.modules():\n    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):\n"
        f"        module.momentum = {value}"
    )
    return Remedy(
        f"Set the momentum of {listing(layers)} to {value}: in PyTorch it is the weight of the new batch.",
        code,
        (once_made(code),),
    )


CAUSE = Cause(
    module=__name__,
    title="Batch norm momentum too high or too low",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    page=__doc__ or "",
)
