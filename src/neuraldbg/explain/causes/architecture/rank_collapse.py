"""Tokens become alike: after some layers every position holds the same vector.

What it is
    Attention averages over positions. Without residual connections, repeated averaging makes all positions equal, twice
    as fast with each layer; what is left has rank one, and no head can distinguish positions.

Symptoms
    The loss stays at the level of predicting the same thing at every position; more layers make it worse.

Evidence
    The cosine between positions of the same sequence is read block by block. Positions that enter different and leave
    the last blocks alike, from the first steps on and to the end, are this fault. Inputs that are alike already
    (padding, constant sequences), and outputs that become alike because the model was trained to pool, are not. A
    shallow model often learns all the same, and then nothing is said: of the few such trainings that it was tried on,
    most are missed.

What to do
    Add residual connections around attention and MLP, and normalisation before them: ``x = x + attention(norm(x))`` and
    then ``x = x + mlp(norm(x))``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.layer_facts import above_guess
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.attention import AttentionFact
from neuraldbg.nouns.facts.tokens import TokensFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

ALIKE = 0.95
"""Mean cosine between positions from which they are one vector (Dong et al. 2021, "Attention is not all you need":
without skips the rest shrinks doubly exponentially with depth)."""
POOR = 0.7
"""Share of the loss of a constant guess above which little was learnt."""
STILL = 1e-5
"""Update ratio below which nothing was trained, so that the end shows no more than the beginning; 1e-3 is healthy."""
DIFFERENT = 0.7
"""Largest mean cosine of the inputs with which positions differ."""


def judge(case: Case) -> Finding | None:
    """Weigh the similarity of positions over the depth, at the beginning and at the end."""
    # Positions must enter different and leave alike, at every reading.
    read = [(step, fact.layers) for step, fact in case.run.versions(TokensFact) if len(fact.layers) > 1]
    if len(read) < 2 or not case.run.versions(AttentionFact):
        return None
    runs = [[entry.cosine for entry in layers] for _, layers in read]
    first, last = runs[0], runs[-1]
    if not (first[0] < DIFFERENT and last[0] < DIFFERENT and first[-1] > ALIKE and last[-1] > ALIKE):
        return None
    if any(run[-1] < ALIKE for run in runs):
        return None
    if case.typical_update_ratio < STILL:
        return None  # one layer of attention begins as an average, and only training shows if it stays one
    layers = [entry.layer for entry in read[0][1]]
    guilty = next(path for path, cosine in zip(layers, first, strict=False) if cosine > ALIKE)
    weigh = Weighing()
    weigh.speaks(
        f"positions that enter with a mean cosine of {number(first[0])} leave {layers[-1]} with {number(first[-1])}, "
        "before any training", 3.2, first[-1], ALIKE,
    )  # fmt: skip
    weigh.speaks(f"at step {read[-1][0]} it is {number(last[-1])}", 0.7, last[-1], ALIKE)
    # A model that learns copes with positions that are alike.
    share = above_guess(case)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.8)
    elif share > POOR:
        weigh.speaks(f"the loss ends at {percent(share)} of that of guessing", 1.8, share, POOR)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 3.0, case.loss.relative)
    return weigh.conclude(
        f"positions that become alike over the depth: from {guilty} on all hold nearly the same vector",
        Remedy(
            "Add residual connections around attention and MLP, with normalisation before them.",
            "x = x + self.attention(self.norm1(x))\nx = x + self.mlp(self.norm2(x))",
        ),
        layer=guilty,
        step=read[0][0],
        failure=case.trouble.name or "loss of positions",
    )


CAUSE = Cause(
    module=__name__,
    title="Token representations become alike",
    tier=Tier.STATISTICAL,
    explains=STALL,
    judge=judge,
    page=__doc__ or "",
)
