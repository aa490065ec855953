"""The bounds of a sampled or recorded step: whose steps end it, how many events it may have, how long it is recorded.

A step ends with the next step of the lead optimizer. Until then a program may do anything: evaluate for an hour, train
with another optimizer, or never train again.
"""

from __future__ import annotations

import statistics
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA_LOADER = "torch.utils.data.dataloader"
"""The module of the data loader, whose batches tell of a long evaluation."""
_EVENTS = 20_000
"""Events that each step may have: a deep network with some micro-batches has about as many."""
_WIDER = 4
"""Ratio of the events of a step, and of its seconds, to those of ordinary steps from which on it is none."""
_BOUNDS = (_EVENTS, 4 * _EVENTS, 16 * _EVENTS)
"""Events that a step may have after no, one, and more steps in a row that were dropped: a large network with many
micro-batches has more than ``_EVENTS`` in each step."""
MOST_EVENTS = _BOUNDS[-1]
"""Events that a step may have at most while no ordinary step is known."""
_RECORDED_S = 5.0
"""Seconds for which the operators of each step may be recorded: a million operators, some hundred megabytes."""
_SILENT = 256
"""Steps of other optimizers without one of the lead from which on another leads. A program may train a critic a hundred
times before its generator, or a value function after its policy."""


def most_events(newest: Sequence[int], dropped: int) -> int:
    """Return the events that the next step may have. ``newest`` are those of the newest samples, ``dropped`` is the
    number of samples in a row that had more.
    """
    usual = int(statistics.median(newest)) if newest else 0
    return max(_BOUNDS[min(dropped, len(_BOUNDS) - 1)], _WIDER * usual)


def recorded_s(newest: Sequence[float]) -> float:
    """Return the seconds for which the operators of the next step may be recorded, from those of the newest steps."""
    return max(_RECORDED_S, _WIDER * statistics.median(newest) if newest else 0.0)


class LeadOptimizer:
    """Tells whose steps end the steps of the profile: the first optimizer's, or another's that has taken its place."""

    def __init__(self) -> None:
        self._lead: weakref.ref[Any] | None = None
        self._others = 0
        """Steps of others since the lead's last one."""
        self.changed = False
        """True if the step that ended last is the first of a new lead, in the place of one that is silent."""

    def ends(self, optimizer: Any) -> bool:
        """Return True if a step of ``optimizer`` ends a step: it is the lead, or now becomes it."""
        lead = self._lead() if self._lead is not None else None
        self.changed = False
        if lead is optimizer:
            self._others = 0
            return True
        self._others += 1
        if lead is not None and self._others <= _SILENT:
            return False
        self._lead, self._others, self.changed = weakref.ref(optimizer), 0, lead is not None
        return True
