"""Padding counts in the loss, or what should count is masked away.

What it is
    Sequences of different lengths are filled up with a padding token. If its positions count, the loss is mostly
    about padding, which is easy, and the rest is hardly learnt. If the mask is the wrong way round, only padding
    counts. If padding has the id of a real label, that label is never learnt.

Symptoms
    The loss falls quickly to a small value, and the model answers padding everywhere.

Evidence
    Target tokens are compared with input tokens: padding is one and the same token at the ends of rows of different
    length, in the input and in the target alike. It counts if it is not the ignored id, has no weight of zero and
    is not masked where single elements of the loss are multiplied. A label that is ignored and stands between
    labels that count, at tokens of several kinds, is a real one, unless parts of words are left out on purpose.
    Short padding does little harm and is left alone, and so are pictures, where one class may fill the border.

What to do
    ``ignore_index`` of the cross entropy, or targets of -100 where the input is padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.targets import TargetsFact

SOME, MOST = 0.25, 0.5
"""Shares of the counted targets that are padding: the least that is evidence, and the majority."""

LOST = (0.02, 0.6)
"""Range of the share of labels inside sentences that are ignored: in a masked language model most are, on purpose."""
KINDS = 4
"""Number of different tokens from which the ignored id is a label of words: one kind alone may be a special token."""


def judge(case: Case) -> Finding | None:
    """Weigh padding that counts, masks that leave nothing, and ignored labels of each loss."""
    for slot in targets.slots(case):
        found = _padding(case, slot) or _nothing_left(case, slot) or _real_label(case, slot)
        if found is not None:
            return found
    return None


def _padding(case: Case, slot: TargetsFact) -> Finding | None:
    tokens = slot.tokens
    if tokens is None:
        return None
    share, pad, mask, weigh = tokens.padded, tokens.pad, tokens.mask, Weighing()
    layer = targets.layer_of(case, slot)
    if mask is not None and mask.padding > 0.5 > 2 * mask.rest:
        weigh.speaks(
            f"the mask lets {percent(mask.padding)} of the padding count and {percent(mask.rest)} of the rest",
            7.0, mask.padding, mask.rest,
        )  # fmt: skip
        return weigh.conclude(
            "a mask that is the wrong way round: only padding counts in the loss",
            Remedy("Turn the mask round.", f"mask = (target != {pad}).float()"),
            layer=layer, step=0, failure="learning of padding",
        )  # fmt: skip
    # Without such a mask, padding counts unless the loss ignores its id.
    if share < SOME or pad is None:
        return None
    weigh.speaks(
        f"{percent(share)} of the targets that count are padding (token {pad}), in "
        f"{percent(tokens.padded_rows)} of the rows", 5.2 if share >= MOST else 3.3, share, SOME,
    )  # fmt: skip
    weigh.speaks(f"the loss ignores id {slot.ignore}, which is not the padding", 0.5, slot.ignore)
    return weigh.conclude(
        f"padding that counts in the loss: token {pad} makes up {percent(share)} of the targets",
        Remedy("Have the loss ignore the padding.",
               f"criterion = torch.nn.CrossEntropyLoss(ignore_index={pad})"),
        layer=layer, step=0, failure="learning of padding",
    )  # fmt: skip


def _real_label(case: Case, slot: TargetsFact) -> Finding | None:
    """Weigh a class that the loss ignores because padding has its id."""
    tokens, ignore = slot.tokens, slot.ignore
    if tokens is None:
        return None
    share, kinds = tokens.lost, tokens.lost_kinds
    if not LOST[0] <= share <= LOST[1] or kinds < KINDS:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{percent(share)} of the labels inside the sentences are {ignore}, between labels that count, and the loss "
        f"ignores {ignore}", 2.5, share, LOST[0],
    )  # fmt: skip
    weigh.speaks(f"they belong to {kinds} different tokens: it is a label of words, and not of padding", 0.7, kinds)
    return weigh.conclude(
        f"a label that is never learnt: {ignore} is ignored as padding and stands at real tokens as well",
        Remedy(
            "Give padding an id that is no label.",
            "labels = torch.full((batch, longest), -100)  # and CrossEntropyLoss(ignore_index=-100)",
        ),
        layer=targets.layer_of(case, slot), step=0, failure="class that is never learnt",
    )  # fmt: skip


def _nothing_left(case: Case, slot: TargetsFact) -> Finding | None:
    """Weigh a mask of only zeros."""
    values = case.loss.finite.values
    if slot.mask_zeros != 1.0 or not len(values) or not (values == 0).mean() > 0.9:
        return None
    weigh = Weighing()
    weigh.speaks("the mask that multiplies the loss is zero everywhere", 5.0)
    weigh.speaks(f"the loss is exactly 0 in {number(int((values == 0).sum()))} steps", 2.0, 0.0)
    return weigh.conclude(
        "a mask that leaves nothing of the loss",
        Remedy("Check the mask: no target counts.", "assert mask.any()"),
        step=0, failure="loss of zero", equivalent=("target_out_of_range",),
    )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="Padding counted in the loss, or targets masked",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    entails=frozenset({"labels_degenerate", "class_imbalance"}),
    page=__doc__ or "",
)
