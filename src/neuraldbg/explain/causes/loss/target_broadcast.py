"""Prediction and target have different shapes, and the loss compares everything with everything.

What it is
    A prediction of shape (N, 1) minus a target of shape (N,) is not N differences: broadcasting makes an (N, N)
    table, every prediction against every target. The loss is a number as before, but its minimum is to predict the
    mean for everything.

Symptoms
    The loss falls to about the variance of the targets and stays there; predictions become constant. PyTorch warns
    for ``mse_loss``, but not for a loss written by hand.

Evidence
    It is read from the graph of the loss: the operands differ in shape and the result is larger than both. A weight
    per channel or a number broadcast onto a tensor gives a result no larger than the tensor and is no fault; nor is
    a table of pairs that is made on purpose with dimensions of size 1 on both sides.

What to do
    Bring both to the same shape: ``prediction.squeeze(-1)`` or ``target.unsqueeze(-1)``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence.targets import readings
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.loss import LossFact, LossTerm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

KNOWN = ("mse", "l1", "smooth_l1", "huber", "bce", "bce_with_logits", "squared_error")


def broadcast_shape(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape that two shapes broadcast to; None if they do not fit."""
    size = max(len(first), len(second))
    left, right = (1,) * (size - len(first)) + tuple(first), (1,) * (size - len(second)) + tuple(second)
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        return None
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


def judge(case: Case) -> Finding | None:
    """Weigh each term of every loss graph that was seen."""
    for term in (*case.terms, *(term for _, term in readings(case))):
        shapes = term.operand_shapes or (term.input_shape, term.target_shape)
        if term.broadcast and len(shapes) >= 2:
            found = _weigh(case, term, shapes[0], shapes[1])
            if found is not None:
                return found
    for _, loss in case.run.versions(LossFact):
        for term in loss.terms:
            pair = expanded(case, term, loss.ops)
            if pair is not None:
                return _weigh(case, term, *pair)
    return None


def expanded(case: Case, term: LossTerm, ops: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the shapes of prediction and target if the loss expanded the prediction before it compared; else None.

    ``l1_loss`` and similar functions expand both to one shape first, so only the layer's width shows the original
    shape.
    """
    layer = case.layout.by_path.get(term.layer) if term.layer is not None else None
    width = layer.settings.get("out_features") if layer is not None else None
    shape = term.input_shape
    if width != 1 or "expand" not in ops or term.kind not in KNOWN or len(shape) < 2 or shape[-1] == 1:
        return None
    return (*shape[:-1], 1), shape[-1:]


def _weigh(case: Case, term: LossTerm, first: tuple[int, ...], second: tuple[int, ...]) -> Finding | None:
    result = broadcast_shape(first, second)
    if result is None or math.prod(result) <= max(math.prod(first), math.prod(second)):
        return None
    weigh = Weighing()
    weigh.speaks(
        f"the operands of the loss have shapes {first} and {second}, and make a table of {result}",
        4.0, str(result), str(first),
    )  # fmt: skip
    # Tables of pairs are made on purpose from operands with the same number of dimensions.
    if len(first) != len(second):
        weigh.speaks(
            "they differ in their number of dimensions, so this is no table of pairs made on purpose",
            2.0,
            len(first),
            len(second),
        )
    else:
        weigh.against(
            "both have the same number of dimensions, as in a table of pairs made on purpose", 3.0, len(first)
        )
    if term.kind in KNOWN:
        weigh.speaks(f"the loss ({term.kind}) compares each prediction with its own target", 1.0, term.kind)
    _plateau(case, term, weigh)
    squeezed = first if len(first) > len(second) else second
    code = (
        f"prediction = prediction.squeeze(-1)  # {first} -> {first[:-1]}"
        if squeezed is first
        else f"target = target.squeeze(-1)  # {second} -> {second[:-1]}"
    )
    return weigh.conclude(
        f"a prediction of shape {first} compared with a target of shape {second}: broadcasting compares every "
        "prediction with every target",
        Remedy("Bring prediction and target to the same shape before the loss.", code),
        layer=term.layer,
        step=0,
        failure="learning of the mean alone",
    )


def _plateau(case: Case, term: LossTerm, weigh: Weighing) -> None:
    """Weigh the lowest loss against the variance of the targets, below which a broadcast squared error cannot fall."""
    std = term.target.std if term.target is not None else None
    if term.kind not in ("mse", "squared_error") or std is None or not len(case.loss):
        return
    if term.reduction != "mean" or len(case.terms) != 1 or len(case.loss) < 10:
        return
    best, variance = case.loss.best, std**2
    if best < 0.5 * variance:
        weigh.against(f"the loss fell to {case.loss.lowest}, below the variance of the targets", 3.0, best, variance)
    elif best < 2 * variance:
        weigh.speaks("the loss stays at about the variance of the targets", 1.0, best, variance)


CAUSE = Cause(
    module=__name__,
    title="Prediction and target differ in shape",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
