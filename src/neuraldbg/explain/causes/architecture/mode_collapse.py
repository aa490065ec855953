"""The generator, or the code, stops varying: the same output whatever goes in.

What it is
    A generator that found one picture the critic accepts gives it for every noise. A variational autoencoder whose code
    carries nothing gives the mean picture for every input. An encoder trained to make two views agree maps all inputs
    to one point.

How it shows
    The loss may look fine. Samples look alike; codes of different inputs are the same.

How it is told apart
    The spread of the outputs over a batch is read over the run, and compared with that of the real data, or of the
    inputs. Outputs that hardly vary in the first steps are usual: the cause is named when they varied before, or when
    nothing changes for long, while noise and inputs do vary. A classifier that always gives one answer has other
    causes.

What to do
    GAN: slow the critic or use a Wasserstein loss with a gradient penalty; minibatch discrimination. VAE: weigh the KL
    term from 0 up. Pairs of views: a stop-gradient with a predictor, or a term that keeps the variance.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.layer_facts import calls
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.loss_branches import LossBranchesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Call
    from neuraldbg.explain.finding import Finding
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
LAST = 2
"""Number of last readings that must all show the collapse."""
POINT = 0.01
"""One minus the mean cosine of two codes, below which all codes have one direction."""
PRIOR = 0.1
"""Size of the means of a code up to which it is the prior: a KL divergence of 0.005 a unit."""
DROWNS = 10.0
"""Ratio of the divergence's gradient to the reconstruction's at every reading, from which no code can be learnt."""
RECONSTRUCTIONS = ("binarycrossentropy", "mseloss", "l1loss", "smoothl1loss", "huberloss", "nllloss")
AGREEING = ("cosinesimilarity", "linalgvectornorm", "norm")
"""Operations of losses that compare directions."""


def judge(case: Case) -> Finding | None:
    """Weigh generators, then codes, then pairs of views."""
    seen = calls(case)
    return _generator(case, seen) or _code(case, seen) or _point(case, seen)


def _generator(case: Case, seen: list[Call]) -> Finding | None:
    """Weigh a part whose output is another part's input, beside real data of more variety."""
    if len(case.run.streams) < 2:
        return None
    made: dict[str, list[Call]] = {}
    for call in seen:
        made.setdefault(call.of.part, []).append(call)
    for part, calls_of in made.items():
        mine = [call for call in calls_of if call.of.outputs]
        others = [call for name, theirs in made.items() if name != part for call in theirs]
        fakes = [(c.step, c.of.outputs[0]) for c in mine]
        fed = [c for c in others if any(_same(c, step, out) for step, out in fakes)]
        critics = {c.of.part for c in fed}
        real = [
            c.of.inputs[0].across for c in others
            if c.of.part in critics and c.of.inputs and not any(_same(c, step, out) for step, out in fakes)
        ]  # fmt: skip
        if not real or not np.median(real) > 0:
            continue
        found = _weigh_generator(case, part, mine, float(np.median(real)))
        if found is not None:
            return found
    return None


def _same(call: Call, step: int, out: Variety) -> bool:
    return any(
        abs(call.step - step) <= 1 and v.shape == out.shape and v.across == out.across and v.scale == out.scale
        for v in call.of.inputs
    )


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
        weigh.speaks(f"at step {before[0]} it was {percent(before[1])}", 1.2, before[1], end)
    elif never:
        weigh.speaks(f"from the first step on it was never more than {percent(before[1])}", 0.7, before[1], NEVER)
    if noise.scale < FAINT:
        weigh.speaks(f"the noise that goes in is only {number(noise.scale)} in size", 1.0, noise.scale, FAINT)
    else:
        weigh.speaks("the noise that goes in varies", 0.3, noise.across, 0.1 * noise.scale)
    return weigh.conclude(
        f"generator outputs that are all alike: those of {part} vary by {percent(end)} of what real data do",
        Remedy(
            "Train the critic with a Wasserstein loss and a gradient penalty, and slow it down against the generator.",
            "critic_loss = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty\n"
            "generator_loss = -critic(fake).mean()",
        ),
        layer=part if part in case.layout.by_path else None,
        step=share[0][0]
        if never
        else next(step for step, value in share if value <= COLLAPSED and step >= min(before[0], tail[0][0])),
        failure="mode collapse",
    )


def _code(case: Case, seen: list[Call]) -> Finding | None:
    """Weigh a model that returns its reconstruction together with mean and log variance of its code."""
    by_part: dict[str, list[tuple[Call, Variety, Variety]]] = {}
    for call in seen:
        pair = _gaussian(call)
        if pair is not None:
            by_part.setdefault(call.of.part, []).append((call, *pair))
    for part, entries in by_part.items():
        tail = entries[-LAST:]
        if len(entries) < LAST + 1 or tail[0][0].step < LATE:
            continue
        if any(mean.scale > PRIOR or spread.scale > 3 * PRIOR for _, mean, spread in tail):
            continue
        # A code that is the prior may still be learnt later, unless the divergence dominates from the start.
        call, mean, _ = tail[-1]
        out, given = call.of.outputs[0], call.of.inputs[0]
        share = out.across / given.across if given.across > 0 else float("nan")
        weigh = Weighing()
        weigh.speaks(
            f"the means of the code of {part} are {number(mean.scale)} in size: it is the prior for every input",
            3.0, mean.scale, PRIOR,
        )  # fmt: skip
        times = _drowned(case)
        if times > DROWNS:
            weigh.speaks(f"from the first step on the gradient of the divergence is at least {number(times)} times "
                         "that of the reconstruction", 2.0, times, DROWNS)  # fmt: skip
        elif (case.run.steps or 0) < SHORT:
            weigh.against("the run is short: many codes wake up later", 1.5, case.run.steps, SHORT)
        if share < 2 * COLLAPSED:
            weigh.speaks(f"outputs vary by {percent(share)} of what inputs do", 1.5, share, COLLAPSED)
        else:
            weigh.against(f"outputs still vary by {percent(share)} of what inputs do", 0.7, share, COLLAPSED)
        return weigh.conclude(
            f"code that carries nothing: its means are {number(mean.scale)} for every input",
            Remedy(
                "Let the KL term grow from 0 to its weight over the first epochs, and lower its weight.",
                "kl_weight = min(1.0, step / 5000)\nloss = reconstruction + kl_weight * kl",
            ),
            layer=part if part in case.layout.by_path else None,
            step=entries[0][0].step
            if times > DROWNS
            else next(c.step for c, m, s in entries if m.scale <= PRIOR and s.scale <= 3 * PRIOR),
            failure="posterior collapse",
        )
    return None


def _drowned(case: Case) -> float:
    """Return the least ratio of a gradient of a term without targets to that of the reconstruction; 0 if unknown."""
    pairs: dict[str, list[float]] = {}
    for _, fact in case.run.versions(LossBranchesFact):
        plain = [i for i in (0, 1) if fact.names[i].startswith(RECONSTRUCTIONS)]
        if len(plain) == 1 and fact.norms[plain[0]] > 0:
            ratio = fact.norms[1 - plain[0]] / fact.norms[plain[0]]
            pairs.setdefault(fact.pair, []).append(ratio)
    return max((min(ratios) for ratios in pairs.values() if len(ratios) >= LAST + 1), default=0.0)


def _gaussian(call: Call) -> tuple[Variety, Variety] | None:
    """Return mean and log variance among a call's outputs: two of one shape, not the first output's; else None."""
    if len(call.of.outputs) < 3 or not call.of.inputs or call.of.outputs[0].shape != call.of.inputs[0].shape:
        return None
    rest = [v for v in call.of.outputs[1:] if len(v.shape) == 2]
    for one, two in itertools.pairwise(rest):
        if one.shape == two.shape and one.shape != call.of.outputs[0].shape:
            return one, two
    return None


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
        return weigh.conclude(
            f"code that became one point: those of {part} have a mean cosine of {number(1 - tail[-1][1])}",
            Remedy(
                "Stop the gradient of one of the two views and put a predictor before the other, or keep the variance.",
                "loss = -torch.nn.functional.cosine_similarity(predictor(z1), z2.detach(), dim=-1).mean()",
            ),
            layer=part if part in case.layout.by_path else None,
            step=next(step for step, value, _ in spread if value < POINT),
            failure="collapse of the code",
        )
    return None


def _wide(v: Variety) -> bool:
    """Return True if an output is a batch of codes: scores of one number all have one direction."""
    return len(v.shape) == 2 and v.shape[-1] >= 4


CAUSE = Cause(
    module=__name__,
    title="outputs stop varying",
    tier=Tier.STATISTICAL,
    explains=frozenset(),
    judge=judge,
    page=__doc__ or "",
)
