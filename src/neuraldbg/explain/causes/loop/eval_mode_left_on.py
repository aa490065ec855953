"""The model trains in evaluation mode: dropout is off and batch norm uses old statistics.

What it is
    ``model.eval()`` was called, usually for a validation pass, and ``model.train()`` was not called again. Dropout
    then does nothing, and batch normalisation uses its running statistics, which no longer follow the data.

Symptoms
    After the first validation the model overfits more than it should (no dropout), or the loss jumps and training
    becomes unstable (batch norm with statistics that do not fit the weights any more).

Evidence
    The mode is read in every forward pass that builds a graph. It is a fault when the model as a whole is in
    evaluation mode and has layers that care. Batch norm alone kept in evaluation mode inside a model in training
    mode is a usual way of fine-tuning, and a frozen model in evaluation mode is a usual part of a loss; neither is
    a fault.

What to do
    Call ``model.train()`` after each validation, at the beginning of each epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.wording import a_step, listing, percent, verb
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.modes import ModesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding


def judge(case: Case) -> Finding | None:
    """Weigh the modes of the layers in forward passes with gradients."""
    for modes in {modes.model: modes for _, modes in case.run.versions(ModesFact) if modes.eval_layers}.values():
        if not _frozen(case, modes):
            return _weigh(case, modes)
    return None


def _weigh(case: Case, modes: ModesFact) -> Finding | None:
    layers, every = modes.eval_layers, modes.mode_layers
    # Passes in evaluation mode must last: a loop has some between its steps.
    counts = case.scalar("eval_layers")
    hit = np.flatnonzero(counts.values > 0)
    still = [step for step, one in case.run.versions(ModesFact, model=modes.model) if one.eval_layers]
    start = int(counts.steps[hit[0]]) if len(hit) else still[0]
    held = case.held(counts).values > 0
    if len(counts) and held.sum() < max(2, 0.1 * len(held)):
        return None  # evaluations between the steps, not the steps themselves
    share = float(np.mean(held[int(np.argmax(held)) :])) if len(hit) else 1.0
    # The MODES fact may show the mode at a step between two readings of the scalar: that step is the start.
    read_before = int(counts.steps[hit[0] - 1]) if len(hit) and hit[0] else -1
    known = [step for step in still if read_before < step < start]
    start = known[0] if known else start
    # Modes are compared every few steps, too: the change lies between two of these.
    turns = case.run.versions(ChangeFact, what="training", name=modes.model)
    near = [one for _, one in turns if not one.after and one.since < start <= one.until + 1]
    since = near[-1].since if near else None
    weigh = Weighing()
    types = sorted({layer.type for path in layers if (layer := case.layout.by_path.get(path))})
    if modes.training:
        weigh.against(
            "the model itself is in training mode, so single layers were put in evaluation mode on purpose", 3.0
        )
        weigh.speaks(f"{listing(layers)} in evaluation mode while training", 1.5, len(layers), 0)
    else:
        weigh.speaks(
            f"the model is in evaluation mode in forward passes that build a graph: {listing(layers)}",
            4.5,
            len(layers),
            0,
        )
    if len(layers) == len(every):
        weigh.speaks(f"all {len(every)} dropout and batch-norm layers are off", 0.7, len(layers), len(every))
    if share < 0.9:
        weigh.against(f"only {percent(share)} of the steps since step {start} were affected", 2.5, share, 0.9)
    # A validation right before the start shows how the mode was left on.
    evals = case.scalar("evals")
    if start > 0 and len(evals) and (evals.between(start - 1, start).values > 0).any():
        weigh.speaks(f"it began at step {start}, right after a pass without gradients (a validation)", 1.0, start)
    elif start > 0:
        weigh.speaks(f"the model was in training mode before step {start}", 0.5, start)
    return weigh.conclude(
        f"a model left in evaluation mode since {a_step(since, start)}: {listing(types or layers)} "
        f"{verb(types or layers, 'does', 'do')} not work as in training",
        Remedy(
            "Switch back to training mode after validation, at the beginning of each epoch.",
            "model.train()\nfor batch in train_loader:\n    ...",
            (before("forward", "model.train()"),),
        ),
        step=start,
        since=since,
        failure=case.trouble.name or "training in evaluation mode",
    )


def _frozen(case: Case, modes: ModesFact) -> bool:
    """Return True if every parameter of a model is frozen: then evaluation mode is intended."""
    frozen = set(case.standing("frozen"))
    mine = [
        f"{layer.path}.{name}" if layer.path else name
        for layer in case.layout.layers
        if layer.model == modes.model
        for name in layer.params
    ]
    return bool(mine) and set(mine) <= frozen


CAUSE = Cause(
    module=__name__,
    title="Training in evaluation mode",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | {"loss_plateau"},
    judge=judge,
    place="forward",
    page=__doc__ or "",
)
