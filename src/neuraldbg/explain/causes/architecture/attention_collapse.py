"""Attention locks on single positions: its entropy falls to almost 0 while the scores grow.

What it is
    Attention weights are a softmax of scores, products of queries and keys. If the scores grow without bound the
    softmax becomes an arg max: each query sees one position, and no gradient reaches the others.

Symptoms
    The loss stalls or jumps after a time of good progress, often at a high learning rate and in deep or wide models.

Evidence
    The entropy of the weights is read head by head, relative to that of equal weights, and with it the largest score.
    Single sharp heads are healthy (they copy or look one position back); most heads of most layers with an entropy near
    0, together with a training that suffers, are not. Where an update was as large as the weights themselves before it,
    the size of the updates is to blame.

What to do
    Normalise queries and keys (qk-norm), scale scores by 1/sqrt(d), warm up and lower the learning rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.layer_facts import above_guess, as_number, readings
from neuraldbg.explain.evidence.wording import listing, moved, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.attention import AttentionFact
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Reading
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.attention import AttentionPlace

SHARP = 0.1
"""Entropy relative to that of equal weights, below which a layer attends to single positions (Zhai et al. 2023,
"Stabilizing transformer training by preventing attention entropy collapse", where it comes with unstable training)."""
MOST = 0.5
"""Least share of the heads, and of the layers, without entropy."""
POOR = 0.7
"""Share of the loss of a constant guess above which little was learnt."""
LARGE = 50.0
"""Size of scores from which a softmax keeps only one: exp(-50) is negligible beside 1."""
ALL_NEW = 1.0
"""Update as large as the weights: attention after it no longer depends on how the model was built."""


def judge(case: Case) -> Finding | None:
    """Weigh the layers whose attention ended without entropy."""
    found = readings(case, AttentionFact, lambda fact: fact.places, lambda place: place.layer)
    sharp = {layer: seen for layer, seen in found.items() if _sharp(seen[-1])}
    if not sharp or len(sharp) < MOST * len(found):
        return None
    # The layer that lost its entropy first is named; others may follow from it.
    layer = min(sharp, key=lambda path: (_since(sharp[path]).step, case.depth(path)))
    seen, began = sharp[layer], _since(sharp[layer])
    end = seen[-1].of.entropy
    weigh = Weighing()
    weigh.speaks(
        f"in {len(sharp)} of {len(found)} layers attention sees single positions: at {called(layer)} its entropy is "
        f"{percent(end)} of that of equal weights", 3.0, end, SHARP,
    )  # fmt: skip
    if began is not seen[0]:
        first = seen[0].of.entropy
        weigh.speaks(f"it fell from {percent(first)} at step {seen[0].step}", 0.7, first, SHARP)
    score = as_number(seen[-1].of.logit)
    if np.isfinite(score) and score > LARGE:
        weigh.speaks(f"its scores reach {number(score)}", 1.5, score, LARGE)
    # After updates that replaced the weights, the collapse is their consequence.
    updates = case.scalar("update_ratio").finite().between(0, began.step).values
    if len(updates) and updates.max() > ALL_NEW:
        largest = float(updates.max())
        weigh.against(f"it came after updates as large as {moved(largest)}", 4.0, largest, ALL_NEW)
    # Sharp attention is right in many trained models: only a loss that suffers makes it a fault.
    share = above_guess(case)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    elif share > POOR:
        weigh.speaks(f"the loss ends at {percent(share)} of that of guessing", 1.5, share, POOR)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 4.0, case.loss.relative)
    else:
        weigh.against("the loss shows no consequence", 1.0)
    return weigh.conclude(
        f"attention that sees single positions: its entropy at {listing(list(sharp))} has fallen to almost 0",
        Remedy(
            "Normalise queries and keys before their product, keep the scale 1/sqrt(d), and lower the learning rate.",
            "q, k = torch.nn.functional.normalize(q, dim=-1), torch.nn.functional.normalize(k, dim=-1)\n"
            "scores = scale * q @ k.transpose(-2, -1)  # scale: a parameter that begins at 10",
        ),
        layer=layer,
        step=began.step,
        failure=case.trouble.name or "attention without entropy",
    )


def _sharp(reading: Reading[AttentionPlace]) -> bool:
    return reading.of.entropy < SHARP and reading.of.low >= MOST


def _since(seen: list[Reading[AttentionPlace]]) -> Reading[AttentionPlace]:
    """Return the first reading from which all later ones are sharp."""
    first = seen[-1]
    for reading in reversed(seen):
        if not _sharp(reading):
            break
        first = reading
    return first


CAUSE = Cause(
    module=__name__,
    title="Attention collapsed onto single tokens",
    tier=Tier.STATISTICAL,
    explains=BLOW_UP | STALL,
    judge=judge,
    page=__doc__ or "",
)
