"""Common parts of the views over layers at one step: the step that is shown, and the table that was read in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Bar
from neuraldbg.show.views.moments import failure_of
from neuraldbg.show.views.picking import pick, touched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Floats
    from neuraldbg.show.views.columns import Columns
    from neuraldbg.show.views.view import Choice


NAMED = 4
"""Largest number of layers named in a note."""


def some(layers: Sequence[str]) -> str:
    """Name a few layers of many."""
    more = f" and {len(layers) - NAMED:,} more" if len(layers) > NAMED else ""
    return ", ".join(layer or "the model itself" for layer in layers[:NAMED]) + more


def place_of(run: RunRecord, diagnosis: Diagnosis, choice: Choice, columns: Columns) -> tuple[int, tuple[str, ...]]:
    """Return the column to show, and a note if its step is not the wanted one.

    The wanted step is the chosen one, else that of the failure, else the last. The column is the last that begins at or
    before it, else the first; -1 if no site was read. Unless a step was chosen, it is not before the first column by
    which every optimizer has stepped: each reads its own parameters only.
    """
    step = choice.step if choice.step is not None else failure_of(run, diagnosis)[0]
    if not len(columns.steps):
        return -1, ()
    if step is None:
        step = int(columns.steps[-1])
    at = max(0, int(np.searchsorted(columns.steps, step, side="right")) - 1)
    every = _every_optimizer(run, columns)
    if choice.step is None and at < every:
        return every, (f"Step {int(columns.steps[every]):,} is the first by which every optimizer has stepped",)
    first, width = int(columns.steps[at]), int(columns.width[at])
    if width > 1:
        return at, (f"Maximum over steps {first:,} to {first + width - 1:,}, which are stored as one row",)
    return at, (f"Step {step:,} was not read: step {first:,} is shown",) if step != first else ()


def _every_optimizer(run: RunRecord, columns: Columns) -> int:
    """Return the first column by which every optimizer that was ever read has stepped."""
    stream = run.history.stream[columns.rows]
    return max(int((stream == one).argmax()) for one in np.unique(stream))


def fewer(
    layers: tuple[str, ...],
    bars: list[tuple[str, Floats]],
    diagnosis: Diagnosis,
    choice: Choice,
    guilty: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[Bar, ...], tuple[str, ...]]:
    """Return the layers that fit, their bars, and a note where some were left out."""
    values = np.stack([values for _, values in bars], axis=1) if bars else np.zeros((len(layers), 0))
    rows, note = pick(layers, {*guilty, *touched(diagnosis)}, values, np.isinf(values), choice.rows)
    kept = tuple(Bar(name, values[rows]) for name, values in bars)
    return tuple(layers[i] for i in rows), kept, (note,) if note else ()
