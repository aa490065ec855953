"""Gradients are too small for half precision and become exactly zero.

What it is
    float16 knows no number between 0 and 6e-8, and is coarse below 6e-5. Gradients of deep networks, or of losses that
    are averaged over many elements, are often smaller. Without loss scaling they become exactly zero on the way back.

Symptoms
    The loss falls slowly or not at all, first of all the early layers stand still. The same training in float32 or
    bfloat16 is fine.

Evidence
    The share of exact zeros in the gradients of float16 places is counted, and the size of the rest: values
    near the smallest numbers of float16 show that the zeros next to them were flushed. Zeros behind a ReLU or in an
    embedding occur together with gradients of usual size. With a gradient scaler in use it is another fault. In a model
    that learns, one part can be without gradients: its term of the loss is so small that float16 cannot hold them.

What to do
    Use a gradient scaler with float16, or bfloat16, which needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import device_of
from neuraldbg.explain.evidence.loss_curve import WORTH
from neuraldbg.explain.evidence.wording import listing, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

LEAST = 5.96e-8
"""The smallest float16 above 0 (IEEE 754 binary16): 2**-24."""
COARSE = 1e-5
"""Size of the remaining gradients below which the zeros next to them were flushed: a sixth of the smallest normal
number, 6.1e-5."""
FLUSHED = 0.5
"""Share of zeros from which a gradient is lost."""
MINUTE = 1e-3
"""Loss below which gradients per element underflow in float16, once it is averaged over some thousands of elements."""
FEWEST = 20
"""Least number of steps, in all of which a part must have no gradient."""
BEGINNING = 50
"""Number of first steps that are used: in a model that has learnt, tiny gradients are no fault."""


def judge(case: Case) -> Finding | None:
    """Weigh the zeros of float16 gradients, and the size of the elements that are left."""
    # A gradient scaler prevents the underflow; in a model that learns only one part can have it.
    scales = case.scalar("loss_scale").finite().values
    if case.trouble.broke or (len(scales) and float(np.median(scales)) >= 2):
        return None
    if case.learned:
        return _one_part(case)
    found = {}
    for row in case.layout.rows("output_grad") + case.layout.rows("param_grad"):
        site = case.layout.sites[row]
        if site.dtype.removeprefix("torch.") in ("float16", "half") and row < case.history.sites:
            known = _flushed(case, row)
            if known is not None:
                found[site.label] = (*known, site.module)
    lost = {label: value for label, value in found.items() if value[0] >= FLUSHED and value[1] < COARSE}
    tiny = [value for value in found.values() if 0 < value[1] < COARSE]
    # If nothing is left, a tiny loss explains it: its gradient is divided among many elements.
    minute = not tiny and len(lost) == len(found) and 0 < abs(case.loss.last) < MINUTE
    if not lost or not (tiny or minute):
        return None
    weigh = Weighing()
    share, size = float(np.median([v[0] for v in lost.values()])), float(np.median([v[1] for v in tiny] or [0.0]))
    weigh.speaks(
        f"{percent(share)} of the float16 gradients of {listing(lost)} are exactly 0, and the rest is about "
        f"{number(size)}; the smallest float16 is {number(LEAST)}", 3.5 if share > 0.8 else 2.5, share, FLUSHED,
    )  # fmt: skip
    if minute:
        weigh.speaks(f"the loss itself is only {case.loss.ending}", 0.5, case.loss.last, MINUTE)
    # Without a scaler the whole network underflows; a few gradients that are lost have another reason.
    part = len(lost) / len(found)
    if part < 0.2:
        weigh.against(f"most float16 gradients ({percent(1 - part)} of the places) are of usual size", 2.0, part, 0.2)
    weigh.speaks("no gradient scaler was seen", 1.0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    elif len(case.loss) and case.loss.relative < WORTH:
        weigh.speaks(f"the loss has not fallen: {number(case.loss.initial)} to {case.loss.ending}", 0.7)
    else:
        weigh.against("the training is not in trouble", 2.0)
    layers = list(dict.fromkeys(v[2] for v in lost.values()))
    guilty = min(layers, key=case.depth) if part < 0.9 else None
    return weigh.conclude(
        f"gradients that underflow in float16: {percent(share)} of them are exactly 0, without a gradient scaler",
        Remedy(
            "Scale the loss with torch.amp.GradScaler, or use bfloat16.",
            f'scaler = torch.amp.GradScaler("{device_of(case)}")  # once, before the loop\n'
            "scaler.scale(loss).backward()\nscaler.step(optimizer)\n"
            "scaler.update()",
        ),
        layer=guilty,
        step=0,
        failure=case.trouble.name or "lost gradients",
        tier=Tier.CERTAIN if minute else None,
    )


def _one_part(case: Case) -> Finding | None:
    """Weigh a part of a model that learns, whose term of the loss is so small that its float16 gradient underflows."""
    # The zeros must begin at the loss: inside the network other causes make gradients zero.
    zero, alive = [], False
    for row in case.layout.rows("output_grad"):
        site = case.layout.sites[row]
        if site.dtype.removeprefix("torch.") not in ("float16", "half"):
            continue
        zeros, count = (case.run.series(row, name).values for name in ("zeros", "count"))
        if len(count) >= FEWEST and (count > 0).all():
            nothing = bool((zeros == count).all())
            alive = alive or not nothing
            zero += [site.module] if nothing else []
    inside = {edge.source for edge in case.layout.edges if edge.target != "loss"}
    if not alive or set(zero) <= inside:
        return None
    weigh, layers = Weighing(), sorted(zero, key=case.depth)
    weigh.speaks(
        f"in every step{' that was read' if case.skips else ''} the float16 gradient of {listing(layers)} is exactly "
        f"0, from the loss on, and those of other layers are not; the smallest float16 is {number(LEAST)}",
        3.3, 1.0, FLUSHED,
    )  # fmt: skip
    weigh.speaks("no gradient scaler was seen", 1.0)
    weigh.against("the rest of the model learns; a weight of exactly 0 in the loss looks the same", 0.7)
    return weigh.conclude(
        f"gradients that underflow in float16: those of {listing(layers)} are exactly 0, without a gradient scaler",
        Remedy("Scale the loss with torch.amp.GradScaler, use bfloat16, or give that term of the loss more weight.",
               f'scaler = torch.amp.GradScaler("{device_of(case)}")  # once, before the loop\n'
            "scaler.scale(loss).backward()\nscaler.step(optimizer)\n"
               "scaler.update()"),
        layer=layers[0],
        step=0,
        failure="untrained part",
    )  # fmt: skip


def _flushed(case: Case, row: int) -> tuple[float, float] | None:
    """Return the median share of zeros, and the median size (rms) of the elements that are not zero."""
    zeros, count, rms = (case.run.series(row, name).between(0, BEGINNING).values for name in ("zeros", "count", "rms"))
    keep = (count > 0) & np.isfinite(rms)
    if not keep.any():
        return None
    share = zeros[keep] / count[keep]
    left = np.where(share < 1, rms[keep] / np.sqrt(np.maximum(1 - share, 1e-12)), 0.0)
    return float(np.median(share)), float(np.median(left))


CAUSE = Cause(
    module=__name__,
    title="Gradients too small for float16",
    tier=Tier.SPECIFIC,
    explains=STALL,
    judge=judge,
    page=__doc__ or "",
)
