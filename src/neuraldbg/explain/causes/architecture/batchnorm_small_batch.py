"""Batch normalisation takes its statistics over too few values.

What it is
    Batch norm subtracts the mean of the batch and divides by its standard deviation, channel by channel. With two
    values a channel every output is plus or minus one, whatever went in; with a few, the statistics are noise. In
    evaluation mode the running averages are used instead, which are those of no single batch.

Symptoms
    Training is noisy or stalls, and the loss in evaluation mode is far from that in training mode.

Evidence
    The values of a channel's statistic are counted in training passes: samples times positions. The cause is named from
    four values down, or for batches of at most four images whose statistics disagree with the running ones. A single
    small batch at the end of an epoch is another cause.

What to do
    Larger batches, GroupNorm or LayerNorm in its place; gradient accumulation does not help, SyncBatchNorm does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.layer_facts import as_number, evaluated, late_gap, training_norms
from neuraldbg.explain.evidence.wording import listing, number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Reading
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.norms import NormLayer

FEW = 4
"""Number of values, or images, of a statistic that are too few. Wu and He 2018 (Group Normalization) see the error of
batch norm rise from batches of 8 down and steeply at 2."""
SIGNS = 2
"""Number of values of which only the sign of their difference is left."""
GAP = 0.5
"""Distance of batch and running mean, in standard deviations, that is more than a lag: 1 / sqrt(4)."""
APART = 1.0
"""Distance, in standard deviations, from which the statistics of evaluation hardly depend on the batches. The loss of
training, which uses the batches' own statistics, then says nothing about evaluation."""
SETTLED = 30
"""Steps after which running statistics with the usual momentum have left their initial values: 0.9^30 = 0.04."""
USUALLY = 0.8
"""Least share of the readings that must be so small."""


def judge(case: Case) -> Finding | None:
    """Weigh the batch-norm layer with the fewest values, or with the largest gap to its running statistics."""
    # Few samples of large images still give many values: those layers count only if their statistics disagree.
    found = {layer: seen for layer, seen in training_norms(case).items() if len(seen) >= 2}
    few = {layer: seen for layer, seen in found.items() if _elements(seen) <= FEW}
    tight = few or {layer: seen for layer, seen in found.items() if _batch(seen) <= FEW and _disagrees(seen)}
    if not tight:
        return None
    if few:
        layer = min(tight, key=lambda path: (_elements(tight[path]), case.depth(path)))
    else:
        layer = max(tight, key=lambda path: late_gap(tight[path], SETTLED))
    seen = tight[layer]
    elements, batch = int(_elements(seen)), int(_batch(seen))
    weigh = Weighing()
    signs = elements <= SIGNS
    if signs:
        weigh.speaks(f"{called(layer)} normalises {plural(elements, 'value')} a channel, so that only signs are left",
                     4.0, elements, FEW)  # fmt: skip
    elif few:
        weigh.speaks(f"{called(layer)} takes its statistics over {elements} values a channel", 2.7, elements, FEW)
    else:
        weigh.speaks(f"{called(layer)} takes its statistics over {plural(batch, 'sample')}", 1.2, batch, FEW)
    # A gap to the running mean harms evaluation, whatever the loss of training shows.
    gap = late_gap(seen, SETTLED)
    if gap > GAP:
        weigh.speaks(
            f"the mean of a batch lies {number(gap)} standard deviations from the running mean that evaluation uses",
            1.5 if gap <= APART else 2.5, gap, GAP,
        )  # fmt: skip
    _weigh_course(case, weigh, signs=signs or (batch == 1 and gap > APART and evaluated(case)))
    return weigh.conclude(
        f"batch normalisation over {elements} values a channel in {listing(list(tight))}"
        + ("" if few else f" (batches of {batch})"),
        _remedy(case, sorted(tight, key=case.depth)),
        layer=layer,
        step=0,
        failure=case.trouble.name or "noisy statistics",
    )


def _elements(seen: list[Reading[NormLayer]]) -> float:
    """Return the usual number of values of a channel's statistic; NaN if unknown."""
    return _usual([as_number(r.of.elements) for r in seen])


def _batch(seen: list[Reading[NormLayer]]) -> float:
    """Return the usual number of samples; NaN if unknown."""
    return _usual([as_number(r.of.batch) for r in seen])


def _usual(sizes: list[float]) -> float:
    """Return the ``USUALLY`` quantile of the readings."""
    return float(np.quantile(sizes, USUALLY, method="higher"))


def _disagrees(seen: list[Reading[NormLayer]]) -> bool:
    return late_gap(seen, SETTLED) > GAP


def _weigh_course(case: Case, weigh: Weighing, *, signs: bool) -> None:
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 2.0)
    elif case.learned:
        weigh.against(
            f"the model learns: the loss fell by {percent(case.loss.relative)}",
            0.5 if signs else 2.0,
            case.loss.relative,
        )
    if evaluated(case):
        weigh.speaks("the program evaluates, where running statistics take their place", 0.5)


def _groups(channels: int) -> int:
    return next(g for g in (32, 16, 8, 4, 2, 1) if (channels % g == 0 and channels // g > 1) or g == 1)


def _remedy(case: Case, layers: list[str]) -> Remedy:
    widths: dict[str, int] = {}
    for layer in layers:
        width = case.layout.by_path[layer].settings.get("num_features") if layer in case.layout.by_path else None
        widths[layer] = int(width) if isinstance(width, (int, float)) else 32
    exchange = "\n".join(
        f"model.set_submodule({path!r}, torch.nn.GroupNorm({_groups(width)}, {width}))"
        for path, width in widths.items()
    )
    return Remedy(
        "Normalise over something that does not depend on the batch, or make the batches larger.",
        f"{exchange}\n# or, with larger batches:\n"
        "loader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)",
        (once_made(exchange),),
    )


CAUSE = Cause(
    module=__name__,
    title="Batch norm over too few values",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | STALL,
    judge=judge,
    page=__doc__ or "",
)
