"""A batch is too small for a statistic that is taken over it.

What it is
    Batch norm in training mode, a standard deviation, or a loss that compares samples with each other needs at least
    two samples. The last batch of an epoch holds what is left over, and that can be one.

Symptoms
    Everything runs until the end of the first epoch. Then the script stops with "Expected more than 1 value per
    channel when training", or the loss becomes NaN in exactly that step: the unbiased standard deviation of one value
    is 0 / 0.

Evidence
    The size of each batch is read. It is the cause when the first non-finite value appears inside the model or its
    loss in a step whose batch has one sample, while others have more; or when batch norm says so itself. A bad sample
    would be non-finite or extreme in some places before the model sees it; where all of its values are NaN and it is
    alone in its batch, the batch was standardised by itself.

What to do
    ``DataLoader(..., drop_last=True)`` for training, or a batch size that divides the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, UNITS, Cause
from neuraldbg.explain.evidence.depth_profiles import is_norm
from neuraldbg.explain.evidence.inputs import batches, birth, place
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

RAISED = "Expected more than 1 value per channel when training"
"""Error message of torch's batch norm (torch.nn.functional._verify_batch_size)."""
SPREADS = ("std", "var", "stdmean", "varmean", "nativebatchnorm", "cudnnbatchnorm")
"""Operations that need more than one value."""


def judge(case: Case) -> Finding | None:
    """Weigh an error of batch norm, or a NaN in a step with one sample."""
    if RAISED in case.run.info.outcome.message:
        return _refused(case)
    return _undefined(case)


def _refused(case: Case) -> Finding | None:
    weigh, steps = Weighing(), case.run.steps or len(case.history)
    sizes = {fact.usual for fact in batches(case)}
    odd = [(step, size) for fact in batches(case) for step, size in fact.odd if size == 1]
    weigh.speaks("batch norm in training mode refused a batch with one value per channel", 7.0, RAISED)
    if odd:
        weigh.speaks(f"the batch of step {odd[-1][0]} has 1 sample", 1.0, 1, 2)
    usual = max(sizes, default=0)
    said = f", usual is {usual}" if usual > 1 else ""
    norms = [layer.path for layer in case.ordered if layer.type.startswith("BatchNorm")]
    return weigh.conclude(
        f"one sample in the batch of step {odd[-1][0] if odd else steps}{said}: batch norm needs two",
        _remedy(usual),
        layer=norms[0] if len(norms) == 1 else None,
        step=odd[-1][0] if odd else steps,
        failure=case.trouble.name or "crash in batch norm",
    )


def _undefined(case: Case) -> Finding | None:
    origin = case.origin
    if origin is None:
        return None
    given = birth(case, "input") if origin.has("input") else None
    if origin.has("input") and (given is None or given.share != 1.0):
        return None  # a missing value spoils some cells of a sample; 0 / 0 of a single sample spoils them all
    # The batch must be the odd one: a run of single samples has other reasons.
    size = case.run.scalar("batch_size")
    here = size.at(origin.step)
    if not origin.read:  # a light step has no batch size, but the BATCHES fact may have it
        odd = (pair for fact in batches(case) for pair in fact.odd)
        here = next((float(n) for step, n in odd if step == origin.step), here)
    others = size.values[size.steps != origin.step]
    if here != 1 or not len(others) or float(others.max()) < 2:
        return None
    weigh, usual = Weighing(), int(float(others.max()))
    weigh.speaks(f"the batch of step {origin.step} has 1 sample, others have {usual}", 2.5, 1, 2)
    if given is not None:
        weigh.speaks("every value of that sample is non-finite, as when it is divided by its own spread, 0 / 0", 4.0)
    else:
        weigh.speaks(
            f"the first non-finite value of the run appears in exactly step {origin.step}"
            + (", from finite inputs" if origin.read else ""),
            2.5 if origin.read else 2.0,
            origin.step,
        )
    before = size.between(0, origin.step - 1).values
    if len(before) and bool((before == 1).any()):
        weigh.against("batches of 1 sample did no harm before", 3.0, 1)
    # An operation that needs more than one value must be in the model or the loss.
    born = birth(case, "forward", "backward")
    ops = {op.lower() for op in case.loss_ops}
    first = next((layer.path for layer in case.ordered if is_norm(layer) and layer.type.startswith("BatchNorm")), None)
    if born is not None and born.op.replace("_", "").startswith(SPREADS):
        weigh.speaks(f"it is born in {born.op}{place(born.where)}", 2.0, born.op)
    elif ops & set(SPREADS) or first:
        weigh.speaks("a statistic over the batch stands in the model or its loss", 1.0, "std")
    return weigh.conclude(
        f"one sample in the batch of step {origin.step}: a spread over it is 0 / 0, usual are {usual} samples",
        _remedy(usual),
        layer=born.layer if born is not None and born.layer in case.layout.by_path else None,
        step=origin.step,
        failure=case.trouble.name or "non-finite value",
    )


def _remedy(usual: int) -> Remedy:
    size = f"batch_size={usual}, " if usual > 1 else ""
    usually = f" (usual are {usual} samples)" if usual > 1 else ""
    return Remedy(
        f"Leave out the last batch where it is too small{usually}.",
        f"loader = DataLoader(train_set, {size}shuffle=True, drop_last=True)",
    )


CAUSE = Cause(
    module=__name__,
    title="Batch too small for its statistics",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | UNITS,
    judge=judge,
    page=__doc__ or "",
    entails=frozenset({"nonfinite_input"}),
    place="forward",
)
