"""Dead units of a rectified layer over time: which share was silent, since when, and in how many rows.

A record and the row of an activation enter, a Silence leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.layout import RECTIFIERS

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.symptom import Symptoms
    from neuraldbg.nouns.run import Reduce

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Silence:
    """The dead units of one layer at each step; a reading counts for the unread steps after it as well."""

    steps: Ints
    share: Floats
    """Share of the units, 0 to 1, that were positive in no row of a window of readings; 1 where the whole output of a
    ReLU is zero."""
    rows: Floats
    """Rows of that window; 0 if unknown (an older run file), or if the share is not of a window."""
    begin: Floats
    """First step of that window."""
    whole: Bools
    """True where the whole output that was read is zero."""

    def __len__(self) -> int:
        return len(self.steps)

    def since(self, at: int) -> int:
        """Return the first step from which on the units that are dead at a position were silent."""
        found = [int(self.begin[at])] if self.rows[at] else []
        if self.whole[at]:  # the zeros of a whole layer may have begun before its window of readings was full
            other = np.flatnonzero(~self.whole[:at])
            found.append(int(self.steps[other[-1] + 1 if len(other) else 0]))
        return min(found, default=int(self.steps[at]))


def dead_units(run: Symptoms, row: int) -> Silence:
    """Return the dead units of one layer until a NaN, after which every unit looks dead, where they are known."""
    end = run.origin.step - 1 if run.origin is not None else run.run.steps
    # In rows of several steps the fewest rows and the latest step are those that hold for all of them.
    reduced: dict[str, Reduce] = {"dead": "mean", "units": "mean", "zeros": "mean", "count": "mean"}
    reduced |= {"dead_rows": "min", "dead_since": "max"}
    read = {name: run.held(run.run.series(row, name, how).between(0, end)) for name, how in reduced.items()}
    dead, units, zeros, count, rows, begin = (series.values for series in read.values())
    path = run.layout.sites[row].module
    rectifier = path in run.layout.by_path and run.layout.by_path[path].type in RECTIFIERS
    whole = rectifier & (count > 0) & (zeros >= count)
    keep = (whole | (units > 0)) & np.isfinite(dead)
    share = np.where(whole, 1.0, np.divide(dead, units, out=np.zeros(len(units)), where=units > 0))
    rows = np.where(whole & (dead < units), 0.0, rows)
    return Silence(read["dead"].steps[keep], share[keep], rows[keep], begin[keep], whole[keep])
