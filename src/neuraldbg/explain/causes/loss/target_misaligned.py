"""Targets are paired with the wrong inputs: reversed, shifted, sorted another way, or of the wrong position.

What it is
    Inputs and targets went through the pipeline on different ways: one was shuffled, sorted or reversed without the
    other, or is one row off. In a language model the target of a position is the next token; without the shift it is
    the token itself, and with two shifts the one after the next. Or the scores were brought into the order of the
    targets by ``view`` where ``transpose`` is meant: the shapes fit, but each prediction is put together of scores of
    other positions.

Symptoms
    The loss stays at the level of guessing though the data are fine, and then perhaps falls slowly by learning samples
    by heart. A language model whose target is its own input reaches a loss of nearly zero and can only copy.

Evidence
    A few hundred samples of the first batches are kept. If the inputs predict the targets no better than shuffled ones
    (leave-one-out kernel regression), but well under another order, the pairing is wrong, whatever the network does.
    Tried are targets reversed inside a batch, shifted by one or two rows, and those of the batch before or after. The
    tokens of a language model are compared exactly; where labels belong to tokens, as in tagging, it is also tried
    whether the token at the mirrored position (the last for the first) predicts the label better. Changes of shape
    between the last layer and the cross entropy are repeated on a tensor of indices, which shows whether the scores of
    one prediction are the outputs of one position. If no order fits,
    labels may as well be random: that is label_noise, and the two cannot be distinguished.

What to do
    Shuffle, sort and filter inputs and targets together, by the same index. Change the order of axes by ``transpose``
    or ``permute``, never by ``view``.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.kinds import SourceLine
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetsFact

EXACT = 0.98
"""Share of equal tokens from which an offset is certain."""
NOT = 0.8
TOKENS = 200
FITS, FAILS = 8.0, 6.0
"""Standard deviations of permuted targets above which an order fits, and below which it does not."""
AGAIN = 30
CLEARLY, HALF = 0.1, 0.5
"""Least share of labels that mirrored tokens predict beyond a constant guess, five standard deviations of 500 labels;
share of the initial loss below which the labels are learnt, and of labels that are copies."""
NEXT = "targets = tokens[:, 1:]\nlogits = model(tokens[:, :-1])  # position t predicts token t + 1"


def judge(case: Case) -> Finding | None:
    """Weigh scores that are cut by a view, shifted and mirrored tokens, then targets of other samples."""
    cut = next((term for _, term in targets.readings(case) if term.scattered), None)
    if cut is not None:
        return _cut(case, cut)
    for slot in targets.slots(case):
        found = _tokens(case, slot) or _mirrored(case, slot) or _order(case, slot) or _changing(case, slot)
        if found is not None:
            return found
    return None


def _cut(case: Case, term: LossTerm) -> Finding:
    """Weigh the indices of the scores that a softmax joins in one prediction."""
    before, after = _sizes(term.scattered), _sizes(term.input_shape)
    weigh = Weighing()
    weigh.speaks(
        f"a view or reshape cuts the scores of shape {before} into {after}: the {term.classes} scores of one "
        "prediction are of several positions and several classes", 7.0, after, before,
    )  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        f"predictions and targets of different positions that are paired: {before} is made {after} by a view or "
        "reshape, which does not move the class axis",
        Remedy("Move the class axis with transpose or permute: view and reshape keep the order of the numbers.",
               "loss = F.cross_entropy(logits.transpose(1, 2), targets)  # (N, T, C) to (N, C, T)\n"
               "# or: F.cross_entropy(logits.flatten(0, 1), targets.flatten())"),
        layer=term.layer, step=0, failure=case.trouble.name or "slow learning", tier=Tier.CERTAIN,
        at=_line(case), doing="the scores are cut",
    )  # fmt: skip


def _line(case: Case) -> SourceLine | None:
    """Return the line of the loss that reshapes, None if there is none: the view may be before it."""
    places = case.run.known(PlacesFact)
    lines = places.lines.get("loss", ()) if places is not None else ()
    found = [line for line in lines if re.search(r"\b(view|reshape|unflatten)\(", line.text)]
    return found[0] if len(found) == 1 else None


def _sizes(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _tokens(case: Case, slot: TargetsFact) -> Finding | None:
    if slot.tokens is None or slot.tokens.compared < TOKENS or not slot.alone:
        return None
    match = slot.tokens.match
    if match.get("1", 1.0) > NOT:
        return None
    # Only an offset that fits nearly every token is a fault of the shift.
    offset = next((k for k in ("0", "2", "-1", "-2") if match.get(k, 0.0) >= EXACT), None)
    if offset is None:
        return None
    weigh, share = Weighing(), match[offset]
    where = {"0": "the input token of the same position", "2": "the token after the next", "-1": "the token before",
             "-2": "the token before the last"}[offset]  # fmt: skip
    weigh.speaks(
        f"{percent(share)} of the targets are {where}, and {percent(match['1'])} the next token",
        3.0 if offset == "0" else 6.5, share, EXACT,
    )  # fmt: skip
    if offset == "0":  # an autoencoder predicts its input on purpose, and cannot copy it that easily
        level = math.log(max(2, slot.distinct))
        if case.loss.last < 0.1 * level:
            weigh.speaks(f"the loss fell to {case.loss.ending}: copying is all there is to learn", 1.2, case.loss.last)
        else:
            said = f"the loss does not go to zero but to {case.loss.ending}, so the model cannot simply copy"
            weigh.against(said, 1.5, case.loss.last)
    return weigh.conclude(
        f"targets that are not shifted by one: each position has to predict {where}",
        Remedy("Shift the targets by one position, once: a model that shifts labels itself is given them unshifted.",
               NEXT),
        layer=targets.layer_of(case, slot), step=0, failure="learning of the wrong token",
    )  # fmt: skip


def _mirrored(case: Case, slot: TargetsFact) -> Finding | None:
    """Weigh labels of tokens in the reverse order of their sentences."""
    order = slot.tokens.order if slot.tokens is not None else None
    if order is None:
        return None
    given, mirrored, base = order.given, order.mirrored, order.base
    # Reversing a sequence is a common exercise: there the labels are the tokens themselves.
    if mirrored - base < CLEARLY or given - base > 0.25 * (mirrored - base) or order.copies > HALF:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"tokens predict {percent(mirrored)} of the labels at mirrored positions, {percent(given)} of those at their "
        f"own (the most frequent label is {percent(base)})", 5.0, mirrored, given,
    )  # fmt: skip
    if case.loss.last < HALF * case.loss.initial:
        said = f"the network learns the labels anyway: the loss went {case.loss.course}"
        weigh.against(said, 2.0, case.loss.last, HALF * case.loss.initial)
    else:
        weigh.speaks(f"the loss fell only from {number(case.loss.initial)} to {case.loss.ending}", 1.0, case.loss.last)
    return weigh.conclude(
        "targets in the reverse order: the labels of a sequence belong to its mirrored positions",
        Remedy("Bring tokens and labels into the same order.",
               "labels = labels.flip(0)  # for each sequence, before it is padded"),
        layer=targets.layer_of(case, slot), step=0, failure=case.trouble.name or "slow learning",
    )  # fmt: skip


def _order(case: Case, slot: TargetsFact) -> Finding | None:
    fit = slot.fit
    if fit is None:
        return None
    best, given = fit.best_score, fit.score
    if not (fit.best_z > FITS and fit.z < FAILS and given < 0.5 * best and best > 0.05):
        return None
    if not case.alone or slot.stream not in (None, case.stream):
        return None  # a critic gets real and generated samples in turn, so their order is no fixed relation
    weigh = Weighing()
    weigh.speaks(
        f"targets {fit.best} follow from the inputs of {fit.samples} samples (R^2 {number(best)}, "
        f"{number(fit.best_z)} standard deviations above shuffled ones)", 5.0, best, given,
    )  # fmt: skip
    weigh.speaks(f"in the given order they do not (R^2 {number(given)})", 1.5, given)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        f"targets paired with the wrong inputs: they fit when {fit.best}",
        Remedy("Index inputs and targets by one permutation, in the line where they are shuffled or sorted apart: "
               "afterwards it is too late.",
               "order = torch.randperm(len(x))  # where x and y are still in the order they were read\n"
               "x, y = x[order], y[order]"),
        layer=targets.layer_of(case, slot), step=0, failure=case.trouble.name or "no learning",
    )  # fmt: skip


def _changing(case: Case, slot: TargetsFact) -> Finding | None:
    """Weigh inputs that have another label each time: labels are shuffled in every epoch, apart from the inputs."""
    fit, term = slot.fit, targets.supervised(case, slot)
    if fit is None or term is None or term.reduction == "none" or fit.again < AGAIN or fit.z > 4:
        return None
    again, agree, counts = fit.again, fit.agree, list(slot.histogram.values())
    chance = sum((c / max(1, sum(counts))) ** 2 for c in counts)
    if agree / again > chance + 0.15 or chance > 0.7:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"of {again} inputs that came again {percent(agree / again)} had the same label, as many as by chance "
        f"({percent(chance)})", 4.0, agree / again, chance,
    )  # fmt: skip
    weigh.speaks("inputs do not predict the labels better than shuffled ones do", 1.0, fit.z, 4.0)
    if not case.learned:
        weigh.speaks(f"the loss does not fall for good: {case.loss.course}", 0.5, case.loss.relative)
    return weigh.conclude(
        "targets paired with the wrong inputs: the same input has another label each time",
        Remedy("Shuffle inputs and targets together.",
               "order = torch.randperm(len(x))\nx, y = x[order], y[order]  # one index for both"),
        layer=term.layer, step=0, failure=case.trouble.name or "no learning", equivalent=("label_noise",),
    )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="Targets paired with the wrong inputs",
    tier=Tier.SPECIFIC,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
