"""The initial weights have the wrong scale: signals grow or shrink geometrically from the first step on.

What it is
    Each layer multiplies the signal by about rms(weight) * sqrt(fan_in). If that number is far from one, the signal
    explodes or dies on its way through the depth, and the gradient with it on the way back, before any training has
    happened.

Symptoms
    Too large: a huge first loss, saturated units, NaN within some steps. Too small: all outputs equal, gradients
    near zero, a loss that stays at the level of guessing.

Evidence
    Weights and activations are read at the first step. The scale of each weight matrix is compared with what He and
    Glorot ask for, and the activations must show its consequence over depth. If the weights are sound and the
    signal still fades or grows, it is the depth itself (sigmoid or tanh stacks, no normalisation). A last layer, or the
    end of a residual branch, that begins small is a good habit and does not count.

What to do
    Initialise with ``torch.nn.init.kaiming_normal_`` (ReLU) or ``xavier_uniform_`` (tanh, linear).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.explain.evidence.depth_profiles import MATRIX_TYPES, is_norm
from neuraldbg.explain.evidence.layer_facts import calls, operations_into
from neuraldbg.explain.evidence.optimizer_steps import POOR, poor, weigh_poverty
from neuraldbg.explain.evidence.wording import listing, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.depth_profiles import Weight
    from neuraldbg.explain.finding import Finding

HIGH = 4.0
"""rms * sqrt(fan_in) above which a layer amplifies; He et al. 2015 ask for 1.41, Glorot and Bengio 2010 for about 1."""
LOW = 0.05
"""rms * sqrt(fan_in) below which a layer damps; torch's default for Linear is 0.58, GPT-2's scaled residual layers have
as little as 0.11."""
TIMES = 10.0
"""Ratio of the initial loss to that of a constant guess, from which outputs are clearly too large."""
HARDLY = 0.7
"""Share of the loss of a model that only knows the class frequencies, above which little was learnt."""
CONSTANT = 1e-4
"""Variation of the outputs over a batch, relative to their size, below which they do not depend on the input."""
GAIN = 3.0
"""Change of the activations per layer, beyond which they grow or shrink geometrically."""


def judge(case: Case) -> Finding | None:
    """Weigh norms with a gain of zero, then the scale of weights and activations at the first step."""
    # The last layer of a model or a branch may begin small on purpose.
    silent = _silent_norms(case)
    if silent:
        return _weigh_norms(case, silent)
    known = [w for w in case.weights if w.gain > 0]
    wrong = [w for w in known if w.gain > HIGH or (w.gain < LOW and not _ends(case, w.layer.path))]
    if not wrong:
        return None
    # Layers that are too large and too small have opposite effects: only the larger group is judged.
    weigh, large = Weighing(), sum(w.gain > HIGH for w in wrong) * 2 >= len(wrong)
    wrong = [w for w in wrong if (w.gain > HIGH) == large]
    worst = max(wrong, key=lambda w: abs(math.log(w.gain)))
    edge = HIGH if large else LOW
    size = abs(math.log(worst.gain / edge))
    weigh.speaks(
        f"{listing([w.layer.path + '.weight' for w in wrong])} began with an rms of {number(worst.rms)}, where "
        f"about {number(math.sqrt(2 / worst.fan_in))} is usual for {number(worst.fan_in)} inputs",
        min(2.0 + size, 4.0), worst.gain, edge,
    )  # fmt: skip
    if len(wrong) == 1 and len(known) > 2:
        weigh.against("only one of the layers is like that", 0.7, 1, len(known))
    if all(w.normed for w in wrong):
        weigh.against("normalisation layers follow and undo the scale", 2.5)
    # The scale is a fact; activations and loss show if it has an effect.
    last = case.weights[-1].layer if case.weights else None
    _weigh_profile(case, weigh, large=large, last=all(w.layer == last for w in wrong))
    _weigh_course(case, weigh, large=large)
    return weigh.conclude(
        f"initial weights that are too {'large' if large else 'small'}: {wrong[0].layer.path}.weight began with an rms "
        f"of {number(wrong[0].rms)} instead of about {number(math.sqrt(2 / wrong[0].fan_in))}",
        _remedy(case, wrong),
        layer=wrong[0].layer.path,
        step=0,
        failure=case.trouble.name or "signal lost over the depth",
    )


def _silent_norms(case: Case) -> list[str]:
    """Return normalisation layers that begin with a gain of zero and end no residual branch: they block the input."""
    found = []
    for layer in case.ordered:
        rows = case.layout.rows("param", layer.path, "weight") if is_norm(layer) and layer.leaf else ()
        if not rows:
            continue
        high, low = (case.run.series(rows[0], name).values for name in ("max", "min"))
        if len(high) and len(low) and high[0] == low[0] == 0 and not _adds(case, layer.path):
            found.append(layer.path)
    return found


def _adds(case: Case, path: str) -> bool:
    """Return True if a layer's output is added to something, directly or after layers without weights."""
    into = operations_into(case)
    seen, front = {path}, [path]
    while front:
        place = front.pop()
        for edge in case.layout.edges:
            if edge.source != place or edge.target in seen:
                continue
            if "add" in edge.ops or "add" in into.get(edge.target, ()):
                return True
            seen.add(edge.target)
            target = case.layout.by_path.get(edge.target)
            if target is not None and not target.params:
                front.append(edge.target)
    return False


def _weigh_norms(case: Case, silent: list[str]) -> Finding:
    weigh = Weighing()
    weigh.speaks(
        f"the gain of {listing(silent)} began at exactly 0, and no skip connection leads around: what leaves it is its "
        "bias, whatever comes in", 5.5, 0.0, 1.0,
    )  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    return weigh.conclude(
        f"initial gains of zero: nothing of the input passes {silent[0]}",
        Remedy(
            "Begin norms with a gain of 1; zero is for the last norm of a residual branch.",
            code := "\n".join(f"torch.nn.init.ones_(model.get_submodule({path!r}).weight)" for path in silent),
            (once_made(code),),
        ),
        layer=silent[0],
        step=0,
        failure=case.trouble.name or "signal lost over the depth",
        equivalent=("symmetric_init",),
        tier=Tier.CERTAIN,
    )


def _ends(case: Case, path: str) -> bool:
    """Return True if a layer is the last of a model or a residual branch: these begin small on purpose (Fixup, GPT-2,
    PPO's heads).
    """
    into = operations_into(case)
    seen, front = {path}, [path]
    while front:
        place = front.pop()
        for edge in case.layout.edges:
            if edge.source != place or edge.target in seen:
                continue
            if place == path and ("add" in edge.ops[:1] or "add" in into.get(edge.target, ())):
                return True
            target = case.layout.by_path.get(edge.target)
            if target is not None and target.type in MATRIX_TYPES:
                return False
            seen.add(edge.target)
            front.append(edge.target)
    return len(seen) > 1


def _weigh_profile(case: Case, weigh: Weighing, *, large: bool, last: bool) -> None:
    profile = case.activations
    if len(profile) < 2 or not profile.ratio > 0:
        return
    gain = profile.per_layer
    towards = gain > GAIN if large else gain < 1 / GAIN
    said = f"activations change by a factor of {number(gain)} per layer at the first step"
    edge = GAIN if large else 1 / GAIN
    if towards:
        weigh.speaks(said, 2.0, gain, edge)
    elif len(profile) >= 3 and not last:  # the last layer's scale reaches only the loss, not another layer
        weigh.against(f"{said}, which is not much", 1.5, gain, edge)


def _weigh_course(case: Case, weigh: Weighing, *, large: bool) -> None:
    guess = guessing_loss(case)
    if large and guess > 0 and case.loss.initial > 3 * guess:
        weigh.speaks(
            f"the first loss is {number(case.loss.initial)}; guessing would give {number(guess)}",
            1.0 if case.loss.initial < TIMES * guess else 2.5,
            case.loss.initial,
            guess,
        )
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    elif poor(case) > POOR:
        weigh_poverty(case, weigh, 1.0)
    elif not large and case.learned and (share := _constant(case)) < CONSTANT:
        weigh.speaks(f"outputs vary with the input by {number(share)} of their size only, to the end: what was learnt "
                     "is a constant", 1.5, share, CONSTANT)  # fmt: skip
    elif large and poor(case) > HARDLY:
        weigh.against(f"the loss comes down to {percent(poor(case))} of that of guessing by the classes' frequencies",
                      1.0, poor(case), HARDLY)  # fmt: skip
    elif case.learned:
        said = f"the model learns anyway: the loss fell by {percent(case.loss.relative)}"
        weigh.against(said, 3.5, case.loss.relative)


def _constant(case: Case) -> float:
    """Return the variation of the last outputs over the batch, as a share of their size; NaN if unknown."""
    seen = [out for call in calls(case)[-1:] for out in call.of.outputs if out.scale > 0]
    return max((out.across / out.scale for out in seen), default=float("nan"))


def _remedy(case: Case, wrong: list[Weight]) -> Remedy:
    bounded = any(layer.type in ("Sigmoid", "Tanh") for layer in case.layout.layers)
    call = "torch.nn.init.xavier_uniform_" if bounded else "torch.nn.init.kaiming_normal_"
    extra = "" if bounded else ', nonlinearity="relu"'
    code = "\n".join(f"{call}(model.get_submodule({w.layer.path!r}).weight{extra})" for w in wrong)
    return Remedy("Initialise the weights for the number of inputs of each layer.", code, (once_made(code),))


CAUSE = Cause(
    module=__name__,
    title="Initial weights of the wrong scale",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | STALL | UNITS,
    entails=frozenset({"attention_collapse", "dead_relu", "saturating_activation", "vanishing_depth"}),
    judge=judge,
    page=__doc__ or "",
)
