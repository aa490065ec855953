"""The results of a search as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DONE, PRUNED, FAILED, INTERRUPTED = "done", "pruned", "failed", "interrupted"


@dataclass(frozen=True)
class Trial:
    """Hold one trial: the values that it had, and what came of it."""

    number: int
    """Counts from 1; its run is in the folder `trial-001`."""
    values: Mapping[str, Any]
    """What was chosen, by the labels of `search_space.py`."""
    state: str
    """`done`, `pruned` (its loss is not finite, or the diagnosis is failing), `failed` or `interrupted`."""
    objective: float | None
    """The objective after the last epoch, None if there is none."""
    verdict: str
    """NeuralDBG's verdict, "" if it has none."""
    cause: str
    """The first cause of the diagnosis, or why the trial failed; "" for neither."""
    folder: Path
    """The folder of its run."""
    source: str
    """The lines of the file that a search changes, with the values of this trial in their places."""


@dataclass(frozen=True)
class Result:
    """Hold all trials of a search."""

    file: str
    method: str
    objective: str
    """The name of the number that was compared, such as `val_loss`."""
    maximized: bool
    trials: tuple[Trial, ...]
    folder: Path
    """The folder above those of the trials: `neuraldbg dashboard FOLDER` compares them."""
    interrupted: bool = False
    """True if Ctrl-C ended it before its last trial."""

    @property
    def best(self) -> Trial | None:
        """The trial with the best objective, None if no trial came to its end."""
        done = [trial for trial in self.trials if trial.state == DONE and trial.objective is not None]
        sign = -1 if self.maximized else 1
        return min(done, key=lambda trial: (sign * (trial.objective or 0.0), trial.number), default=None)


def finite(value: float | None) -> bool:
    """Return True for a number that is neither NaN nor infinite."""
    return value is not None and math.isfinite(value)
