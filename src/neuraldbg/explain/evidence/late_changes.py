"""The weight of a change of the program shortly before the onset of a symptom. The change itself is a fact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.wording import number

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.change_points import ChangePoint
    from neuraldbg.explain.finding import Weighing

LATE = 4.0
"""Weight of a change after which a loss that had fallen rose: it speaks clearly, and other changes may have come with
it."""


def raised(case: Case, *what: str) -> ChangePoint | None:
    """Return the change by which a setting grew shortly before the onset of a symptom; None if there is none."""
    found = case.change(*what)
    return found if found is not None and found.after > found.before else None


def weigh_change(case: Case, weigh: Weighing, change: ChangePoint, weight: float = LATE) -> None:
    """Add that a change came shortly before the onset of the symptom."""
    before = case.loss.finite.between(0, change.since).values[-case.loss.window :]
    level = f"the loss was at {number(float(np.median(before)))}" if len(before) else "the training ran"
    weigh.speaks(
        f"{level} when {change.said}; the trouble began at step {case.onset}", weight,
        change.after if change.after == change.after else change.when,
    )  # fmt: skip


def began(case: Case, change: ChangePoint) -> int:
    """Return the step from which a change was at work: the first that is known to be after it, or that of the onset if
    it lies before.
    """
    onset = case.onset if case.onset is not None else change.until
    return max(change.since + 1, min(change.until, onset))
