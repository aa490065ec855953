"""A frozen part keeps changing: its batch-norm layers go on averaging.

What it is
    ``requires_grad = False`` stops the weights, but the running mean and variance of batch norm are buffers: in
    training mode every forward pass moves them. A pretrained backbone that was frozen this way normalises by the
    batch while training and by drifted averages in evaluation.

Symptoms
    The frozen part gives different outputs after fine-tuning than before it, evaluation is worse than training, and
    a saved head does not fit the original backbone.

Evidence
    The weights of the part do not require gradients and are bitwise as they were, the layer is in training mode, and
    its running statistics move, while something else is trained. A teacher or target network whose weights are averaged
    moves in its weights too and is not meant; a part that is trained as a whole neither. How far they drifted says how
    much it matters.

What to do
    Put the frozen part in evaluation mode after each ``model.train()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.layer_facts import evaluated, norms
from neuraldbg.explain.evidence.wording import listing, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Reading
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.norms import NormLayer

DRIFT = 0.25
"""Movement of a running mean, in standard deviations of its channel, that changes the outputs of the frozen part."""
SLIGHT = 0.1


def judge(case: Case) -> Finding | None:
    """Weigh the frozen batch-norm layers whose running statistics moved."""
    moving = {layer: seen for layer, seen in norms(case).items() if _drifts(seen)}
    if not moving or not case.param_names:
        return None
    layer = min(moving, key=case.depth)
    worst = max(moving, key=lambda path: moving[path][-1].of.drift)
    drift = moving[worst][-1].of.drift
    weigh = Weighing()
    weigh.speaks(
        f"the weights of {called(layer)} are frozen and unchanged, but its running statistics move with every pass",
        3.0, len(moving), 0,
    )  # fmt: skip
    if drift > SLIGHT:
        weigh.speaks(
            f"the running mean of {worst} moved by {number(drift)} standard deviations",
            1.6 if drift > DRIFT else 0.7, drift, DRIFT,
        )  # fmt: skip
    else:
        weigh.against("the drift is small", 1.5, drift, SLIGHT)
    # Training itself uses the batches' own statistics, so its loss hardly shows the drift.
    if evaluated(case):
        weigh.speaks("the program evaluates, which uses the drifted statistics", 0.7)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 0.5, case.loss.relative)
    parts = list(dict.fromkeys(path.split(".")[0] for path in moving))
    code = (
        "for module in model.modules():\n"
        "    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and not module.weight.requires_grad:\n"
        "        module.eval()"
        if len(parts) > 1
        else f"model.get_submodule({parts[0]!r}).eval()"
    )
    return weigh.conclude(
        f"batch-norm statistics of a frozen part that keep moving: {listing(list(moving))} in training mode",
        Remedy(
            "Keep the frozen layers in evaluation mode, after every model.train().",
            f"model.train()\n{code}",
            (before("forward", code),),
        ),
        layer=layer,
        step=moving[layer][0].step,
        failure="drift of a frozen part",
    )  # fmt: skip


def _drifts(seen: list[Reading[NormLayer]]) -> bool:
    frozen = [r for r in seen if r.of.frozen]
    if (
        len(frozen) < 2
        or frozen[-1] is not seen[-1]
        or len(frozen) < len([r for r in seen if r.step >= frozen[0].step])
    ):
        return False
    after = [r for r in frozen if r.step > frozen[0].step]
    return (
        not frozen[0].of.fresh
        and all(r.of.still and r.of.training for r in frozen)
        and all(r.of.moved for r in after)
        and frozen[-1].of.momentum != 0.0
    )


CAUSE = Cause(
    module=__name__,
    title="Running statistics of a frozen layer change",
    tier=Tier.SPECIFIC,
    explains=frozenset(),
    judge=judge,
    page=__doc__ or "",
)
