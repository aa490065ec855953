"""The channels of images are interleaved: the shape says (C, H, W), and the numbers lie in the order (H, W, C).

What it is
    Images come as (H, W, C) from numpy, PIL or a file, and torch's layers want (C, H, W). A ``view`` or ``reshape`` to
    that shape keeps the order of the numbers: each "channel" then holds a third of the picture, with red, green and
    blue side by side. ``permute`` moves the axes.

Symptoms
    The network trains, and is worse than it should be: every convolution sees a scrambled picture. Nothing raises.

Evidence
    Neighbouring pixels of an image are alike, and the less so, the farther they lie apart. Where C channels are
    interleaved, the next pixel's number of the same channel lies C numbers away: numbers at that distance are more
    alike than those at the distances before and behind it. It is read in the first batches, of images with 3 or 4
    channels. Pictures of which all channels are equal do not show it.

What to do
    Move the axis with ``permute`` where the tensor is made, and look at one image that is drawn back from the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence.inputs import batches
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

ALIKE = 0.25
"""Least correlation of numbers C apart: below it the inputs are no smooth images."""
CLEAR, SURE = 0.08, 0.2
"""Difference of the two correlations from which on channels look interleaved, and surely are. Of the photographs that
come with scikit-learn, in pieces of 8 to 64 pixels, scaled and standardised, it is at least 0.19 where a view made
(C, H, W) of (H, W, C), and at most 0.03 where axes were moved."""
PICTURE = 4


def judge(case: Case) -> Finding | None:
    """Weigh the likeness of numbers that lie C apart against that of neighbours."""
    for fact in batches(case):
        like = fact.likeness
        if like is None or len(fact.shape) != PICTURE or like.apart < ALIKE or like.apart < like.beside + CLEAR:
            continue
        channels, height, width = fact.shape[1:]
        weigh = Weighing()
        weigh.speaks(
            f"numbers of an image that lie {channels} apart have a correlation of {number(like.apart)}, and those one "
            f"more or less apart {number(like.beside)}: pixel follows pixel, each with its {channels} channels",
            5.0 if like.apart >= like.beside + SURE else 3.6, like.apart, like.beside,
        )  # fmt: skip
        return weigh.conclude(
            f"channels of images that are interleaved: inputs of shape {list(fact.shape[1:])} whose numbers lie in the "
            f"order ({height}, {width}, {channels})",
            Remedy(
                "Move the axis of the channels with permute: view and reshape leave the numbers where they are.",
                f"x = x.view(-1, {height}, {width}, {channels}).permute(0, 3, 1, 2)",
            ),
            step=0,
            failure=case.trouble.name or "scrambled images",
        )
    return None


CAUSE = Cause(
    module=__name__,
    title="Channels of images are interleaved",
    tier=Tier.SPECIFIC,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="forward",
)
