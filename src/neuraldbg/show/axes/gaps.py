"""Which stretch of time a column stands for in a picture, where layers were not read in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from neuraldbg.show.forms import Ints

USUAL = 2
"""A gap of less than so many usual distances between columns is the pace of reading, a longer one is shown as a gap."""

LONG, TIMES = 0.02, 10
"""A line is not drawn across a stretch without readings that is this share of it and so many usual distances long."""


def breaks(steps: Ints, width: Ints) -> Ints:
    """Return after which readings nothing was read for long, as places: a line across would show what nobody saw.

    The usual distance is the one up to there, as reading may become rarer later.
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

    Where one step in twenty is read, columns of their true width would be slivers that nobody sees.
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
