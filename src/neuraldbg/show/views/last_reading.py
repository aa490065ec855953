"""The reading of each layer that is nearest to a step: with several optimizers no step reads all layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.views.bars import some

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.show.forms import Bools, Floats, Ints
    from neuraldbg.show.views.columns import Columns
    from neuraldbg.show.views.reading import Group

STEPS = 3
"""Largest number of earlier steps of which a note names the layers."""


@dataclass(frozen=True)
class Readings:
    """One reading of each of L layers, with its column of time."""

    sites: Group
    columns: Columns
    at: Ints
    """Column of each layer, shape (L,); -1 if it was not read."""

    @property
    def read(self) -> Bools:
        """True for layers that were read, shape (L,)."""
        return np.asarray(self.at >= 0)

    def values(self, stat: str) -> Floats:
        """Return a statistic at the reading of each layer, shape (L,): infinite if a NaN or an infinity was read, NaN
        if nothing was.
        """
        found = np.full(len(self.at), np.nan)
        self._pick(found, lambda columns: self.sites.values(columns, stat))
        found[self.bad] = np.inf
        return found

    @property
    def bad(self) -> Bools:
        """True for layers whose reading has NaN or infinite values, shape (L,)."""
        found = np.zeros(len(self.at), bool)
        self._pick(found, self.sites.nonfinite)
        return found

    def _pick(self, found: Floats | Bools, every: Callable[[Columns], Floats | Bools]) -> None:
        """Write into ``found`` the value of each layer in its column."""
        if self.read.any():
            used = np.unique(self.at[self.read])
            values = every(self.columns.only(*used.tolist()))
            found[self.read] = values[self.read, np.searchsorted(used, self.at[self.read])]


def last_readings(sites: Group, columns: Columns, upto: int, stat: str = "count") -> Readings:
    """Return the last reading of each layer in the columns 0..upto, or the last in which ``stat`` is known."""
    return Readings(sites, columns, _nearest(sites, columns, np.arange(upto + 1)[::-1], stat))


def first_readings(sites: Group, columns: Columns, upto: int) -> Readings:
    """Return the first reading of each layer in the columns 0..upto."""
    return Readings(sites, columns, _nearest(sites, columns, np.arange(upto + 1)))


def _nearest(sites: Group, columns: Columns, order: Ints, stat: str = "count") -> Ints:
    """Return the first column in a given order in which each layer was read; it is nearly always one of the first."""
    found = np.full(len(sites.layers), -1)
    start, size = 0, 1
    while start < len(order) and (found < 0).any():
        places = np.sort(order[start : start + size])
        values = sites.values(columns.only(*places.tolist()), stat)
        seen = values > 0 if stat == "count" else np.isfinite(values)
        backwards = order[0] > order[-1]
        which = len(places) - 1 - seen[:, ::-1].argmax(axis=1) if backwards else seen.argmax(axis=1)
        new = np.flatnonzero(seen.any(axis=1) & (found < 0))
        found[new] = places[which[new]]
        start, size = start + size, 8 * size
    return found


def reading_notes(last: Readings, at: int, what: str) -> tuple[str, ...]:
    """Write which layers are shown with a reading of an earlier step, with that step, and of which layers no ``what``
    was read up to column ``at``.
    """
    layers, steps = last.sites.layers, last.columns.steps
    found = []
    for column in sorted({*last.at[last.read].tolist()} - {at}, reverse=True)[:STEPS]:
        mine = [layer for layer, here in zip(layers, last.at == column, strict=True) if here]
        found.append(f"Of {some(mine)} the last reading is of step {int(steps[column]):,}")
    older = {*last.at[last.read].tolist()} - {at}
    if len(older) > STEPS:
        found.append(f"Of other layers it is of an earlier step, the earliest {int(steps[min(older)]):,}")
    if not last.read.all():
        later = first_readings(last.sites, last.columns, len(steps) - 1).read & ~last.read
        never = ~last.read & ~later
        for unread, when in ((later, f"up to step {int(steps[at]):,}, but later"), (never, "in any step")):
            if unread.any():
                names = some([layer for layer, hit in zip(layers, unread, strict=True) if hit])
                found.append(f"Not read {when}: {what} of {names}")
    return tuple(found)
