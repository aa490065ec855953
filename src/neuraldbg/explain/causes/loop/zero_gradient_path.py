"""An operation whose gradient is zero everywhere stands between a layer and the loss.

What it is
    Some operations have a gradient, and it is exactly zero for every input: rounding, ``sign``, ``floor``. Others are
    constant for the values that they are given: a clamp far out of its range, a softmax over a single element (always
    1), a layer norm over a single feature (always its bias), a product with zero. PyTorch records them without
    complaint, and everything before them gets gradients that are set, and all zero.

Symptoms
    Layers before the operation keep their initial values, though they are in the graph and in the optimizer. If the
    operation is in the loss itself, the loss never moves.

Evidence
    The gradients of all parameters of a layer are exactly zero in every step from the first one on, in all elements,
    while its output is not zero and layers behind it, or the loss, do have gradients. The operations between the two
    are read from the graph. Dead ReLUs also give exact zeros: with a ReLU and nothing else between, this cause is not
    named. A single parameter of a layer whose other parameters do get gradients is named too (a threshold of -150 under
    a sigmoid). Branches that begin at zero (LoRA, zero-initialised gains) get gradients after the first steps. In a
    graph that is cut (``detached_graph``) there is no gradient, not one of zero.

What to do
    Replace the operation while training: a smooth version, a straight-through estimator, a wider clamp; or move it to
    where only metrics are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.graph_wiring import access
from neuraldbg.explain.evidence.wording import listing, number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns import Layer, Site

FAR = 17.0
"""Size from which 1 - sigmoid(x) is below the resolution of 32-bit numbers: log(2**24) is 16.6."""
STEPS = 10
"""Least number of steps in which the gradients must all be exactly zero."""
FLAT = frozenset({"round", "floor", "ceil", "sign", "sgn", "trunc", "fix"})
"""Operations whose gradient is zero for every input."""
CLAMPS = frozenset({"clamp", "clampmin", "clampmax", "hardtanh", "relu6", "hardsigmoid"})
CLAMP_TYPES = frozenset({"Hardtanh", "ReLU6", "Hardsigmoid"})
SOFTMAX = frozenset({"softmax", "logsoftmax", "safesoftmax"})
RECTIFIERS = frozenset({"relu", "threshold", "ReLU", "Threshold"})


class Way(NamedTuple):
    """A path from a layer without gradient to the next layer with parameters, or to the loss."""

    source: str
    target: str
    """Path of a layer, or "loss"."""
    ops: tuple[str, ...]
    """Operations on the path, and types of layers without parameters."""


def judge(case: Case) -> Finding | None:
    """Weigh layers whose gradients are exactly zero for the whole run."""
    starved, fed = _starved(case)
    if case.trouble.broke:
        return None
    for layer in sorted(starved, key=case.depth, reverse=True):
        if not _alive(case, layer):
            continue
        ways = _ways(case, layer, starved)
        if ways and all(way.target == "loss" or way.target in fed for way in ways):
            found = _weigh(case, layer, ways, starved)
            if found is not None:
                return found
    return _far_out(case)


def _far_out(case: Case) -> Finding | None:
    """Weigh a parameter without gradient, beside trained ones, at values where sigmoid and tanh are flat."""
    for row in case.layout.rows("param_grad"):
        site = case.layout.sites[row]
        size, zeros, count = (case.run.series(row, name).values for name in ("rms", "zeros", "count"))
        held = case.layout.rows("param", site.module, site.name)
        if len(size) < 2 * STEPS or not (size == 0).all() or not (zeros == count).all() or not held:
            continue
        value = case.run.series(held[0], "mean").finite().values
        spread = case.run.series(held[0], "std").finite().values
        others = [r for r in case.layout.rows("param_grad", site.module) if r != row]
        fed = any((case.run.series(r, "rms").values > 0).any() for r in others)
        if not len(value) or not abs(value[0]) - 3 * (spread[0] if len(spread) else 0) > FAR or not fed:
            continue
        return _weigh_far(case, site, float(value[0]))
    return None


def _weigh_far(case: Case, site: Site, value: float) -> Finding:
    weigh, name = Weighing(), f"{site.module}.{site.name}" if site.module else site.name
    weigh.speaks(
        f"the gradient of {name} is set and exactly zero {case.throughout}, and other parameters beside it "
        "have one", 2.0, 0.0,
    )  # fmt: skip
    weigh.speaks(f"its values are about {number(value)}, where sigmoid and tanh are flat in 32 bits", 2.5, value, FAR)
    begin = f"torch.nn.init.constant_(model.get_parameter({name!r}), {4.0 if value > 0 else -4.0})"
    return weigh.conclude(
        f"values of {name} so far out that what is applied to them is flat: it gets no gradient and stays as it is",
        Remedy(
            f"Begin {name} within a few units of zero.",
            begin,
            (once_made(begin),),
        ),
        layer=site.module or None,
        step=0,
        failure="untrained parameter",
        equivalent=("saturating_activation",),
    )


def _starved(case: Case) -> tuple[set[str], set[str]]:
    """Return the layers whose gradients are set and exactly zero in all steps, and those with a gradient."""
    zero: dict[str, bool] = {}
    for row in case.layout.rows("param_grad"):
        site = case.layout.sites[row]
        size = case.run.series(row, "rms", "max")
        if not len(size):
            continue
        seen = int(size.width.sum())
        if case.skips and len(size) >= STEPS // 2:
            seen = len(case.held(size))
        broken = bool(case.run.series(row, "nonfinite").values.any())
        nothing = seen >= STEPS and bool((size.values == 0).all()) and not broken
        zero[site.module] = zero.get(site.module, True) and nothing
    return {layer for layer, none in zero.items() if none}, {layer for layer, none in zero.items() if not none}


def _alive(case: Case, layer: str) -> bool:
    """Return True if a layer's output is not zero: an empty or dead layer has no gradient for other reasons."""
    rows = case.layout.rows("activation", layer)
    sizes = [case.run.series(row, "rms").finite().values for row in rows]
    return any(len(values) and float(values.max()) > 0 for values in sizes)


def _ways(case: Case, layer: str, starved: set[str]) -> list[Way]:
    """Return the paths from a layer along the data flow, through layers without parameters."""
    found: list[Way] = []
    queue: list[tuple[str, tuple[str, ...]]] = [(layer, ())]
    seen = {layer}
    while queue:
        here, so_far = queue.pop(0)
        for edge in case.layout.edges:
            if edge.source != here:
                continue
            target = case.layout.by_path.get(edge.target)
            ops = (*so_far, *edge.ops)
            if target is None or target.params:
                found.append(Way(layer, edge.target, (*ops, *_constant(target))))
            elif edge.target not in seen:
                seen.add(edge.target)
                queue.append((edge.target, (*ops, target.type)))
    return [way for way in found if way.target not in starved] or []


def _constant(target: Layer | None) -> tuple[str, ...]:
    """Return the name of a normalisation over one element, whose output is a constant; else nothing."""
    if target is not None and target.type == "LayerNorm" and target.settings.get("normalized_shape") == "1":
        return ("layer norm over one feature",)
    return ()


def _weigh(case: Case, layer: str, ways: list[Way], starved: set[str]) -> Finding | None:
    ops = list(dict.fromkeys(op for way in ways for op in way.ops))
    culprit, weight, why = _culprit(case, layer, ops, starved, inside=all(way.target != "loss" for way in ways))
    if culprit is None:
        return None
    # If a later layer gets gradients, the operation before it blocks them.
    target = min((way.target for way in ways), key=case.depth) if all(w.target != "loss" for w in ways) else "loss"
    behind = "the loss" if target == "loss" else f"{target!r}"
    before = [path for path in case.layout.by_path if path in starved]
    weigh = Weighing()
    weigh.speaks(
        f"the gradients of {listing(sorted(before, key=case.depth))} are set and exactly zero "
        f"{case.throughout}",
        2.0, 0.0,
    )  # fmt: skip
    weigh.speaks(f"between {layer!r} and {behind} stands {culprit}: {why}", weight, ", ".join(ops))
    if target != "loss":
        weigh.speaks(f"{target!r} behind it does get gradients", 0.5)
    if case.trouble.kind in ("stuck", "slow"):
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        f"{culprit} between {layer!r} and {behind}, whose gradient is zero: {plural(len(before), 'layer')} before it "
        "cannot learn",
        _remedy(culprit, layer),
        layer=layer,
        step=0,
        failure="training without effect" if target == "loss" else "untrained layer",
    )


def _culprit(
    case: Case, layer: str, ops: list[str], starved: set[str], *, inside: bool
) -> tuple[str | None, float, str]:
    """Return the operation that explains the zeros (None if there is none), the weight of that, and the reason."""
    # Operations whose gradient is zero for any input are proof.
    flat = next((op for op in ops if op in FLAT), None)
    if flat is not None:
        return f"a {flat}", 5.5, "its gradient is zero for every input"
    if "layer norm over one feature" in ops:
        return "a layer norm over one feature", 5.0, "its output does not depend on its input"
    width = (case.layout.by_path[layer].settings if layer in case.layout.by_path else {}).get("out_features")
    if SOFTMAX & set(ops) and width == 1:
        return "a softmax over one element", 5.0, "its output is always 1"
    attention = next((op for op in ops if op in SOFTMAX - {"logsoftmax"} or op.startswith("scaleddotproduct")), None)
    if attention is not None and inside:
        what = "a softmax" if attention in SOFTMAX else "an attention"
        return what, 2.0, "over a single element, or where it is saturated, it does not depend on its input"
    # A clamp or a factor is zero only for some inputs: all layers before it must be without a gradient, too.
    before = _before(case, layer)
    if not before <= starved or not _loss_is_not_zero(case):
        return None, 0.0, ""  # a loss that is weighted with zero starves its own head only
    clamp = next((op for op in ops if op in CLAMPS | CLAMP_TYPES), None)
    if clamp is not None and not (RECTIFIERS & set(ops)):
        return f"a {clamp.lower()}", 3.6, "outside of its limits the gradient is zero"
    if "mul" in ops and before and not (RECTIFIERS & set(ops)):
        return "a product", 2.2, "with a factor that is always zero"
    return None, 0.0, ""


def _before(case: Case, layer: str) -> set[str]:
    """Return the layers with parameters from which data flows to a layer."""
    found: set[str] = set()
    queue = [layer]
    while queue:
        here = queue.pop()
        sources = {edge.source for edge in case.layout.edges if edge.target == here} - found - {layer}
        found |= sources
        queue += sources
    return {path for path in found if path in case.layout.by_path and case.layout.by_path[path].params}


def _loss_is_not_zero(case: Case) -> bool:
    values = case.loss.finite.values
    return bool(len(values)) and bool(abs(values).min() > 0)


def _remedy(culprit: str, layer: str) -> Remedy:
    op = culprit.rpartition(" ")[2]
    if op in FLAT:
        return Remedy(
            f"Leave {op} out of what is trained, or let the gradient pass straight through it.",
            f"x = {access(layer)}(x)\nx = x + (torch.{op}(x) - x).detach()  # forward {op}, backward identity",
        )
    if "softmax" in culprit or "attention" in culprit:
        return Remedy(
            "Take the softmax over the axis that holds more than one element, or use a sigmoid for a single one.",
            "weights = scores.softmax(dim=-1)  # dim must be the axis of the things to choose from",
        )
    if "layer norm" in culprit:
        return Remedy("Normalise over more than one feature, or leave the normalisation out.")
    if op == "product":
        return Remedy(f"Find the factor that is zero behind {layer!r}: a mask, a gate, or a weight of the loss.")
    return Remedy(f"Widen the limits of the {op} behind {layer!r}, or bring its input to scale before.")


CAUSE = Cause(
    module=__name__,
    title="Operation with zero gradient before the loss",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    place="loss",
    entails=frozenset({"input_ignored"}),
    page=__doc__ or "",
)
