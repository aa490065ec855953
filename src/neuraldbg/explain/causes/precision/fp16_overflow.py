"""A value outgrows half precision: numbers above 65504 become infinity.

What it is
    The largest number that float16 can hold is 65504. An activation, an attention score or a gradient beyond it
    becomes infinite, and the next operation makes NaN of it.

Symptoms
    NaN in mixed-precision training at a layer with large values, while the same training in float32 or bfloat16 is
    fine. With a gradient scaler, steps are skipped again and again and the scale falls towards zero.

Evidence
    The number format of each place is recorded. It is the cause when a float16 place comes near the limit before,
    or at, the first infinity. A few skipped steps at the beginning are the gradient scaler finding its scale, and
    no fault.

What to do
    Use bfloat16, or keep the layers with large values in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import NONFINITE, Cause
from neuraldbg.explain.edits import device_of
from neuraldbg.explain.evidence.inputs import outgrown, place
from neuraldbg.explain.evidence.simpler_causes import simpler_reasons
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.first_nonfinite import Origin
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns import Site
    from neuraldbg.nouns.facts.experiment import NonfiniteBirth

LIMIT = 65504.0
"""The largest finite float16 (IEEE 754 binary16)."""
NEAR = 0.25
"""Share of the limit from which the next step may overflow."""


def judge(case: Case) -> Finding | None:
    """Weigh the largest float16 value up to the first infinity, and the place of that infinity."""
    origin = case.origin
    nearest = _nearest(case)
    if origin is None or nearest is None:
        return None
    peak, near = nearest
    born = outgrown(case, origin.step)
    summed = _summed(case, origin)
    if peak < 0.01 * LIMIT and born is None and not summed and not any(_half(site) for site in origin.sites):
        return None
    # The limit was passed by a sum in the loss, or nearly reached at a site.
    weigh = Weighing()
    if summed:
        weigh.speaks(
            f"the loss is the sum of {summed} terms in float16, whose limit is {number(LIMIT)}, and became infinite "
            "while they were finite", 6.0, summed, LIMIT,
        )  # fmt: skip
    elif peak >= NEAR * LIMIT:
        weigh.speaks(
            f"values of {near.label} in float16 reached {number(peak)}, the limit is {number(LIMIT)}", 3.5, peak, LIMIT
        )
    else:
        weigh.against(f"no float16 value came near the limit (largest {number(peak)})", 3.0, peak, NEAR * LIMIT)
    _weigh_birth(weigh, origin, born)
    if not summed:
        _weigh_reasons(case, weigh, origin)
    # The operation that overflowed is more exact than the nearest site.
    layer = (origin.first.module if origin.first is not None and _half(origin.first) else near.module) or None
    if born is not None and born.layer and born.layer in case.layout.by_path:
        layer = born.layer
    return weigh.conclude(
        f"values that outgrow half precision: {near.label} reached {number(peak)} in float16, whose limit is 65504",
        Remedy(
            "Use bfloat16, which has the range of float32, or keep this layer in float32.",
            f'with torch.autocast("{device_of(case)}", dtype=torch.bfloat16):\n    ...\n# or, around the layer only:\n'
            f'with torch.autocast("{device_of(case)}", enabled=False):\n    y = layer(x.float())',
        ),
        layer=layer,
        step=origin.step,
        failure=case.trouble.name or "overflow",
    )


def _nearest(case: Case) -> tuple[float, Site] | None:
    """Return the largest float16 value up to the first non-finite step, with its site; None without such sites."""
    rows = [i for i, site in enumerate(case.layout.sites[: case.history.sites]) if _half(site)]
    rows = [row for row in rows if case.layout.sites[row].kind in ("activation", "output_grad", "op")]
    if not rows or case.origin is None:
        return None
    upto = slice(0, case.origin.row + 1)
    size = np.fmax(
        np.abs(case.history.stat(rows, "min", "min")[upto]), np.abs(case.history.stat(rows, "max", "max")[upto])
    )
    peaks = np.nanmax(np.nan_to_num(size), axis=0)
    found = int(np.argmax(peaks))
    return float(peaks[found]), case.layout.sites[rows[found]]


def _summed(case: Case, origin: Origin) -> int:
    """Return the number of terms of a float16 sum in the loss if the loss is infinite and nothing before it, else 0."""
    if not origin.read or not np.isinf(case.scalar("loss").at(origin.step)) or origin.has("input", "activation"):
        return 0
    halves = [t for t in case.terms if t.reduction == "sum" and t.target_dtype in ("float16", "half")]
    return max((t.input.count for t in halves if t.input is not None), default=0)


def _weigh_birth(weigh: Weighing, origin: Origin, born: NonfiniteBirth | None) -> None:
    """Weigh the origin of the first infinity: found in an experiment on a copy, or else as it was recorded."""
    if born is not None:
        weigh.speaks(
            f"made again on a copy, {born.op}{place(born.where)} gave the first infinity of finite values, "
            "in float16", 6.0, born.op,
        )  # fmt: skip
    elif origin.first is not None and _half(origin.first):
        said = f"the first infinity of the run is in float16, at {origin.first.label} (step {origin.step})"
        weigh.speaks(said, 2.5, origin.step)
    elif origin.first is not None:
        said = f"the first non-finite value is at {origin.first.label}, which is {origin.first.dtype} and not float16"
        weigh.against(said, 2.0, origin.first.dtype)


def _weigh_reasons(case: Case, weigh: Weighing, origin: Origin) -> None:
    """Weigh reasons for which values overflow any format."""
    if origin.has("input"):
        weigh.against(f"the input of step {origin.step} was already not finite", 5.0, origin.step)
    for statement, value in simpler_reasons(case)[:1]:
        if "input" not in statement or not origin.has("input"):
            weigh.against(f"{statement}, which outgrows any format in the end", 1.0, value)
    if float(case.early_update_ratio) > 1:
        weigh.against("updates were huge, so values would outgrow any format", 2.0, case.early_update_ratio, 1.0)


def _half(site: Site) -> bool:
    return site.dtype.removeprefix("torch.") in ("float16", "half")


CAUSE = Cause(
    module=__name__,
    title="Values too large for float16",
    tier=Tier.SPECIFIC,
    explains=NONFINITE | {"gradient_spike", "exploding_gradients", "loss_spike"},
    judge=judge,
    page=__doc__ or "",
)
