"""The labels have nothing to do with the inputs: random, or wrong for most samples.

What it is
    Labels were assigned at random, read from the wrong column, or lost their order. The network can only learn how
    often each label occurs, and later the single samples by heart.

Symptoms
    The loss settles at the level of a constant guess. With enough epochs and weights it falls in training and
    rises in validation.

Evidence
    A few hundred samples of the first batches are kept, and a kernel regression tests if inputs predict the
    labels better than shuffled ones do. If it finds nothing and the network finds nothing, labels are likely random.
    Of several heads, one alone may have such targets: then the same inputs predict the targets of the other heads. A
    task that needs more than nearness of inputs, such as parity, looks just the same, so that this is never said with
    certainty, and is only mentioned where the inputs look like independent numbers: what people photograph, measure or
    write has structure, and labels that belong to it follow that at least a little. If another order of the labels
    fits it is target_misaligned; a shuffle of the labels alone fits no order, and the two cannot be distinguished.

What to do
    Inspect a dozen samples with their labels, and the line that pairs them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.constant_guess import guessing_loss, label_entropy
from neuraldbg.explain.evidence.metric_trends import BESIDE, held_out
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetFit, TargetsFact

NOTHING = 3.0
"""Standard deviations of shuffled labels below which the inputs do not predict the labels."""
TOLD = 20.0
"""Standard deviations of shuffled labels above which the inputs predict the labels well."""
INDEPENDENT = 0.9
"""Spread of the inputs over directions, from which they have no structure that labels could be expected to follow."""
SAMPLES = 200
STEPS, LABELS = 100, 300
"""Steps, and labels in the later readings, after which a network has learnt something if there is something to learn.
"""
PER_CLASS = 12
"""Samples of each class below which a kernel regression finds nothing."""
BEFORE, AFTER = 20, 16
"""Steps before a jump whose losses and gradients are usual ones, and from it on within which batches must be read."""
AT_ONCE, JUMP = 3, 1 / 3
"""Losses after the jump that all lie above those before it, and share of the loss of a guess by which it rises."""
NEAR, LARGER = 0.9, 5.0
"""Share of the loss of a guess from which, and up to the inverse of which, a loss is at that level; gradient norm, in
usual ones, up to which a step is usual."""
MOVED = 2.0
"""Update of the last step before the jump, in usual ones, up to which it has hardly moved the weights."""
WIDE = 256
"""Largest number of values of a sample that are read one by one."""
LITTLE = 0.15
"""Share of the labels outside the main class that a network must predict beyond that class."""


def judge(case: Case) -> Finding | None:
    """Weigh the labels of each supervised loss, or of one head beside others, that the inputs do not predict."""
    for slot in targets.slots(case):
        fit = slot.fit
        if fit is None or not (fit.z < NOTHING and fit.best_z < 2 * NOTHING):
            continue
        if slot.tokens is not None or fit.samples < SAMPLES or targets.one_sided(slot):
            continue
        term = targets.supervised(case, slot)
        if term is not None and (case.trouble.kind in ("stuck", "slow") or _no_better(case, slot, fit)):
            return _weigh(case, slot, fit, term)
        beside = _one_of_several(case, slot, fit)
        if beside is not None:
            return beside
    return _from_then_on(case)


def _from_then_on(case: Case) -> Finding | None:
    """Weigh a loss that jumped to that of a guess from one step to the next, and stays, with nothing changed but the
    labels: the step before had hardly moved the weights, and inputs, settings and loss are as before.
    """
    onset, loss, entropy = case.onset, case.loss.finite, label_entropy(case)
    guess = min(guessing_loss(case), entropy) if entropy > 0 else guessing_loss(case)
    if case.trouble.kind != "diverged" or not onset or not guess > 0 or case.changes or not case.loss.stays:
        return None
    before, after = loss.between(onset - BEFORE, onset - 1).values, loss.between(onset, onset + AFTER).values
    if len(before) < BEFORE // 2 or not len(after) or not after[:AT_ONCE].min() > before.max():
        return None
    if not float(np.median(after)) > float(np.median(before)) + JUMP * guess:
        return None
    if not NEAR * guess < case.loss.last < guess / NEAR or not case.read_within(onset, onset + AFTER):
        return None
    norms = case.scalar("grad_norm").finite().between(0, onset - 1).values[-BEFORE:]
    if len(norms) < BEFORE // 2 or norms[-1] > LARGER * float(np.median(norms)):
        return None
    moved = case.scalar("update_ratio").finite().between(0, onset - 1).values[-BEFORE:]
    if len(moved) and moved[-1] > MOVED * float(np.median(moved)):
        return None
    weigh = Weighing()
    weigh.speaks(
        f"the loss jumped from {number(float(before[-1]))} to {number(float(after[0]))} in one step, {onset}, before "
        "which the gradient was as usual: the weights had hardly moved, and what they were given was another thing",
        3.5, float(after[0]), float(before[-1]),
    )  # fmt: skip
    weigh.speaks(f"it stays at that of a guess ({number(guess)}), so that nothing is learnt from the inputs since", 1.5,
                 case.loss.last, guess)  # fmt: skip
    weigh.speaks("inputs, settings and the form of the loss are the same before and after", 1.0)
    return _finish(case, weigh, case.terms[0], onset)


def rightly(slot: TargetsFact) -> tuple[int, float, float]:
    """Return the number of labels in the later readings, the network's accuracy on them, and that of the main class."""
    rows = list(slot.predicted.classes.values()) if slot.predicted is not None else []
    labels = sum(row.labels for row in rows)
    if not labels:
        return 0, float("nan"), float("nan")
    return labels, sum(row.right for row in rows) / labels, max(row.labels for row in rows) / labels


def _no_better(case: Case, slot: TargetsFact, fit: TargetFit) -> bool:
    """Return True if the network, after enough steps, is hardly better than always predicting the main class.

    The loss may still fall if samples are memorised. Long signals, of which only averages over stretches were read,
    and many classes of a few samples each are not judged.
    """
    labels, right, main = rightly(slot)
    few = slot.distinct * PER_CLASS <= fit.samples
    sizes = [math.prod(leaf.shape[1:]) for leaf in case.leaves.values() if not leaf.image]
    seen = case.run.steps >= STEPS and labels >= LABELS
    return bool(seen and few and max(sizes, default=0) <= WIDE and right - main < LITTLE * (1 - main))


def _one_of_several(case: Case, slot: TargetsFact, fit: TargetFit) -> Finding | None:
    """Weigh one of several heads, whose targets the inputs do not predict, though they predict those of other heads."""
    term = targets.term_of(case, slot)
    if term is None or not term.direct or slot.alone or not case.alone:
        return None
    if [t.layer for t in case.terms].count(term.layer) != 1:  # two labels for one output, as in mixup
        return None
    fits = [other.fit for other in targets.slots(case) if other.slot != slot.slot and other.fit is not None]
    others = [other for other in fits if other.z > TOLD]
    if not others or case.run.steps < STEPS or not _flat(slot, term):
        return None
    weigh = Weighing()
    weigh.speaks(
        f"the inputs of {fit.samples} samples predict the targets of {term.layer!r} no better than shuffled "
        f"ones (R^2 {number(fit.score)} against {number(fit.null)})", 2.6, fit.z, NOTHING,
    )  # fmt: skip
    score = others[0].score
    weigh.speaks(f"the same inputs predict those of another head well (R^2 {number(score)})", 1.2, score)
    weigh.speaks("the output of this head hardly follows its targets", 0.8)
    return _finish(case, weigh, term)


def _flat(slot: TargetsFact, term: LossTerm) -> bool:
    """Return True if a head's outputs hardly vary, or are hardly more accurate than the main class."""
    if slot.kind in targets.REGRESSION:
        said = term.input.std if term.input is not None else None
        asked = term.target.std if term.target is not None else None
        return said is not None and asked is not None and said < 0.5 * asked
    labels, right, main = rightly(slot)
    return labels >= LABELS and right - main < LITTLE * (1 - main)


def _weigh(case: Case, slot: TargetsFact, fit: TargetFit, term: LossTerm) -> Finding:
    weigh = Weighing()
    weigh.speaks(
        f"the inputs of {fit.samples} samples predict their targets no better than shuffled ones do (R^2 "
        f"{number(fit.score)} against {number(fit.null)})", 2.6, fit.z, NOTHING,
    )  # fmt: skip
    # The network's own failure confirms the regression.
    labels, right, main = rightly(slot)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.2)
    else:
        weigh.speaks(
            f"the network is right for {percent(right)} of {labels} labels{case.counted}, and always saying the main "
            f"class would be for {percent(main)}", 1.2, right, main,
        )  # fmt: skip
    if trend := held_out(case.metric_trends):
        weigh.speaks(f"the logged {trend.phrase}, while the training loss fell", BESIDE)
    if fit.spread > INDEPENDENT:
        weigh.against(
            "the inputs look like independent numbers: labels that depend on several of them at once, or on a few only "
            "a little, would give the same picture", 3.0, fit.spread, INDEPENDENT,
        )  # fmt: skip
    if fit.again >= 30 and fit.agree == fit.again:
        weigh.against(f"each of {fit.again} inputs that came again had the same label", 0.1, fit.again)
    return _finish(case, weigh, term)


def _finish(case: Case, weigh: Weighing, term: LossTerm, since: int = 0) -> Finding:
    return weigh.conclude(
        f"labels that no longer belong to their inputs from step {since} on"
        if since
        else "labels that do not depend on the inputs, or depend on them in a way that is hard to see",
        Remedy(
            "Inspect some samples with their labels, and the line that pairs them.",
            "for sample, label in list(zip(x, y))[:12]:\n    print(sample, label)",
        ),
        layer=term.layer,
        step=since,
        failure=case.trouble.name or "no learning",
        equivalent=("target_misaligned",),
    )


CAUSE = Cause(
    module=__name__,
    title="Labels unrelated to the inputs",
    tier=Tier.STATISTICAL,
    explains=STALL | UNITS | {"loss_divergence", "loss_spike"},
    judge=judge,
    page=__doc__ or "",
    place="loss",
)
