"""The crash dump of the flight recorder, made from a saved run: ``{metadata, history}``, steps as norms by layer.

The steps are the last ones, or those around the step at which the loss became NaN or infinite for good.

A live session writes the same dump when a run fails; this one is for runs that did not fail, or whose dump is lost.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.config import RecordSettings
from neuraldbg.export.exporter import Exporter
from neuraldbg.export.tables import measured, scalar_rows
from neuraldbg.nouns import column, crash_json
from neuraldbg.nouns.crash import AFTER, broken_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from neuraldbg.export.exporter import Selection
    from neuraldbg.nouns import CrashRow, Diagnosis, RunRecord


def write(run: RunRecord, diagnosis: Diagnosis, selection: Selection, path: Path) -> None:
    """Write the last steps up to the failure that were recorded one by one, as many as the flight recorder holds."""
    del selection  # a crash dump has all layers
    capacity = RecordSettings().ring
    path.write_text(crash_json(_history(run, capacity), capacity, diagnosis.summary), encoding="utf-8")


def _history(run: RunRecord, capacity: int) -> list[CrashRow]:
    history = run.history
    rows = scalar_rows(history)
    loss = history.scalars.get("loss")
    losses: list[float | None] = [None] * len(history)
    if loss is not None:
        losses = [float(one) if seen else None for one, seen in zip(loss, measured(history, "loss"), strict=True)]
    gradients, activations = _sites(run, "param_grad"), _sites(run, "activation")
    found: list[CrashRow] = []
    for row in _window(rows[history.width[rows] == 1].tolist(), losses, capacity):
        table = history.row(row) if history.read[row] else None
        found.append(
            {
                "step": int(history.steps[row]),
                "timestamp": run.info.started + float(history.time[row]),
                "loss": losses[row],
                "grad_norms": _norms(table, gradients),
                "act_norms": _norms(table, activations),
            }
        )
    return found


def _window(rows: Sequence[int], losses: Sequence[float | None], capacity: int) -> Sequence[int]:
    """Return the rows that the flight recorder, which drops the oldest first, would have at the end."""
    kept: deque[int] = deque(maxlen=capacity)
    broken = 0
    for row in rows:
        broken = broken_for(broken, losses[row])
        if broken <= AFTER or len(kept) < capacity:
            kept.append(row)
    return kept


def _sites(run: RunRecord, kind: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in run.layout.rows(kind):
        found.setdefault(run.layout.sites[row].module, []).append(row)
    return found


def _norms(table: Any, layers: dict[str, list[int]]) -> dict[str, float]:
    """Return the L2 norm of each layer that was read; NaN if it has a non-finite value."""
    if table is None:
        return {}
    total, count, nonfinite, rms = (
        table[:, column(name)].astype(np.float64) for name in ("total", "count", "nonfinite", "rms")
    )
    square = np.where(nonfinite > 0, np.nan, rms**2 * total)
    seen = {layer: [row for row in rows if count[row] > 0] for layer, rows in layers.items()}
    return {layer: float(np.sqrt(square[rows].sum())) for layer, rows in seen.items() if rows}


EXPORTER = Exporter("crash", target="crash.json", write=write)
