"""The phases of a training whose task changes: at each change the loss jumps up, and is then learnt down again."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.loss_curve import LossSummary

_HEAD = 5
"""Steps over which the level of the loss before a jump is taken."""
_APART = 10
"""Least number of steps of a phase."""
JUMP = 0.3
"""Least rise at a jump, as a share of the fall of the loss in the phase so far."""


@dataclass(frozen=True)
class Phase:
    """One phase of a training, between two jumps of the loss."""

    first: int
    """First step of the phase."""
    last: int
    """Last step of the phase."""
    end: float
    """Level of the loss at the end of the phase."""


def phases(loss: LossSummary) -> tuple[Phase, ...]:
    """Return the phases in order; a training whose task does not change has one, a very short one none."""
    y, steps = loss.finite.values, loss.finite.steps
    if len(y) < 4 * _APART:
        return ()
    level = np.asarray([np.median(y[max(0, i - _HEAD) : i]) if i else y[0] for i in range(len(y) + 1)])
    cuts: list[int] = []
    for i in range(_APART, len(y) - _APART):
        begin = cuts[-1] if cuts else 0
        fallen = float(np.max(y[begin : begin + _HEAD]) - level[i])
        after = float(np.median(y[i : i + 3]))
        rise = after - level[i]
        jumped = rise > max(6 * loss.noise, JUMP * fallen) and y[i] - level[i] > rise / 2
        if i - begin >= _APART and fallen > 0 and jumped:
            cuts.append(i)
    bounds = [0, *cuts, len(y)]
    found = []
    for begin, stop in itertools.pairwise(bounds):
        tail = max(3, (stop - begin) // 10)
        found.append(Phase(int(steps[begin]), int(steps[stop - 1]), float(np.median(y[stop - tail : stop]))))
    return tuple(found)
