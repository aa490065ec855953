"""The network is too narrow for its task.

What it is
    Everything that the network knows of its input passes through its narrowest layer. If that has one or two units and
    there are ten classes, they must share a line or a plane. One unit in the middle of an autoencoder is the same.

Symptoms
    Training is clean, gradients are fine, and the loss settles far above zero; it would not even fit one batch.

Evidence
    Only a layer that all paths lead through counts, not a gate or a side branch; and only where the loss settles well
    above what is possible. Too little capacity leaves no other trace, so that it is never named with confidence, and
    not at all where a fault of the data, the loss or the loop was found.

What to do
    Widen that layer; then check that one small batch can be learnt by heart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.explain.evidence.depth_profiles import MATRIX_TYPES, RECURRENT_TYPES
from neuraldbg.explain.evidence.layer_facts import resting
from neuraldbg.explain.evidence.wording import percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns import Layer

REST = 0.35
"""Share of the loss of a constant guess above which the loss has settled too high."""
CLASSES = 4
"""Number of classes from which a layer can be too narrow for them."""
NUMBERS = 16
"""Number of values of a target from which one unit is too few."""
STEPS = 60
"""Least number of steps after which a loss can have settled."""


def judge(case: Case) -> Finding | None:
    """Weigh the narrowest layer through which all data flows, for a loss that settled too high."""
    # A narrow layer alone is no fault: the loss must have settled far above zero.
    asked, enough = _asked(case)
    guess = guessing_loss(case)
    if not asked or not guess > 0 or len(case.loss) < STEPS or case.trouble.broke:
        return None
    if case.loss.last < REST * guess or not resting(case, guess):
        return None
    narrow = [layer for layer in case.ordered if 0 < _width(layer) < enough and _all_pass(case, layer.path)]
    if not narrow:
        return None
    # The narrowest layer limits all others; the loss that settled is part of the condition, so it is weak evidence.
    layer = min(narrow, key=_width)
    width = int(_width(layer))
    units = f"{width} unit{'s' * (width > 1)}"
    weigh = Weighing()
    weigh.speaks(f"everything passes {called(layer.path)}, which has {units} for {asked}",
                 2.0 if width == 1 else 1.6, width, enough)  # fmt: skip
    weigh.speaks(
        f"the loss settled at {case.loss.ending}, {percent(case.loss.last / guess)} of the loss of guessing", 0.6,
        case.loss.last, REST * guess,
    )  # fmt: skip
    wider = 2 ** math.ceil(math.log2(max(16, 2 ** (enough + 2))))
    return weigh.conclude(
        f"a layer that is too narrow: {units} of {called(layer.path)} must distinguish {asked}",
        Remedy(
            f"Widen {called(layer.path)} to {wider} units or so; then see whether one small batch can be "
            "learnt by heart.",
            f"torch.nn.{layer.type}(..., {wider})  # in the place of {layer.path!r}, and the next layer to match",
        ),
        layer=layer.path,
        step=0,
        failure=case.trouble.name or "loss settled far above zero",
    )


def _asked(case: Case) -> tuple[str, float]:
    """Return the task of the outputs in words, and the number of units below which a layer is too narrow for it.

    For C classes it is log2(C), the bits that number them. A code of two units for an image may be intended, for a plot
    of the codes; a code of one unit is not.
    """
    for term in case.terms:
        columns = term.classes
        if term.kind in ("cross_entropy", "nll") and columns >= CLASSES:
            return f"{columns} classes", math.log2(columns)
        if term.kind in ("mse", "squared_error") and columns >= NUMBERS:
            return f"{columns} numbers", 2.0
    return "", 0.0


def _width(layer: Layer) -> float:
    if not layer.leaf or layer.type not in (*MATRIX_TYPES, *RECURRENT_TYPES):
        return 0.0
    width = layer.settings.get("hidden_size" if layer.type in RECURRENT_TYPES else "out_features")
    return float(width) if isinstance(width, (int, float)) else 0.0


def _all_pass(case: Case, path: str) -> bool:
    """Return True if every path from a first layer to the loss passes a layer, and another layer follows it."""
    edges = [edge for edge in case.layout.edges if edge.source != edge.target]
    targets = {edge.target for edge in edges}
    if not any(edge.source == path and edge.target != "loss" for edge in edges):
        return False
    front = [e.source for e in edges if e.source not in targets and e.source != path]
    if not front:  # the layer is the only first one
        return path not in targets
    reached = set(front)
    while front:
        place = front.pop()
        for edge in edges:
            if edge.source == place and edge.target not in reached and edge.target != path:
                reached.add(edge.target)
                front.append(edge.target)
    return "loss" not in reached


CAUSE = Cause(
    module=__name__,
    title="Model too small for its task",
    tier=Tier.PALLIATIVE,
    explains=frozenset({"loss_plateau"}),
    judge=judge,
    page=__doc__ or "",
)
