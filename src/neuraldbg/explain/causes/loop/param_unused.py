"""A layer is registered but takes no part in the loss.

What it is
    The model owns parameters that never receive a gradient: the layer is never called in ``forward``, or it is
    called and its output is thrown away or cut off from the loss (``detach``, ``no_grad``, ``.item()``).

Symptoms
    The layer keeps its initial weights. If it was meant to be used, the model is smaller than intended and learns
    less than it could; distributed training may even stop with an error about unused parameters.

Evidence
    It is read from the program: the parameter requires a gradient and never has one at any step that was read.
    A layer that was never called is unused; one that was called is cut off. Models that are only run without
    gradients (target and averaged copies) are no fault, and neither is a part that gets its gradient in other
    steps.

What to do
    Wire the layer into ``forward``, or delete it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.graph_wiring import access, cut_off, dry
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.wording import listing, verb
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.kinds import SourceLine

SPARE = re.compile(r"pooler|aux|target|teacher|ema|momentum|shadow|mask_token|unused", re.IGNORECASE)
"""Pattern of the names of parts that models have without using them in every task."""


def judge(case: Case) -> Finding | None:
    """Weigh the parameters that never got a gradient."""
    names = [name for name in case.standing("no_grad") if not had_gradient(case, name)]
    names = [name for name in names if not _idle_model(case, name, names) and not _bias_alone(case, name)]
    lost = cut_off(case)  # a known cut is a more specific cause
    names = [name for name in names if owner(name) not in lost]
    if not names or dry(case) is not None:
        return None
    # Layers that were never called are surely unused; the others may be cut off from the loss.
    uncalled = set(case.standing("uncalled"))
    never = [name for name in names if name in uncalled]
    weigh = Weighing()
    chosen = never or names
    layers = list(dict.fromkeys(owner(name) for name in chosen))
    needs = verb(chosen, "requires", "require")
    weigh.speaks(f"{listing(chosen)} {needs} a gradient and never got one", 3.0, len(chosen), 0)
    was, its = verb(layers, "was", "were"), verb(layers, "its", "their")
    if never:
        weigh.speaks(f"{listing(layers)} {was} never called in a forward pass", 1.5, len(layers), 0)
    else:
        output = verb(layers, "output is", "outputs are")
        said = f"{listing(layers)} {was} called, but {its} {output} not in the graph of the loss that is differentiated"
        weigh.speaks(said, 1.0, len(layers), 0)
    if all(SPARE.search(name) for name in chosen):
        weigh.against("by its name it is a part that is often left unused", 3.0, chosen[0])
    if case.trouble.kind in ("stuck", "slow"):
        weigh.speaks(case.trouble.phrase, 0.5)
    where, doing = _loss_line(case)
    what = "never called in the forward pass" if never else "cut off from the loss"
    return weigh.conclude(
        f"{verb(layers, 'a layer', 'layers')} {what}: the parameters of {listing(layers)} never get a gradient",
        Remedy(
            "Use the layer in forward, or delete it."
            if never
            else f"Make sure that the term computed from {verb(layers, 'this output', 'these outputs')} is part of the "
            "loss whose backward() is called; if it is, something cuts it off on the way, such as detach(), no_grad(), "
            ".item() or .data.",
            f"# in forward():\nx = {access(layers[0])}(x)" if never and layers[0] else "",
        ),
        layer=layers[0],
        step=0,
        at=None if never else where,
        doing=doing,
        failure="untrained layer",
        equivalent=() if never else ("detached_graph",),
    )


def _loss_line(case: Case) -> tuple[SourceLine | None, str]:
    """Return the one line that computes the loss, else the one that differentiates it, and what happens there."""
    known = case.run.known(PlacesFact)
    lines = known.lines if known is not None else {}
    for kind, doing in (("loss", "the loss is computed"), ("backward", "the loss is differentiated")):
        if len(lines.get(kind, ())) == 1:
            return lines[kind][0], doing
    return None, ""


def had_gradient(case: Case, name: str) -> bool:
    """Return True if the record has a gradient of a parameter."""
    for row in case.layout.rows("param_grad", owner(name)):
        if case.layout.sites[row].label == name and len(case.run.series(row, "rms")):
            return True
    return False


def _bias_alone(case: Case, name: str) -> bool:
    """Return True for a bias beside a weight that gets a gradient: a loss of the derivatives of an output does not
    depend on the last bias.
    """
    layer, _, last = name.rpartition(".")
    return last == "bias" and had_gradient(case, f"{layer}.weight" if layer else "weight")


def _idle_model(case: Case, name: str, names: list[str]) -> bool:
    """Return True if a parameter belongs to a model without any gradient or trained parameter, beside another model."""
    layer = case.layout.by_path.get(owner(name))
    if layer is None or len({other.model for other in case.layout.layers}) < 2:
        return False
    mine = {n for n in case.param_names if (found := case.layout.by_path.get(owner(n))) and found.model == layer.model}
    return mine <= set(names) | set(case.standing("frozen"))


CAUSE = Cause(
    module=__name__,
    title="Layer not used in the loss",
    tier=Tier.CERTAIN,
    explains=STALL,
    judge=judge,
    place="layer",
    page=__doc__ or "",
)
