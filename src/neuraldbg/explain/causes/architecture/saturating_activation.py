"""Hidden sigmoid or tanh units sit at their bounds, where they pass no gradient.

What it is
    A sigmoid far from zero is flat: its slope is nearly nothing, and so is the gradient that it passes back. If
    most of a layer sits at 0 and 1 (or -1 and 1), the layers before it stop learning.

Symptoms
    Activations pile up at the bounds, gradients of earlier layers are tiny, the loss levels off early. It spreads
    over time.

Evidence
    Elements at a bound are counted for hidden layers only: an output sigmoid at its bounds is a confident answer, and
    a gate, whose output is multiplied with something, is meant to be open or shut.
    Inputs of the wrong scale, too large initial weights and too large steps all end here as well; if one of them is
    seen, saturation is its consequence.

What to do
    Use ReLU or GELU in hidden layers, or put a normalisation layer before the activation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import exchanged, once_made
from neuraldbg.explain.evidence.depth_profiles import saturated_share
from neuraldbg.explain.evidence.record_readings import BOUNDED_TYPES
from neuraldbg.explain.evidence.wording import moved, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

MANY = 0.5
"""Share of elements at a bound from which a layer passes hardly any gradient (TheDeepChecker's default)."""


def judge(case: Case) -> Finding | None:
    """Weigh the saturation of the worst hidden layer."""
    worst = _worst(case)
    if worst is None:
        return None
    layer, begin, end, step = worst
    weigh = Weighing()
    weigh.speaks(
        f"{percent(end)} of the values of {called(layer)} sit at a bound",
        1.5 + 2.5 * (end - MANY) / (1 - MANY),
        end,
        MANY,
    )
    # Saturation after large updates is a consequence of those.
    if begin >= 0.8 * end:
        weigh.speaks("it was so from the first step on", 0.7, begin, MANY)
    else:
        updates = case.scalar("update_ratio").finite().between(0, step).values
        if len(updates) and updates.max() > 0.1:
            weigh.against(
                f"it came after updates as large as {moved(float(updates.max()))}",
                2.5,
                float(updates.max()),
                0.1,
            )
        else:
            weigh.speaks(f"it spread from {percent(begin)} to {percent(end)} without large updates", 0.5, begin)
    # A saturated activation passes hardly any gradient to the layers before it.
    profile = case.gradients
    if len(profile) >= 2 and profile.values[0] < 1e-2 * profile.values[-1]:
        ratio = float(profile.values[0] / profile.values[-1])
        weigh.speaks(f"the gradient before it is {number(ratio)} of that behind it", 0.8, ratio, 1e-2)
    if case.trouble.kind in ("stuck", "slow"):
        weigh.speaks(case.trouble.phrase, 1.5)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 3.5, case.loss.relative)
    else:
        weigh.against("the loss shows no consequence", 1.0)
    exchange = exchanged(case, layer, "torch.nn.ReLU()")
    return weigh.conclude(
        f"hidden units at the bounds of their activation: {percent(end)} of {called(layer)} pass hardly any gradient",
        Remedy(
            "Use an unbounded activation in hidden layers, or normalise before it.",
            exchange or "torch.nn.LayerNorm(width), torch.nn.ReLU()  # instead of torch.nn.Sigmoid() / torch.nn.Tanh()",
            (once_made(exchange),) if exchange else (),
        ),
        layer=layer,
        step=step,
        failure=case.trouble.name or "saturated units",
    )


def _gates(case: Case, path: str) -> bool:
    """Return True if the activation's output is a factor: a gate may be open or shut."""
    bounded = {name.lower() for name in BOUNDED_TYPES}
    for edge in case.layout.edges:
        if edge.source == path:
            ops = edge.ops[1:] if edge.ops and edge.ops[0] in bounded else edge.ops
            if ops and ops[0] == "mul":
                return True
    return False


def _worst(case: Case) -> tuple[str, float, float, int] | None:
    """Return layer, share at the beginning, share at the end and first step beyond MANY of the worst hidden layer."""
    # Saturated outputs are right in a trained model, so only hidden layers count.
    last: dict[str, int] = {}  # by model: a generator's output is not a hidden layer of its critic
    for layer in case.layout.layers:
        if layer.params and layer.leaf and layer.path in case.layout.called:
            last[layer.model] = max(last.get(layer.model, -1), case.depth(layer.path))
    worst: tuple[str, float, float, int] | None = None
    for row in case.layout.rows("activation"):
        path = case.layout.sites[row].module
        model = case.layout.by_path[path].model if path in case.layout.by_path else ""
        if case.depth(path) >= last.get(model, -1) or not case.follows(path, BOUNDED_TYPES) or _gates(case, path):
            continue
        steps, share = saturated_share(case, row)
        if not len(share):
            continue
        end = float(np.median(share[-max(1, len(share) // 4) :]))
        if end >= MANY and (worst is None or end > worst[2]):
            worst = (path, float(share[0]), end, int(steps[int(np.flatnonzero(share >= MANY)[0])]))
    return worst


CAUSE = Cause(
    module=__name__,
    title="Hidden units saturated",
    tier=Tier.STATISTICAL,
    explains=STALL | {"saturated_units"},
    judge=judge,
    page=__doc__ or "",
)
