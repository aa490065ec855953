"""The gradient fades on its way back through the depth.

What it is
    Each layer passes back less gradient than it receives. A sigmoid passes at most a quarter, a saturated tanh
    nearly nothing; after ten such layers the first ones receive a millionth. Long recurrences do the same over
    time.

Symptoms
    The last layers train, the first ones stay where they began. The loss stays at the level of guessing or falls
    very slowly.

Evidence
    The gradient is measured layer by layer at the first steps: it falls steadily towards the input while the
    initial weights have a sound scale. With wrong initial weights the activations fade as well, from the first
    step; a gradient that is small in all layers alike belongs to a model that has converged. Of a recurrence, other
    inputs are tried on a copy: if its last output distinguishes them in double precision only, what it read has faded.

What to do
    Use ReLU-like activations, normalisation layers or residual connections; for recurrences, gates (LSTM, GRU).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import exchanged, once_made
from neuraldbg.explain.evidence.depth_profiles import RECURRENT_TYPES, saturated_share
from neuraldbg.explain.evidence.inputs import experiments
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.experiment import InputIgnored
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

RATIO = 1e-3
"""Ratio of the first layer's gradient to the last one's, below which the first layers hardly learn."""
STAYS = 1e-3
"""Sum of a layer's updates over the run, relative to its weights, below which it has not trained."""
PER_LAYER = 0.7
"""Ratio from layer to layer, below which the gradient falls geometrically."""


STEADY = (
    "for module in model.modules():",
    "    if isinstance(module, torch.nn.Linear | torch.nn.modules.conv._ConvNd):",
    '        torch.nn.init.kaiming_normal_(module.weight, nonlinearity="relu")',
)
"""Initial weights with which ReLU neither damps nor amplifies (He et al. 2015): torch's own are smaller."""


def judge(case: Case) -> Finding | None:
    """Weigh the gradient's decay over depth at the beginning, else a recurrence that forgets."""
    return _over_depth(case) or _through_time(case)


def _through_time(case: Case) -> Finding | None:
    """Weigh a recurrence whose last output depends on the inputs in double precision only."""
    layer = next((one.path for one in case.layout.layers if one.type in RECURRENT_TYPES), None)
    if layer is None or not any(one.faded for one in experiments(case, InputIgnored)):
        return None
    weigh = Weighing()
    weigh.speaks(
        "in a copy of the model with fresh weights, other inputs gave the same output to the last bit, and another one "
        "in double precision: what was read fades before it is used", 5.0, "faded",
    )  # fmt: skip
    # A model that learns anyway does not need its first inputs.
    weigh.speaks(f"{called(layer)} passes it on from step to step", 0.5, layer)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 4.0, case.loss.relative)
    return weigh.conclude(
        f"a recurrence that forgets: what {called(layer)} reads first has no effect on its last output",
        Remedy(
            "Read the output at the end of each sequence and not after its padding, or use an LSTM or GRU; shorter "
            "sequences help as well.",
            "packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)",
        ),
        layer=layer,
        step=0,
        failure=case.trouble.name or "forgetting",
    )


def _over_depth(case: Case) -> Finding | None:
    profile = case.gradients
    if len(profile) < 3 or not profile.values[-1] > 0 or (case.origin is not None and case.origin.step < 3):
        return None
    # A gradient that falls to zero at once is blocked, which is another cause.
    ratio = float(profile.values[0] / profile.values[-1])
    decay = ratio ** (1 / (len(profile) - 1)) if ratio > 0 else 0.0
    if not ratio < RATIO or cut_off(profile.values):
        return None
    weigh, layer = Weighing(), profile.layers[0]
    weigh.speaks(
        f"gradients fall from {number(float(profile.values[-1]))} at {called(profile.layers[-1])} to "
        f"{number(float(profile.values[0]))} at {called(layer)}"
        + (f", {number(decay)} times per layer" if decay else ""),
        3.0 if decay < PER_LAYER else 1.0, ratio, RATIO,
    )  # fmt: skip
    if profile.monotone < 0.6:
        weigh.against("the fall is not steady from layer to layer", 1.5, profile.monotone, 0.6)
    # The usual reason for a decay: derivatives below 1, layer by layer or step by step.
    bounded = [path for path in case.layout.by_path if case.follows(path, ("Sigmoid", "Tanh", "Softsign"))]
    recurrent = [layer_.path for layer_ in case.layout.layers if layer_.type in RECURRENT_TYPES]
    if bounded or recurrent:
        weigh.speaks(
            f"{len(bounded) or len(recurrent)} bounded or recurrent layers damp it on the way",
            1.2,
            len(bounded) or len(recurrent),
        )
    elif not case.by_hand:
        weigh.against("no sigmoid, tanh or recurrent layer that would damp it", 1.0)
    _weigh_rest(case, weigh)
    lines = [exchanged(case, path, "torch.nn.ReLU()") for path in bounded]
    exchange = "\n".join([*lines, *STEADY]) if lines and all(lines) else ""
    return weigh.conclude(
        f"layers that each pass back less gradient than they receive: {called(layer)} gets {number(ratio)} of what "
        f"{called(profile.layers[-1])} gets",
        Remedy(
            "Use ReLU-like activations and normalisation between the layers, or residual connections.",
            exchange
            or "# instead of torch.nn.Sigmoid() / torch.nn.Tanh() between the layers:\n"
            "torch.nn.LayerNorm(width), torch.nn.ReLU()\n# or, in forward(): x = x + block(x)",
            (once_made(exchange),) if exchange else (),
        ),
        layer=layer,
        step=0,
        failure="gradient vanishing",
        equivalent=("init_scale_wrong",) if case.sound_init is None else (),
    )


def _weigh_rest(case: Case, weigh: Weighing) -> None:
    if case.sound_init is True:
        weigh.speaks("the initial weights have a usual scale", 0.7)
    elif case.sound_init is False:
        weigh.against("the initial weights have the wrong scale, which alone does this", 3.0)
    if saturated(case):
        weigh.against("hidden units sit at the bounds of their activation, which alone does this", 2.0)
    if case.has_norms:
        weigh.against("normalisation layers stand between", 1.0)
    if case.trouble.kind in ("stuck", "slow"):
        weigh.speaks(case.trouble.phrase, 1.5)
    elif case.learned:
        moved = travelled(case, case.gradients.layers[0])
        stays = moved < STAYS
        if stays:
            weigh.speaks(f"all updates of {case.gradients.layers[0]} together are {number(moved)} of its weights, "
                         "so it stays as it began", 2.5, moved, STAYS)  # fmt: skip
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 1.0 if stays else 4.0,
                      case.loss.relative)  # fmt: skip
    else:
        weigh.against("the loss shows no consequence", 1.0)


def cut_off(values: npt.NDArray[np.float64]) -> bool:
    """Return True if the gradient falls to exactly zero from one layer to the next: then an operation blocks it."""
    alive = values[values > 0]
    return bool(len(alive) < len(values)) and bool(alive.min() > 1e-30)  # below that, 32-bit numbers underflow


def travelled(case: Case, layer: str) -> float:
    """Return the upper bound of a layer's movement over the run, relative to its weights; NaN if unknown.

    It is the sum of norm(update) / norm(weight) over all steps, thinned ones included.
    """
    for row in case.layout.rows("update", layer):
        site = case.layout.sites[row]
        held = [r for r in case.layout.rows("param", layer) if case.layout.sites[r].name == site.name]
        if "weight" not in site.name or not held:
            continue
        steps, size = case.run.series(row, "rms").finite(), case.run.series(held[0], "rms").finite().values
        if len(steps) > 5 and len(size) and size[0] > 0:
            # Updates are not read at every step: the mean of those read counts for all.
            return float(steps.values.mean() * (case.run.steps or len(case.history)) / size[0])
    return float("nan")


def saturated(case: Case) -> bool:
    """Return True if most values of a bounded layer were at its bounds at the first step."""
    for row in case.layout.rows("activation"):
        if case.follows(case.layout.sites[row].module, ("Sigmoid", "Tanh")):
            share = saturated_share(case, row)[1]
            if len(share) and share[0] > 0.5:
                return True
    return False


CAUSE = Cause(
    module=__name__,
    title="Gradients vanish from layer to layer",
    tier=Tier.STATISTICAL,
    explains=STALL,
    judge=judge,
    page=__doc__ or "",
)
