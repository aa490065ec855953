"""Updates that became a small part of what they were when the program changed a setting: facts and series enter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.wording import a_step, moved, number
from neuraldbg.nouns.facts.change import ChangeFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Weighing

FADED = 10.0
"""Least factor by which updates became smaller, beyond that of the learning rate; a schedule of another setting changes
them by far less."""
READINGS, LAST = 5, 3
"""Readings before the change, and at the end of the run, whose medians are compared, at most."""
REST = 0.2
"""Part of the steps since the change that is left out, where later ones were read."""
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

    slower: float
    """Factor by which the learning rate fell meanwhile."""

    @property
    def at(self) -> str:
        """The change in words: ``at step 1718``, or ``at a step between 1677 and 1771``."""
        return f"at {a_step(self.change.since, self.change.until)}"

    @property
    def when(self) -> str:
        """The time from the change on: ``since step 1718``."""
        return f"since {a_step(self.change.since, self.change.until)}"

    def weigh(self, weigh: Weighing, case: Case) -> None:
        """Add how far the updates fell, and what the loss did since."""
        rate = f"the learning rate fell by a factor of {number(self.slower)} alone" if self.slower > 1.1 else ""
        weigh.speaks(
            f"updates fell from {number(self.before)} to {moved(self.after)} at the end, and "
            f"{rate or 'the learning rate did not fall with them'}",
            2.5, self.after, self.before / FADED,
        )  # fmt: skip
        weigh_fall(case, weigh, self.change.since, self.change.until)


def weigh_fall(case: Case, weigh: Weighing, since: int, until: int) -> None:
    """Weigh the fall of the loss after a change between two steps against that before it, over as many steps."""
    after = case.loss.finite.between(until, case.steps_taken).values
    before = case.loss.finite.between(0, since - 1).values[-len(after) :]
    third = min(len(before), len(after)) // 3
    if third < LAST:
        return
    error = case.loss.noise * np.sqrt(2 / third)
    fell, falls = (float(np.median(part[:third]) - np.median(part[-third:])) for part in (before, after))
    level, first, end = (float(np.median(part)) for part in (before[-third:], after[:third], after[-third:]))
    if end > level + 3 * error:
        weigh.speaks(f"the loss was at {number(level)} before, and ends above it, at {number(end)}", 1.5, end, level)
    elif fell <= 3 * error:
        weigh.against(f"the loss had levelled off before: {number(level)} then, {number(end)} at the end", 5.0, fell)
    elif falls > 3 * error and falls > fell / FADED:
        weigh.against(f"the loss falls on: from {number(first)} to {number(end)}", 2.5, falls)
    else:
        weigh.speaks(f"the loss fell by {number(fell)} in as many steps before, and hardly since: it was at "
                     f"{number(level)} then, and is at {number(end)} at the end", 1.5, end, level)  # fmt: skip


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
    # A momentum of before goes on for a while.
    rested = int(np.searchsorted(ratios.steps, change.until + (case.steps_taken - change.until) * REST, "right"))
    end = max(len(ratios) - LAST, end, rested if rested < len(ratios) else len(ratios) - 1)
    before, after = ratios.values[max(0, begin - READINGS) : begin], ratios.values[end:]
    if not len(before) or not len(after) or case.steps_taken - change.until < LASTING:
        return None
    then, now = float(np.median(before)), float(np.median(after))
    # A rate that goes up and down is compared at the very steps that were read.
    old, new = (np.median([rates.at(int(step)) for step in steps]) for steps in (
        ratios.steps[max(0, begin - READINGS) : begin], ratios.steps[end:],
    ))  # fmt: skip
    slower = float(old / new) if new > 0 else float("inf")
    return Faded(change, then, now, slower) if then > FADED * max(slower, 1.0) * now else None
