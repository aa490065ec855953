"""Momentum is so high that the weights swing through the minimum and back.

What it is
    With momentum m the optimizer remembers about 1/(1 - m) gradients: ten at 0.9, a hundred at 0.99. The weights
    move like a heavy ball. If it is too heavy for the slope, it rolls through the valley and up the other side, for
    many steps against the gradient, and swings for long before it settles. At 1 and above it never does.

Symptoms
    The loss goes down and up in waves of tens of steps, or rises after a good beginning and never settles. Each step
    also becomes up to 1/(1 - m) times as large as the learning rate says, so that a usual rate can break the run.

Evidence
    The cosine between the update and the negative gradient is measured every few steps. Below zero the weights move
    uphill, carried by momentum. With a learning rate that is too high updates follow the gradient and change sign at
    every step; noise makes no waves. Momentum of 0.99 in a training that goes well is no fault.

What to do
    Set the momentum to 0.9. To keep the size of the steps, multiply the learning rate by (1 - m) / 0.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import arguments
from neuraldbg.explain.evidence.late_changes import began, raised, weigh_change
from neuraldbg.explain.evidence.optimizer_steps import betas, climbs, momentum, setting, uphill, weight_rows
from neuraldbg.explain.evidence.record_readings import LR_MAX, LR_USUAL
from neuraldbg.explain.evidence.wording import literal, number, percent, rounded, setting_value
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

    Floats = npt.NDArray[np.float64]

HIGH = 0.97
"""Momentum above the usual 0.9, sometimes 0.95."""
SUSPECT = 0.95
UPHILL = 0.25
"""Share of the steps with an update along the gradient, from which momentum drives the weights."""
ASTRAY = 0.25
"""Cosine between update and negative gradient of plain momentum, below which old gradients drive the weights. A
momentum of 0.9 leaves 0.4 and more, since each gradient is a tenth of the update and noise cancels in the rest."""
READ = 6
"""Least number of full steps."""


def judge(case: Case) -> Finding | None:
    """Weigh the size of the momentum, and updates that go along the gradient because of it."""
    heavy = momentum(case)
    if not heavy >= SUSPECT or not (case.trouble.any or heavy >= 1):
        return None
    if climbs(case):
        return None  # from the first step on: a wrong sign, not momentum
    weigh, change = Weighing(), raised(case, "momentum", "beta1")
    if change is not None:
        weigh_change(case, weigh, change)
    plain = setting(case, "momentum") > 0
    if heavy >= 1:
        weigh.speaks(f"a momentum of {number(heavy)} never forgets a gradient: each acts for ever", 5.0, heavy, 1.0)
    else:
        remembered = f"it adds up about {number(round(1 / (1 - heavy)))} gradients"
        weigh.speaks(
            f"a momentum of {setting_value(heavy)} is high: {remembered}", 1.5 if heavy >= HIGH else 0.5, heavy, HIGH
        )
    # Direct evidence: the update no longer goes against the gradient of its step.
    share, read = uphill(case)
    if read >= READ and share > UPHILL:
        weigh.speaks(
            f"in {percent(share)} of {read} steps that were read the update went uphill, against the gradient",
            3.0, share, UPHILL,
        )  # fmt: skip
    elif read >= READ and plain and case.trouble.broke and (along := float(np.median(_descent(case)))) < ASTRAY:
        weigh.speaks(
            f"updates hardly follow the gradient of their step (median cosine {number(along)})", 1.0, along, ASTRAY
        )
    elif read >= READ and share < UPHILL / 2:
        weigh.against("updates went downhill nearly always", 1.0 if case.trouble.broke else 2.0, share, UPHILL)
    _weigh_course(case, weigh, heavy, plain=plain)
    target = 0.9 if plain or betas(case) is None else (betas(case) or (0.9, 0.999))[0]
    name = f"momentum={setting_value(heavy)}" if plain else f"beta1={setting_value(heavy)}"
    setting_ = "momentum=0.9" if plain else f"betas=(0.9, {literal((betas(case) or (0.9, 0.999))[1])})"
    lr = rounded(case.lr * min(1.0, max(0.1, (1 - heavy) / 0.1 if target else 1.0))) if case.lr > 0 else "0.01"
    since = f" ({change.words.removeprefix('the ')} {change.when})" if change is not None else ""
    return weigh.conclude(
        f"a momentum that is too high: {name} with {case.optimizer_name}{since}, so that old gradients carry the "
        "weights past the minimum",
        Remedy(
            f"Lower {'momentum' if plain else 'the first beta'} from {setting_value(heavy)} to 0.9.",
            f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(), lr={lr}, {setting_})",
            (arguments(f"lr={lr}, {setting_}"),),
        ),
        step=began(case, change) if change is not None else 0,
        since=change.since if change is not None else None,
        failure=case.trouble.name or "oscillation",
        tier=Tier.CERTAIN if change is not None else None,
        equivalent=("lr_too_high",) if heavy < 1 and not share > UPHILL else (),
    )


def _descent(case: Case) -> Floats:
    return case.scalar("descent").finite().values


def _weigh_course(case: Case, weigh: Weighing, heavy: float, *, plain: bool) -> None:
    largest, usual = LR_MAX[case.lr_class], LR_USUAL[case.lr_class]
    if plain and heavy < 1 and case.lr <= usual < case.lr / (1 - heavy):
        weigh.speaks(
            f"with it a learning rate of {number(case.lr)} acts like {number(case.lr / (1 - heavy))}",
            1.0, case.lr / (1 - heavy), usual,
        )  # fmt: skip
    if case.lr > largest:
        weigh.against(f"the learning rate of {number(case.lr)} is too high by itself", 2.5, case.lr, largest)
    waves = period(case)
    if waves > 0:
        weigh.speaks(f"the updates swing with a period of about {number(waves)} steps", 1.0, waves)
    if case.onset is not None and case.trouble.broke and case.onset < 3:
        weigh.against(f"it broke at step {case.onset}, before momentum could gather", 2.5, case.onset, 3)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    else:
        weigh.against("the training is not in trouble yet", 1.5)


def period(case: Case) -> float:
    """Return the period in steps with which the mean update of many weights changes sign; 0 without a regular one."""
    found = []
    for row in weight_rows(case):
        site = case.layout.sites[row]
        rows = case.layout.rows("update", site.module, site.name)
        mean = case.unbroken(case.run.series(rows[0], "mean").finite()) if rows else None
        if mean is None or len(mean) < 24 or (mean.width > 1).any():
            continue
        turns = np.flatnonzero(np.diff(np.sign(mean.values)) != 0)
        lengths = np.diff(turns)
        if len(lengths) >= 3 and np.median(lengths) >= 3 and np.std(lengths) < 0.7 * np.mean(lengths):
            found.append(2 * float(np.median(lengths)))
    return float(np.median(found)) if len(found) >= max(1, len(weight_rows(case)) // 3) else 0.0


CAUSE = Cause(
    module=__name__,
    title="Momentum too high",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | UNITS | STALL,
    judge=judge,
    page=__doc__ or "",
)
