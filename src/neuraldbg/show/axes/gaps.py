"""The stretch of time of each column of a picture, for runs whose layers were not read in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from neuraldbg.show.forms import Floats, Ints

USUAL = 2
"""Number of usual distances between columns from which a gap is shown as a gap."""
PACE = 4
"""Least number of columns that have a usual distance."""
FAR = 0.1
"""Share of the picture from which a distance between two columns is a gap in any case."""
VISIBLE = 250
"""A column is drawn at least as wide as this part of all the steps, as far as the next one leaves room: a step of many
thousands would be narrower than a dot."""

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


def drawn_until(steps: Ints, width: Ints, end: int | None = None) -> Floats:
    """Return the step before which the cell of each column ends, shape (C,), in a picture that ends before ``end``.

    A column reaches to the next one where readings follow each other at their usual pace, so that one read step in
    twenty does not make a picture of bars; elsewhere over the steps that it stands for. None is too narrow to see.
    """
    if not len(steps):
        return np.zeros(0)
    ends = (steps + width).astype(np.float64)
    span = float(max(ends.max(), end or 0) - steps[0])
    least = span / VISIBLE
    following = np.append(steps[1:], max(end or 0, ends[-1], steps[-1] + least))
    distance = following - steps
    usual = float(np.median(distance[:-1])) if len(steps) >= PACE else 0.0
    near = (distance <= USUAL * usual) & (distance <= FAR * span)
    found: Floats = np.where(near, following, np.minimum(np.maximum(ends, steps + least), following))
    return found
