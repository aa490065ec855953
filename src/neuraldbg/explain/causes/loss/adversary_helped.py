"""The generator is trained to help the critic: its loss pulls the scores of what it makes as the critic's loss does.

What it is
    In a GAN the gain of one network is the loss of the other. If the loss of the generator has the target that its
    outputs have in the critic's loss, or lacks a minus, the generator learns to be recognised: it makes what the critic
    tells from real data most easily.

Symptoms
    Both losses fall towards zero together, which looks like success. Samples get worse from the first step on, far away
    from the data, and are often all alike.

Evidence
    The gradient that each loss sends to the critic's scores: of real data, of generated data in the critic's steps,
    and of generated data in the generator's steps. In a sound GAN, whatever its loss (the usual one, a negated
    minimax, hinge, least squares, Wasserstein) the generator pulls the scores of its outputs to where the critic
    pulls those of real data. Here it pulls them to where the critic pulls those of generated data, at nearly every
    reading. Which label stands for real does not matter. A gradient that is reversed on its way has one loss for both,
    and is not judged; nor is a critic that gets no data of its own.

What to do
    Give the generator's loss the target that real data have in the critic's loss, or put the minus before it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.evidence.adversaries import adversaries
from neuraldbg.explain.evidence.layer_facts import calls
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.loss import LossFact
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.adversaries import Adversaries
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Call
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.kinds import SourceLine

CLEAR = 0.9
"""Size of a pull from which nearly all scores of a batch are wanted in one direction."""
FEW = 3
"""Least number of the generator's steps that must show it."""
MOST = 0.9
"""Share of the readings that must show it: of a least-squares loss single ones say nothing."""
FELL = 0.7
"""Ratio of the last loss to the first below which a loss fell."""
TARGETS = {
    "bce": "binary_cross_entropy",
    "bce_with_logits": "binary_cross_entropy_with_logits",
    "mse": "mse_loss",
}
"""Functions of torch by the kind of term, where a target says what the loss wants of a score."""


class Reading(NamedTuple):
    """The pulls in one step of the generator and in the critic's step beside it."""

    step: int
    """The generator's step."""
    mine: float
    """The pull of the generator's loss on the scores of generated data."""
    fake: float
    """The pull of the critic's loss on the scores of generated data."""
    real: float
    """The pull of the critic's loss on the scores of real data."""

    @property
    def helps(self) -> bool:
        """Return True if the generator's loss pulls as the critic's does, away from where real data are pulled."""
        return self.mine * self.fake > 0 > self.real * self.fake


def judge(case: Case) -> Finding | None:
    """Weigh the pulls on the critic's scores, of each generator."""
    for pair in adversaries(case, calls(case)):
        for critic in dict.fromkeys(call.of.part for call in pair.fake):
            read = _readings(pair, critic)
            helped = [one for one in read if one.helps]
            if len(helped) >= FEW and len(helped) >= MOST * len(read):
                return _weigh(case, pair.generator, critic, helped, len(read))
    return None


def _readings(pair: Adversaries, critic: str) -> list[Reading]:
    """Return the steps of the generator in which its pull is clear, with the pulls of the critic's step before.

    A step in which the critic sees real data, too, is the critic's; so a generator whose loss compares its outputs with
    real data is left out.
    """
    fake, real = _pulls(pair.fake, critic), _pulls(pair.real, critic)
    found = []
    for step in sorted(fake.keys() - real.keys()):
        before = max((at for at in fake.keys() & real.keys() if at < step), default=None)
        if before is None:
            continue
        reading = Reading(step, fake[step], fake[before], real[before])
        if min(map(abs, reading[1:])) >= CLEAR:
            found.append(reading)
    return found


def _pulls(seen: list[Call], critic: str) -> dict[int, float]:
    """Return the mean pull on the scores of a critic, by step; steps without one are left out."""
    found: dict[int, list[float]] = {}
    for call in seen:
        if call.of.part == critic and call.of.pull is not None:
            found.setdefault(call.step, []).append(call.of.pull)
    return {step: float(np.mean(values)) for step, values in found.items()}


def _weigh(case: Case, generator: str, critic: str, helped: list[Reading], read: int) -> Finding:
    stream, weigh, last = _stream(case, helped), Weighing(), helped[-1]
    words = case.loss_words(stream) if stream is not None else "the generator's loss"
    way, other = ("down", "up") if last.fake < 0 else ("up", "down")
    share = f"all {read}" if len(helped) == read else f"{len(helped)} of the {read}"
    weigh.speaks(
        f"in {share} steps of {generator} that were read (steps {helped[0].step} to {last.step}) "
        f"{words} pulls the scores that {critic} gives to its outputs {way}", 3.5, round(last.mine, 2), CLEAR,
    )  # fmt: skip
    weigh.speaks(
        f"the critic's own loss pulls those scores {way}, too, and the scores of real data {other}", 3.0,
        round(last.fake, 2), CLEAR,
    )  # fmt: skip
    changes = [(case.loss_of(at).initial, case.loss_of(at).last) for at in case.run.streams]
    if len(changes) == 2 and all(0 < end < FELL * begin for begin, end in changes):
        both = " and ".join(f"from {number(begin)} to {number(end)}" for begin, end in changes)
        weigh.speaks(f"both losses fall together: {both}", 0.7, changes[-1][1], FELL * changes[-1][0])
    return weigh.conclude(
        f"a generator that is trained to help the critic: {words} wants what the critic's own loss wants of the scores "
        "of generated data",
        _remedy(case, stream, critic, high=last.real > 0),
        layer=generator if generator in case.layout.by_path else None,
        step=helped[0].step,
        failure="samples that the critic tells apart",
        at=_line(case, stream),
        doing="the loss is computed",
    )


def _stream(case: Case, helped: list[Reading]) -> int | None:
    """Return the number of the generator's optimizer; None if its steps were stored together with others."""
    history = case.history
    rows = np.searchsorted(history.steps, [one.step for one in helped], side="right") - 1
    found = [int(history.stream[row]) for row in rows if row >= 0 and history.width[row] == 1]
    return Counter(found).most_common(1)[0][0] if found else None


def _line(case: Case, stream: int | None) -> SourceLine | None:
    """Return the line that computes the generator's loss; None if it is not known, or one of several."""
    known = case.run.known(PlacesFact)
    lines = known.lines.get(f"loss {stream}", ()) if known is not None else ()
    return lines[0] if len(lines) == 1 else None


def _remedy(case: Case, stream: int | None, critic: str, *, high: bool) -> Remedy:
    fact = case.run.known(LossFact, stream=stream) if stream is not None else None
    kinds = [term.kind for term in fact.terms] if fact is not None else []
    functions = {TARGETS[kind] for kind in kinds if kind in TARGETS}
    if len(functions) != 1:
        return Remedy(
            "Turn the sign of the generator's adversarial term: it must pull the scores of generated data to where the "
            "critic's loss pulls those of real data.",
            "adversarial = -adversarial  # the term of the generator's loss that holds the critic's scores",
        )
    name = critic if critic.replace(".", "_").isidentifier() else "critic"
    return Remedy(
        "Give the generator's loss the target that real data have in the critic's loss.",
        f"scores = {name}(fake)\n"
        f"wanted = torch.{'ones' if high else 'zeros'}_like(scores)  # the target of real data\n"
        f"generator_loss = torch.nn.functional.{functions.pop()}(scores, wanted)",
    )


CAUSE = Cause(
    module=__name__,
    title="Generator helps the critic",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    entails=frozenset({"mode_collapse"}),
)
