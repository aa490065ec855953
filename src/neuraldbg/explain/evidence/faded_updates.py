"""Updates that became a small part of what they were when the program changed a setting: facts and series enter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.wording import moved, number
from neuraldbg.nouns.facts.change import ChangeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Weighing

FADED = 10.0
"""Least factor by which updates became smaller, beyond that of the learning rate; a schedule of another setting changes
them by far less."""
READINGS, LAST = 5, 3
"""Readings before the change, and at the end of the run, whose medians are compared, at most."""
LASTING = 50
"""Steps from the change to the end of the run at least."""


@dataclass(frozen=True)
class Faded:
    """A change of a setting since which updates are a small part of what they were."""

    change: ChangeFact
    before: float
    """norm(update) / norm(weight) before the change, median."""
    after: float
    """The same at the end of the run."""

    @property
    def when(self) -> str:
        """The change in words: ``since step 1718``."""
        since, until = self.change.since, self.change.until
        return f"since step {until}" if until <= since + 1 else f"since a step between {since} and {until}"

    def weigh(self, weigh: Weighing, case: Case) -> None:
        """Add how far the updates fell, and what the loss did since."""
        weigh.speaks(
            f"updates fell from {moved(self.before)} before to {moved(self.after)} at the end, and the learning rate "
            "did not fall with them",
            2.5, self.after, self.before / FADED,
        )  # fmt: skip
        loss = case.loss.finite.between(self.change.until, case.steps_taken).values
        third = len(loss) // 3
        if third >= LAST:
            first, last = float(np.median(loss[:third])), float(np.median(loss[-third:]))
            error = case.loss.noise * np.sqrt(2 / third)
            if first - last <= 3 * error:
                weigh.speaks(f"the loss has not fallen since then: {number(first)} first, {number(last)} at the end",
                             1.0, last, first)  # fmt: skip


def faded(case: Case, what: str) -> Faded | None:
    """Return the last change of a setting of the main optimizer since which its updates have faded; None if there is
    none. ``what`` is as in the CHANGE fact.
    """
    changes = [one for _, one in case.run.versions(ChangeFact, what=what) if one.stream in (None, case.stream)]
    ratios, rates = case.scalar("update_ratio").finite(), case.scalar("lr").finite()
    if not changes or not len(ratios) or not len(rates):
        return None
    change = changes[-1]
    begin, end = (int(np.searchsorted(ratios.steps, step, "right")) for step in (change.since, change.until))
    before, after = ratios.values[max(0, begin - READINGS) : begin], ratios.values[end:][-LAST:]
    if not len(before) or not len(after) or case.steps_taken - change.until < LASTING:
        return None
    then, now = float(np.median(before)), float(np.median(after))
    slower = rates.at(change.since) / rates.values[-1] if rates.values[-1] > 0 else float("inf")
    return Faded(change, then, now) if then > FADED * max(slower, 1.0) * now else None
