"""Batches come ordered by class or by target: each holds little of what the data hold.

What it is
    A data set that is sorted by class, read without shuffling, gives batches of one class each. Every step pulls the
    model towards the class at hand, and the next block undoes it.

Symptoms
    The loss falls inside a block and jumps when the next class comes, again in every epoch. Accuracy at the end is that
    of the last block.

Evidence
    The labels of each batch are counted and compared with those of the whole run: little variety inside a batch,
    neighbouring batches of the same class, and a loss that jumps where the class changes. Where nearly every batch
    holds one class, and the same batches come in the same order again, the order itself is proof, and it is said even
    though the loss falls. Batches that were mixed and hold one class each from a step on, now one and now another, show
    that step. With less order than that it is said only where the loss suffers: streams of experience, a curriculum,
    tasks one after the other and losses that sample their own batches are ordered on purpose.

What to do
    ``DataLoader(..., shuffle=True)``, or shuffle once before a stream is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.late_labels import narrowed, one_class_since
from neuraldbg.explain.evidence.wording import number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetsFact

BATCHES = 20
VARIETY = 0.5
"""Share of the entropy (or spread) of the run, below which batches of shuffled data never fall."""
JUMP = 1.5
"""Least ratio of the loss after a change of class to the loss before."""

APART = 3.0
"""Distance of the means of batches, in the largest standard deviation inside one, from which they are sorted."""
MANY = 4
"""Number of classes from which blocks of one class after the other are no accident."""
EASY = 0.5
"""R^2 of a simple regression from which inputs predict the labels easily."""


def judge(case: Case) -> Finding | None:
    """Weigh the order of the targets of a supervised loss."""
    for slot in targets.slots(case):
        term = targets.supervised(case, slot)
        if term is None or slot.batches < BATCHES or slot.tokens is not None:
            continue
        if (late := _since(case, slot, term)) is not None:
            return late
        found = _classes(case, slot) if slot.kind == "nll" else _numbers(case, slot)
        if found is not None:
            return found
    return None


def _since(case: Case, slot: TargetsFact, term: LossTerm) -> Finding | None:
    """Weigh batches that were mixed, and hold one class each, or numbers close together, from a step on."""
    if slot.kind != "nll":
        return _numbers_since(case, term)
    turn = one_class_since(case, slot, term)
    if turn is None or turn.same:
        return None
    weigh = Weighing()
    turn.weigh(weigh, 4.0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.2)
    return _finish(case, weigh, f"batches ordered by class {turn.when}", turn.until, turn.since)


def _numbers_since(case: Case, term: LossTerm) -> Finding | None:
    turn = narrowed(case, term)
    if turn is None or not turn.span > APART * turn.inside:
        return None  # all of them are one value, or in other units
    weigh = Weighing()
    weigh.speaks(
        f"{turn.when} targets inside a batch differ by {number(turn.inside)} at most (standard deviation), before by "
        f"{number(turn.before)}, while the means of the {turn.readings} batches that were read lie up to "
        f"{number(turn.span)} apart", 4.5, turn.inside, turn.before,
    )  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.2)
    return _finish(case, weigh, f"batches ordered by target {turn.when}", turn.until, turn.since)


def _classes(case: Case, slot: TargetsFact) -> Finding | None:
    size = slot.samples / slot.batches
    if slot.entropy is None or slot.batch_entropy is None:
        return None
    # Miller's correction: the entropy of n labels of K classes is underestimated by (K - 1) / 2n nats.
    expected = slot.entropy - (slot.distinct - 1) / (2 * max(1.0, size))
    if slot.distinct < 2 or size < 4 or expected <= 0.1:
        return None
    share, blocks = slot.batch_entropy / expected, slot.same_next - slot.same_by_chance
    if share > VARIETY:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"labels inside a batch have {percent(share)} of the entropy that the run's labels would give them", 2.0, share,
        VARIETY,
    )  # fmt: skip
    if blocks > 0.3:
        weigh.speaks(f"{percent(slot.same_next)} of the batches have the main class of the batch before, by chance "
                     f"{percent(slot.same_by_chance)} would", 1.5, slot.same_next)  # fmt: skip
    if len(slot.switches) < slot.distinct:
        weigh.against("each class came once, as with tasks one after the other", 1.0, len(slot.switches))
    elif slot.period:
        weigh.speaks(f"the same batches come again after {plural(slot.period, 'step')}, in the same order", 0.5,
                     slot.period)  # fmt: skip
    _harm(case, weigh, slot, slot.entropy)
    return _finish(case, weigh, "batches ordered by class", 0)  # from the first batch on


def jump(case: Case, switches: Sequence[int]) -> float:
    """Return the ratio of the loss after a change of class to the loss before, median over the changes; NaN if unknown.

    The batch at the border may have both classes, so the higher loss of the two batches after the change counts.
    """
    values = dict(zip(case.loss.finite.steps.tolist(), case.loss.finite.values.tolist(), strict=True))
    ratios = [
        max(values[step], values[step + 1]) / values[step - 1]
        for step in switches
        if {step - 1, step, step + 1} <= values.keys() and values[step - 1] > 0
    ]
    return float(np.median(ratios)) if len(ratios) >= 3 else float("nan")


def _harm(case: Case, weigh: Weighing, slot: TargetsFact, entropy: float) -> None:
    """Weigh jumps of the loss where the class changes, and easy labels that are not learnt."""
    times, level = jump(case, slot.switches), case.loss.last / entropy
    score = slot.fit.score if slot.fit is not None else 0.0
    easy = score > EASY and level > 0.4
    if times > JUMP:
        weigh.speaks(f"when the class changes the loss becomes {number(times)} times what it was", 2.0, times, JUMP)
    elif easy:
        weigh.speaks(f"the inputs predict the labels easily (R^2 {number(score)}), but the loss is {percent(level)} of "
                     "the labels' entropy", 2.0, level, 0.4)  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.2)
    elif not (times > JUMP or easy) and case.learned:
        # Sorted data that is read in the same order every time is a fault even if normalisation hides the harm.
        weight = 0.5 if _sorted(slot) else 3.0
        weigh.against(f"the loss falls well anyway, {case.loss.course}", weight, case.loss.relative)


def _sorted(slot: TargetsFact) -> bool:
    """Return True if nearly every batch has one class, in blocks, and the same batches repeat in the same order."""
    blocks = slot.same_next - slot.same_by_chance
    return targets.one_class(slot) and blocks > 0.3 and slot.period > 0 and slot.distinct >= MANY


def _numbers(case: Case, slot: TargetsFact) -> Finding | None:
    spread, inside, period, size = slot.std, slot.batch_std, slot.period, slot.samples / slot.batches
    if spread <= 0 or size < 4 or inside > VARIETY * spread or slot.means_correlation < 0.5 or period < 2:
        return None
    weigh = Weighing()
    weigh.speaks(f"targets inside a batch have {percent(inside / spread)} of the spread of all targets", 2.0,
                 inside / spread, VARIETY)  # fmt: skip
    weigh.speaks(
        f"the same batches come again every {plural(period, 'step')}, their means drifting in between", 1.0, period
    )
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.2)
    elif case.learned:
        weigh.against(f"the loss falls well anyway, {case.loss.course}", 3.0, case.loss.relative)
    return _finish(case, weigh, "batches ordered by target", 0)


def _finish(case: Case, weigh: Weighing, sentence: str, step: int, since: int | None = None) -> Finding:
    return weigh.conclude(
        f"{sentence}: the data are not shuffled",
        Remedy("Shuffle the samples before they are put into batches.",
               "loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True)"),
        layer=None, step=step, since=since, failure=case.trouble.name or "forgetting from batch to batch",
    )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="Data not shuffled",
    tier=Tier.SPECIFIC,
    explains=STALL | UNITS | {"loss_spike", "gradient_spike", "loss_divergence"},
    judge=judge,
    page=__doc__ or "",
    place="forward",
)
