"""The losses of several runs in one picture: their curves in, lines out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Line, Lines, Scale
from neuraldbg.show.views.series import wide_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Series


def losses_of(runs: Sequence[tuple[str, Sequence[tuple[str, Series]]]], of: int | None = None) -> Lines:
    """Return the losses of runs, each run with its name and its losses with theirs.

    ``of`` is the number of runs that have a loss, if these are only some of them.
    """
    count = f"{len(runs):,} of {of:,}" if of is not None and of > len(runs) else f"{len(runs):,}"
    lines = []
    for name, curves in runs:
        for loss, series in curves:
            bad = ~np.isfinite(series.values)
            label = name if len(curves) == 1 else f"{name}, {loss}"
            lines.append(Line(label, series.steps, np.where(bad, np.nan, series.values), nonfinite=series.steps[bad]))
    means = any((series.width > 1).any() for _, curves in runs for _, series in curves)
    return Lines(
        name="several_losses",
        title=f"Loss of {count} runs" if len(runs) != 1 else f"Loss of {runs[0][0]}",
        lines=tuple(lines),
        y=Scale("loss", log=wide_lines(lines)),
        notes=("Points of long runs are means of several steps",) if means else (),
        empty="" if lines else "no loss was recorded in these runs: it is read where backward() is called",
    )
