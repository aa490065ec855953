"""The stretch of time of each column of a picture, for runs whose layers were not read in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from neuraldbg.show.forms import Ints

USUAL = 2
"""Number of usual distances between columns from which a gap is shown as a gap."""

LONG, TIMES = 0.02, 10
"""Least length of a stretch without readings at which a line breaks: share of the line, and usual distances."""


def breaks(steps: Ints, width: Ints) -> Ints:
    """Return the indices of readings after which nothing was read for long: a line across would show unread values.

    The usual distance is that of the readings before, since readings may become rarer later.
    """
    if len(steps) < 3:  # with less there is no usual distance
        return np.zeros(0, np.int64)
    distance = np.diff(steps)
    unread = distance - width[:-1]
    found = np.flatnonzero(unread >= LONG * (int(steps[-1]) - int(steps[0])))
    usual = [np.median(distance[:at]) if at else np.median(distance[1:]) for at in found.tolist()]
    return found[unread[found] > TIMES * np.array(usual)]


def seen_until(steps: Ints, width: Ints) -> Ints:
    """Return where each column ends, shape (C,): at the next one, if it follows at the usual pace.

    If one step in twenty is read, columns of their true width would be too narrow to see.
    """
    if not len(steps):
        return steps
    ends = steps + width
    if len(steps) == 1:
        return ends
    distance = np.diff(steps)
    usual = int(np.median(distance))
    last = int(max(ends[-1], steps[-1] + min(usual, distance[-1])))
    near = distance < USUAL * usual
    return np.append(np.where(near, steps[1:], np.maximum(ends[:-1], steps[:-1] + usual)), last)
