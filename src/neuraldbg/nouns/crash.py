"""The crash dump: the last steps before a failure, as norms by layer. All writers produce this one format."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypedDict

from neuraldbg import clocks
from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


AFTER = 10
"""Steps after the first non-finite loss that may still replace older ones: the steps before the failure matter more."""


class CrashRow(TypedDict):
    """One step of a crash dump: loss, and norms by layer."""

    step: int
    timestamp: float
    """Unix time."""
    loss: float | None
    """Loss. None if it is not known."""
    grad_norms: Mapping[str, Any]
    """L2 norm of the gradients of each layer's parameters."""
    act_norms: Mapping[str, Any]
    """L2 norm of each layer's output."""


def broken_for(before: int, loss: float | None) -> int:
    """Return the number of steps in a row with a NaN or infinite loss, given the number ``before`` this step.

    A loss of None counts like the one before. After more than AFTER such steps a dump adds a step only while there is
    room.
    """
    if loss is None:
        return before + 1 if before else 0
    return 0 if math.isfinite(loss) else before + 1


def crash_json(history: Sequence[CrashRow], capacity: int, reason: str | None) -> str:
    """Encode a dump as strict JSON, ``{metadata, history}``: a NaN is the string "NaN".

    ``capacity`` is the largest number of steps of the dump, ``reason`` the reason of the halt or of the failing
    verdict.
    """
    dump = {
        "metadata": {
            "capacity": capacity,
            "trigger_reason": reason,
            "dump_timestamp": clocks.now(),
            "captured_steps": len(history),
        },
        "history": history,
    }
    return json.JSONEncoder(allow_nan=False, indent=1).encode(jsonable(dump))
