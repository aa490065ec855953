"""The generator, or the code, stops varying: the same output whatever goes in.

What it is
    A generator that found one picture the critic accepts gives it for every noise. A variational autoencoder whose code
    carries nothing gives the mean picture for every input. An encoder trained to make two views agree maps all inputs
    to one point.

Symptoms
    The loss may look fine. Samples look alike; codes of different inputs are the same.

Evidence
    The spread of the outputs over a batch is read over the run, and compared with that of the real data, or of the
    inputs, and so are their directions: a generator may vary inside the one mode that it draws. Outputs that hardly
    vary in the first steps are usual: the cause is named when they varied before, or when nothing changes for long,
    while noise and inputs do vary. A classifier that always gives one answer has other
    causes. Of a variational autoencoder the means of the code are read, the gradients that both terms send to it, and,
    from the graph of the loss, how much one unit's divergence weighs against one element of the reconstruction.

What to do
    GAN: penalise the critic's gradient at real data (R1) and let both networks learn at about the same rate; minibatch
    discrimination. VAE: give the KL
    term the weight that it has in the ELBO, for good: a weight that only grows from 0 to the old one collapses later;
    where it has that weight, leave each unit of the code some nats for free. Pairs of views: a stop-gradient with a
    predictor, or a term that keeps the variance.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.adversaries import adversaries
from neuraldbg.explain.evidence.gaussian_code import REWEIGHED, SQUARES, balance, came_alive, codes, drowned
from neuraldbg.explain.evidence.layer_facts import calls
from neuraldbg.explain.evidence.wording import literal, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.gaussian_code import Balance, Code
    from neuraldbg.explain.evidence.layer_facts import Call
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.kinds import SourceLine
    from neuraldbg.nouns.facts.outputs import Variety

COLLAPSED = 0.1
"""Spread of the outputs over a batch, relative to that of real data or inputs, below which they have collapsed."""
FELL = 3.0
"""Least ratio of the earlier spread to the final one, where the run is shorter than LONG."""
NEVER = 0.005
"""Relative spread at every reading, below that of fresh weights (some hundredths)."""
FAINT = 0.05
"""Size of noise, usually drawn from a standard normal, below which it hardly affects a generator."""
LONG = 1000
SHORT = 300
LATE = 30
"""Steps after which outputs should vary."""
SETTLED = 256
"""Steps after which outputs of a generator that learns to draw several modes have several directions."""
READINGS = 3
"""Number of readings from then on that must all show one direction."""
ONE_WAY = 0.05
"""One minus the mean cosine of two outputs, over that of real data, below which all outputs have one direction."""
MANY_WAYS = 0.1
"""One minus the mean cosine of real data, below which directions do not tell one from another."""
LAST = 2
"""Number of last readings that must all show the collapse."""
POINT = 0.01
"""One minus the mean cosine of two codes, below which all codes have one direction."""
WIDER, SPREAD = 10.0, 2.0
"""Ratios of the outputs' variation, and of one minus their mean cosine at its largest, to those of the first reading:
above both, a term of the loss keeps the variance, and what the outputs have in common is a mean."""
PRIOR = 0.1
"""Size of the means of a code up to which it is the prior: a KL divergence of 0.005 a unit."""
DROWNS = 10.0
"""Ratio of the divergence's gradient or weight to the reconstruction's, from which no code can be learnt."""
HEAVY = 2.0
"""Weight of the divergence, relative to that in the ELBO, from which a lower one is the remedy."""
FREE = 0.5
"""Nats of each unit of the code without a cost: a mean of 1 in size."""
GROWS = 1.3
"""Ratio of the variation of the means to that at the reading before, from which the code becomes active."""
DIVERGENCE = re.compile(r"\bexp\(|\bkl_divergence\(")
"""A part of every divergence from a standard normal distribution: the variance, or torch's own function."""
SAME_SPACE = ("bce", "mse", "squared_error", "l1", "smooth_l1", "huber")
"""Kinds of terms whose prediction has the values of the input."""
AGREEING = ("cosinesimilarity", "linalgvectornorm", "norm")
"""Operations of losses that compare directions."""
WIRING = frozenset({
    "accumulation_wiped", "clip_misplaced", "detached_graph", "double_sigmoid", "double_softmax", "loss_sign_flip",
    "missing_zero_grad", "optimizer_stale_params", "optimizer_state_lost", "optimizer_step_missing",
    "output_activation_mismatch", "param_not_in_optimizer", "target_broadcast", "update_lost", "wrong_custom_backward",
    "zero_gradient_path",
})  # fmt: skip
"""Faults of the program by which a network learns from wrong gradients, or from a part of them: two networks that train
each other then lose their balance, and a code may carry nothing."""
PENALTY = Remedy(
    "Keep the critic flat at real data (R1, Mescheder et al. 2018; for images a factor of 5 is usual), and let critic "
    "and generator learn at about the same rate.",
    "real.requires_grad_()\n"
    "(slope,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)\n"
    "critic_loss = critic_loss + 0.5 * slope.pow(2).flatten(1).sum(1).mean()",
)
"""Penalty on the critic's gradient at real data: with it a GAN of the tests that drew one of 8 modes draws all."""


def judge(case: Case) -> Finding | None:
    """Weigh generators, then codes, then pairs of views."""
    seen = calls(case)
    return _generator(case, seen) or _code(case, seen) or _point(case, seen)


def _generator(case: Case, seen: list[Call]) -> Finding | None:
    """Weigh a part whose output is another part's input, beside real data of more variety."""
    for pair in adversaries(case, seen):
        real = [call.of.inputs[0] for call in pair.real]
        spread, turned = float(np.median([v.across for v in real])), float(np.median([1 - v.alike for v in real]))
        found = _weigh_generator(case, pair.generator, pair.made, spread) if spread > 0 else None
        found = found or _weigh_one_way(case, pair.generator, pair.made, turned)
        if found is not None:
            return found
    return None


def _weigh_generator(case: Case, part: str, mine: list[Call], real: float) -> Finding | None:
    share = [(c.step, c.of.outputs[0].across / real) for c in mine]
    tail = share[-LAST:]
    noise = mine[-1].of.inputs[0] if mine[-1].of.inputs else None
    if len(share) < LAST + 1 or tail[0][0] < LATE or any(value > COLLAPSED for _, value in tail):
        return None
    if noise is None or not noise.across > 0.1 * noise.scale:
        return None
    # Outputs may vary little by nature: they must have fallen, or vary less than those of fresh weights.
    end, before = float(np.median([v for _, v in tail])), max(share, key=lambda pair: pair[1])
    fell = before[1] > FELL * end
    never = before[1] < NEVER and tail[0][0] >= LATE
    if not fell and not never and (case.run.steps or 0) < LONG:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"for different noise the outputs of {part} vary by {percent(end)} of what real data do",
        3.2 if end > COLLAPSED / 3 else 4.0, end, COLLAPSED,
    )  # fmt: skip
    if fell:
        weigh.speaks(f"at step {before[0]} it was {percent(before[1])}", 1.2, before[1], FELL * end)
    elif never:
        weigh.speaks(f"from the first step on it was never more than {percent(before[1])}", 0.7, before[1], NEVER)
    if noise.scale < FAINT:
        weigh.speaks(f"the noise that goes in is only {number(noise.scale)} in size", 1.0, noise.scale, FAINT)
    else:
        weigh.speaks("the noise that goes in varies", 0.3, noise.across, 0.1 * noise.scale)
    return weigh.conclude(
        f"generator outputs that are all alike: those of {part} vary by {percent(end)} of what real data do",
        PENALTY if noise.scale >= FAINT else _noise(noise),
        layer=part if part in case.layout.by_path else None,
        step=share[0][0]
        if never
        else next(step for step, value in share if value <= COLLAPSED and step >= min(before[0], tail[0][0])),
        failure="mode collapse",
    )


def _noise(noise: Variety) -> Remedy:
    shape = ", ".join(str(size) for size in noise.shape)
    return Remedy(
        "Draw the noise from a standard normal distribution: beside weights of a usual size it hardly counts.",
        f"noise = torch.randn({shape})",
    )


def _weigh_one_way(case: Case, part: str, mine: list[Call], real: float) -> Finding | None:
    """Weigh a generator whose outputs have one direction at every late reading, where real data have many: it sits in
    one mode, or moves from one to the next, and may vary inside it.
    """
    late = [c for c in mine if c.step >= SETTLED]
    noise = mine[-1].of.inputs[0] if mine[-1].of.inputs else None
    if len(late) < READINGS or (case.run.steps or 0) < LONG or not real > MANY_WAYS:
        return None
    if noise is None or not noise.across > 0.1 * noise.scale:
        return None
    shares = [(1 - c.of.outputs[0].alike) / real for c in late]
    if not max(shares) < ONE_WAY:
        return None
    cosines, weigh = [c.of.outputs[0].alike for c in late], Weighing()
    weigh.speaks(
        f"at all {len(late)} readings from step {late[0].step} to step {late[-1].step} the outputs of {part} for "
        f"different noise point one way: their mean cosine is at least {_cosine(min(cosines))}, that of real data "
        f"{_cosine(1 - real)}", 4.0, min(cosines), 1 - ONE_WAY * real,
    )  # fmt: skip
    weigh.speaks("the noise that goes in varies", 0.3, noise.across, 0.1 * noise.scale)
    return weigh.conclude(
        f"generator outputs of one mode at a time: those of {part} have a mean cosine of {_cosine(cosines[-1])}, real "
        f"data of {_cosine(1 - real)}",
        PENALTY,
        layer=part if part in case.layout.by_path else None,
        step=late[0].step,
        failure="mode collapse",
    )


def _cosine(value: float) -> str:
    """Write a cosine with as many digits as its distance from 1 needs: ``0.93``, ``0.9999``, never a rounded 1."""
    away = 1 - value
    if away < 1e-7:
        return "1"
    return f"{value:.{max(3, 1 - math.floor(math.log10(away)))}g}" if away < 1 else number(value)


def _code(case: Case, seen: list[Call]) -> Finding | None:
    """Weigh a model that returns its reconstruction together with mean and log variance of its code."""
    for (part, _), entries in codes(seen).items():
        tail = entries[-LAST:]
        if len(entries) < LAST + 1 or tail[0].step < LATE or not all(_prior(one) for one in tail):
            continue
        if came_alive(case, tail[-1], 2 * PRIOR):
            continue
        return _weigh_code(case, part, entries)
    return None


def _prior(code: Code) -> bool:
    """Return True if a code is a standard normal distribution for every input."""
    near_one = code.spread.across <= PRIOR and abs(code.spread.scale - 1) <= PRIOR  # variances, not their logarithms
    return code.mean.scale <= PRIOR and (code.spread.scale <= 3 * PRIOR or near_one)


def _weigh_code(case: Case, part: str, entries: list[Code]) -> Finding:
    last, weigh = entries[-1], Weighing()
    weigh.speaks(
        f"at step {last.step} the means of the code of {part} are {number(last.mean.scale)} in size: it is the prior "
        "for every input", 3.0, last.mean.scale, PRIOR,
    )  # fmt: skip
    # The gradient that the code gets, and the weights of both terms, say why: no code can be learnt.
    ratios = drowned(case)
    times = min((value for _, value in ratios), default=0.0)
    weights = balance(case, last)
    if times > DROWNS:
        weigh.speaks(
            f"at all {len(ratios)} readings (steps {ratios[0][0]} to {ratios[-1][0]}) the gradient of the divergence "
            f"is at least about {_two(times)} times that of the reconstruction", 2.0, times, DROWNS,
        )  # fmt: skip
    if weights is not None and weights.grown > REWEIGHED:
        said = f"the weight of the reconstruction beside the divergence grew {number(weights.grown)} times over the run"
        weigh.against(
            f"{said}, as with a variance that is learned: codes become active as it grows", 3.0, weights.grown
        )
    elif weights is not None and weights.times > DROWNS:
        weigh.speaks(_heavier(weights), 1.5, weights.times, DROWNS)
    elif times <= DROWNS and (case.run.steps or 0) < SHORT:
        weigh.against("the run is short: many codes become active later", 1.5, case.run.steps, SHORT)
    _weigh_course(entries, weigh)
    _weigh_outputs(case, last, weigh)
    return weigh.conclude(
        f"code that carries nothing: its means are {number(last.mean.scale)} in size for every input",
        _remedy(last, weights),
        layer=part if part in case.layout.by_path else None,
        step=entries[0].step if times > DROWNS else next(one.step for one in entries if _prior(one)),
        failure="posterior collapse",
        at=_divergence_line(case),
        doing="the divergence is computed",
        title="The code of the autoencoder carries nothing",
    )


def _divergence_line(case: Case) -> SourceLine | None:
    """Return the only line among those that compute the loss that has the form of the divergence; None if none or
    several have.
    """
    known = case.run.known(PlacesFact)
    lines = known.lines.get("loss", ()) if known is not None else ()
    found = [at for at in lines if DIVERGENCE.search(at.text)]
    return found[0] if len(found) == 1 else None


def _weigh_course(entries: list[Code], weigh: Weighing) -> None:
    """Weigh the course of the variation: a code that will become active varies more at each reading, long before it is
    large.
    """
    varied = [(one.mean.across, one.step) for one in entries]
    (before, earlier), (last, step) = varied[-2:]
    most, then = max(varied)
    if last < before and last <= min(varied)[0]:
        said = f"the means vary less and less: by {number(most)} at step {then}, by {number(last)} at step {step}"
        weigh.speaks(said, 1.0, last, most)
    elif last > GROWS * before:
        said = f"the means begin to vary: by {number(before)} at step {earlier}, by {number(last)} at step {step}"
        weigh.against(said, 1.5, last, GROWS * before)


def _weigh_outputs(case: Case, code: Code, weigh: Weighing) -> None:
    """Compare the variation of outputs and inputs, where they are in one space: logits and pixels are not."""
    out, given = code.call.of.outputs[0], code.call.of.inputs[0]
    kinds = [term.kind for term in case.terms if math.prod(term.input_shape) == math.prod(out.shape)]
    if not kinds or not set(kinds) <= set(SAME_SPACE) or not given.across > 0:
        return
    share = out.across / given.across
    if share < 2 * COLLAPSED:
        weigh.speaks(f"outputs vary by {percent(share)} of what inputs do", 1.5, share, 2 * COLLAPSED)
    else:
        weigh.against(f"outputs still vary by {percent(share)} of what inputs do", 0.7, share, 2 * COLLAPSED)


def _heavier(weights: Balance) -> str:
    said = f"the divergence has {_two(weights.times)} times the weight that it has in the ELBO"
    if weights.term.reduction == "mean" and weights.divergence == 1:
        said += f": it is a sum, and the reconstruction is a mean over {math.prod(weights.term.input_shape):,} elements"
    return said


def _two(value: float) -> str:
    """Write a number with two digits: it is measured on samples, or on one of several batches."""
    return number(float(f"{value:.2g}"))


def _remedy(code: Code, weights: Balance | None) -> Remedy:
    """Return the weight that the divergence has in the ELBO; if it has that already, a code that is free up to a limit;
    and if weights are not known, terms that are reduced alike.
    """
    if weights is None:
        return Remedy(
            "Reduce both terms alike: summed over the elements of a sample, averaged over the batch. If they are, give "
            "the KL term less weight, for good: one that only grows to the old weight collapses later.",
            'reconstruction = torch.nn.functional.mse_loss(output, x, reduction="sum") / len(x)\n'
            "kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum() / len(x)\n"
            "loss = reconstruction + kl",
        )
    if weights.times > HEAVY:
        squares = weights.term.kind in SQUARES
        likelihood = " of a Gaussian with a tenth of the variance of the data" if squares else ""
        return Remedy(
            f"Give the KL term the weight that it has in the ELBO{likelihood}, for good: one that only grows to the "
            "old weight collapses later.",
            f"kl_weight = {1 / weights.times:.2g}  # times the weight that kl has now\n"
            "loss = reconstruction + kl_weight * kl",
        )
    whole = weights.divergence * code.mean.shape[0]
    return Remedy(
        "The KL term has about the weight of the ELBO: leave each unit of the code some nats for free. If outputs are "
        "good all the same, the decoder needs no code: take from it what it sees of its target, as by a skip.",
        "kl_of_units = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp())\n"
        f"kl = kl_of_units.mean(0).clamp(min={FREE}).sum()\n"
        f"loss = reconstruction + {literal(whole)} * kl",
    )


def _point(case: Case, seen: list[Call]) -> Finding | None:
    """Weigh an encoder whose loss compares directions and whose outputs became one point."""
    if len(case.run.streams) > 1 or not any(op in AGREEING for op in case.loss_ops):
        return None
    if any(term.kind != "unknown" for term in case.terms):
        return None  # similar targets (temperatures in kelvin) need similar outputs
    made: dict[str, list[Call]] = {}
    for call in seen:
        if call.of.outputs:
            made.setdefault(call.of.part, []).append(call)
    for part, mine in made.items():
        spread = [(c.step, 1 - c.of.outputs[0].alike, c) for c in mine]
        tail = spread[-LAST:]
        if len(spread) < LAST + 1 or any(not value < POINT for _, value, _ in tail) or tail[0][0] < LATE:
            continue
        # Equal inputs, and scores of one number, have one direction without a fault.
        given = mine[-1].of.inputs[0] if mine[-1].of.inputs else None
        if given is None or not given.across > 0.1 * given.scale or not _wide(mine[-1].of.outputs[0]):
            continue
        if not spread[0][1] > 5 * tail[-1][1]:
            continue
        weigh = Weighing()
        weigh.speaks(
            f"outputs of {part} for different inputs point one way (1 - cosine is {number(tail[-1][1])})", 3.7,
            tail[-1][1], POINT,
        )  # fmt: skip
        weigh.speaks(f"at step {spread[0][0]} it was {number(spread[0][1])}", 1.2, spread[0][1], POINT)
        first, last = (call.of.outputs[0].across for call in (mine[0], mine[-1]))
        widest = max(value for _, value, _ in spread)
        if last > WIDER * first and widest > SPREAD * spread[0][1]:
            weigh.against(
                f"they vary more than at first, by {number(last)} and not {number(first)}, and had spread to "
                f"{number(widest)}: something keeps their variance", 2.5, last, WIDER * first,
            )  # fmt: skip
        return weigh.conclude(
            f"code that became one point: those of {part} have a mean cosine of {_cosine(1 - tail[-1][1])}",
            Remedy(
                "Stop the gradient of one of the two views and put a predictor before the other, or keep the variance.",
                "loss = -torch.nn.functional.cosine_similarity(predictor(z1), z2.detach(), dim=-1).mean()",
            ),
            layer=part if part in case.layout.by_path else None,
            step=next(step for step, value, _ in spread if value < POINT),
            failure="collapse of the code",
            title="All inputs get one code",
        )
    return None


def _wide(v: Variety) -> bool:
    """Return True if an output is a batch of codes: scores of one number all have one direction."""
    return len(v.shape) == 2 and v.shape[-1] >= 4


CAUSE = Cause(
    module=__name__,
    title="Outputs stop varying",
    tier=Tier.STATISTICAL,
    explains=frozenset(),
    judge=judge,
    effect_of=WIRING,
    page=__doc__ or "",
)
