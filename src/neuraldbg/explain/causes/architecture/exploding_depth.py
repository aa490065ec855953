"""The gradient grows on its way back through the depth or through time.

What it is
    Each layer, or each time step of a recurrence, passes back more gradient than it receives. After many of them
    the first layers get gradients that are thousands of times those of the last ones, and a few long sequences can
    produce enormous ones.

Symptoms
    Sudden jumps of gradient norm and loss, NaN after a while; worse for deeper models or longer sequences.

Evidence
    The gradient is measured layer by layer. It is the cause when it grows steadily towards the input from the first
    step on, or when a recurrent model produces rare huge gradients, while weights and inputs have a usual scale and
    updates had been of usual size. If updates were too large first and gradients grew afterwards, it is the
    learning rate.

What to do
    Clip the gradient norm at the upper end of what is healthy; add normalisation; use gated recurrences.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.explain.evidence.depth_profiles import RECURRENT_TYPES, gradient_profile
from neuraldbg.explain.evidence.optimizer_steps import climbs, poor, weigh_blind
from neuraldbg.explain.evidence.record_readings import LR_MAX
from neuraldbg.explain.evidence.simpler_causes import simpler_reasons
from neuraldbg.explain.evidence.wording import literal, moved, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

RATIO = 1e3
"""Ratio of the first layer's gradient to the last one's, above which it explodes over depth."""
FIRST_LOSS = 100.0
"""Ratio of the initial loss to that of a constant guess, above which the outputs have exploded."""
HARDLY = 0.7
"""Share of the loss of a model that only knows the class frequencies, above which little was learnt."""
TIMES = 100.0
"""Ratio of a recurrent layer's values to its inputs, above which they explode through time."""
GRADIENT_TIMES = 20.0
"""Ratio of a recurrent layer's gradient to that of the other layers, above which it explodes through time; a sound
LSTM, GRU or RNN has less than 3."""
SPIKE = 20.0
"""Ratio of a gradient norm to the median, above which it is a spike."""


def judge(case: Case) -> Finding | None:
    """Weigh growth over depth at the beginning, and spikes of recurrent models."""
    if climbs(case):
        return None
    weigh = Weighing()
    forward = _weigh_forward(case, weigh)
    layer = forward or _weigh_depth(case, weigh) or _weigh_recurrence(case, weigh)
    if not weigh.items:
        return None
    measured = sum(item.weight for item in weigh.items if item.supports) >= 1  # else it is only known to be recurrent
    if case.sound_init is True and measured:
        weigh.speaks("the initial weights have a usual scale", 0.7)
    elif case.sound_init is False:
        weigh.against("the initial weights have the wrong scale, which alone does this", 3.0)
    # Growth at the first step is built into the model; a later one may be a consequence of large updates.
    built_in = weigh.items[0].statement.startswith(("in the first step", "at first"))
    if case.early_update_ratio > 0.1 and not built_in:  # else the large gradients cause the large updates
        weigh.against(f"updates were too large at once: {moved(case.early_update_ratio)}", 1.5,
                      case.early_update_ratio, 0.1)  # fmt: skip
    _weigh_others(case, weigh, built_in=built_in)
    if not built_in:
        weigh_blind(case, weigh)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5 if case.trouble.broke else 0.7)
    elif forward and poor(case) > HARDLY:
        weigh.speaks(f"the loss ends at {percent(poor(case))} of that of guessing by the classes' frequencies",
                     0.5, poor(case), HARDLY)  # fmt: skip
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 4.0, case.loss.relative)
    else:
        weigh.against("the loss shows no consequence", 1.0)
    norm = float("nan") if built_in else case.healthy_grad_norm  # exploding from the start, no step was healthy
    limit = literal(norm) if norm > 0 else "1.0"
    clip = f"torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})"
    return weigh.conclude(
        _sentence(case, layer, forward=forward is not None),
        Remedy(
            "Keep the size of what is passed on: divide sums over neighbours by their number, or add a normalisation.",
            "# in forward(), after each block or round:\nx = torch.nn.functional.layer_norm(x, x.shape[-1:])\n"
            "# a sum over neighbours: x = adj @ x / adj.sum(dim=1, keepdim=True)",
        )
        if forward is not None
        else Remedy(
            f"Clip the gradient norm at {limit}" + (", the upper end of the healthy steps" if norm > 0 else "") + ".",
            f"loss.backward()\n{clip}\noptimizer.step()",
            (before("step", clip),),
        ),
        layer=layer,
        step=0 if built_in else case.onset,
        failure="gradient explosion",
        equivalent=("init_scale_wrong",) if case.sound_init is None else (),
    )


def _weigh_others(case: Case, weigh: Weighing, *, built_in: bool) -> None:
    """Weigh reasons for which a run blows up at any depth."""
    for statement, value in simpler_reasons(case)[:2]:
        weigh.against(f"{statement}, which does this at any depth", 1.0 if built_in else 2.0, value)
    if not built_in and case.lr > LR_MAX[case.lr_class]:
        weigh.against(f"the learning rate of {number(case.lr)} is too high by itself", 2.0, case.lr)


def _weigh_forward(case: Case, weigh: Weighing) -> str | None:
    """Weigh values that grow over the depth although the weights are sound: by sums, or by one layer used many times.

    The layers' own gradients cannot show that where a layer is used many times.
    """
    profile, guess = case.activations, guessing_loss(case)
    if len(profile) < 3 or case.sound_init is not True or not case.loss.initial > FIRST_LOSS * guess:
        return None
    if not profile.ratio > (RATIO / 10 if case.loss.initial > FIRST_LOSS**2 * guess else RATIO):
        return None
    weigh.speaks(
        f"in the first step values grow from {number(float(profile.values[0]))} at {called(profile.layers[0])} to "
        f"{number(float(profile.values[-1]))} at {called(profile.layers[-1])}", 2.8, profile.ratio, RATIO,
    )  # fmt: skip
    weigh.speaks(
        f"the first loss is {number(case.loss.initial)}; guessing would give {number(guess)}",
        1.0, case.loss.initial, guess,
    )  # fmt: skip
    return profile.layers[-1]


def _sentence(case: Case, layer: str | None, *, forward: bool) -> str:
    name = called(layer or "")
    if forward:
        return f"layers that pass on more than they receive, up to {name}"
    found = case.layout.by_path.get(layer or "")
    if found is not None and found.type in RECURRENT_TYPES:
        return f"a recurrence that multiplies what passes through it: gradients of {name} grow through time"
    return "layers that each pass back more gradient than they receive" + (f", up to {name}" if layer else "")


def _weigh_depth(case: Case, weigh: Weighing) -> str | None:
    profile = case.gradients
    if len(profile) < 3 or not profile.values[-1] > 0:
        return None
    ratio = float(profile.values[0] / profile.values[-1])
    if not ratio > RATIO:
        return None
    growth = ratio ** (1 / (len(profile) - 1))
    weigh.speaks(
        f"in the first steps gradients grow from {number(float(profile.values[-1]))} at {called(profile.layers[-1])} "
        f"to {number(float(profile.values[0]))} at {called(profile.layers[0])}, {number(growth)} times per layer",
        2.8, ratio, RATIO,
    )  # fmt: skip
    if profile.monotone < 0.6:
        weigh.against("the growth is not steady from layer to layer", 1.5, profile.monotone, 0.6)
    return profile.layers[0]


def _weigh_recurrence(case: Case, weigh: Weighing) -> str | None:
    """Weigh a recurrent layer: its gradients against the other layers', its values, or rare spikes of the norm."""
    recurrent = next((layer.path for layer in case.ordered if layer.type in RECURRENT_TYPES), None)
    if recurrent is None:
        return None
    profile = gradient_profile(case, "param_grad")
    sizes = dict(zip(profile.layers, profile.values, strict=True))
    others = [value for path, value in sizes.items() if path != recurrent]
    if others and sizes.get(recurrent, 0.0) > GRADIENT_TIMES * max(others):
        ratio = float(sizes[recurrent] / max(others))
        weigh.speaks(
            f"in the first steps gradients of {recurrent} are {number(ratio)} times those of the other layers: they "
            "grow through time",
            min(2.5 + math.log10(ratio / GRADIENT_TIMES), 3.5),
            ratio,
            GRADIENT_TIMES,
        )
        return recurrent
    # Values that grow forward through time do so before any gradient.
    ratio = _through_time(case, recurrent)
    if ratio > TIMES:
        weigh.speaks(
            f"at first values of {recurrent} reach {number(ratio)} times its largest input: they grow through time",
            3.5,
            ratio,
            TIMES,
        )
        return recurrent
    # A spike may also be the gradient of an unusual loss: then it is a fault of that batch.
    norm = case.scalar("grad_norm").finite()
    usual = float(np.median(norm.values)) if len(norm) >= 5 else float("nan")
    if len(norm) and float(norm.values.max()) > SPIKE * usual:
        largest, step = float(norm.values.max()), int(norm.steps[int(np.argmax(norm.values))])
        weigh.speaks(
            f"the gradient norm of a recurrent model was {number(largest)} at step {step}, usual is {number(usual)}",
            2.5 if case.onset is None or step <= case.onset + 1 else 1.0,  # once it breaks, every gradient is large
            largest,
            SPIKE * usual,
        )
        before = case.loss.finite.between(0, (case.onset or step) - 1).values[-20:]
        loss, typical = case.loss.finite.at(step), float(np.median(before)) if len(before) else float("nan")
        if loss > SPIKE * typical > 0:
            weigh.against(f"the loss of that step is {number(loss / typical)} times the usual one, and its gradient "
                          "with it", 2.0, loss / typical, SPIKE)  # fmt: skip
    elif case.trouble.broke:
        weigh.speaks("the model is recurrent, so gradients pass through many multiplications", 0.4, recurrent)
    else:
        return None
    return recurrent


def _through_time(case: Case, recurrent: str) -> float:
    """Return the ratio of a recurrent layer's largest output at the first step to the largest input; NaN if unknown."""
    outputs = [case.run.series(row, "max") for row in case.layout.rows("activation", recurrent)]
    largest = max((float(series.values[0]) for series in outputs if len(series)), default=float("nan"))
    entering = max((max(abs(s.low), abs(s.high)) for s in case.inputs if not s.integer), default=float("nan"))
    return largest / entering if entering > 0 else float("nan")


CAUSE = Cause(
    module=__name__,
    title="Gradients grow from layer to layer",
    tier=Tier.STATISTICAL,
    explains=BLOW_UP,
    judge=judge,
    page=__doc__ or "",
)
