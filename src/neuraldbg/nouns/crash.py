"""The crash dump: the last steps before a failure, as norms by layer. Its one shape, whoever writes it."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypedDict

from neuraldbg import clocks
from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


AFTER = 10
"""Steps after a loss that is no number which may still push older ones out: those that led there are worth more."""


class CrashRow(TypedDict):
    """One step of a dump."""

    step: int
    timestamp: float
    """Unix time."""
    loss: float | None
    grad_norms: Mapping[str, Any]
    """L2 norm of the gradients of each layer's parameters."""
    act_norms: Mapping[str, Any]
    """L2 norm of each layer's output."""


def broken_for(before: int, loss: float | None) -> int:
    """Return for how many steps in a row the loss has been NaN or infinite; one that is not known changes nothing.

    A dump takes a step that is more than AFTER of them after the break only while there is room.
    """
    if loss is None:
        return before + 1 if before else 0
    return 0 if math.isfinite(loss) else before + 1


def crash_json(history: Sequence[CrashRow], capacity: int, reason: str | None) -> str:
    """Return the dump as strict JSON, ``{metadata, history}``: a NaN is the string "NaN".

    ``capacity`` is how many steps it could have held, ``reason`` what stopped the training or why it is called failed.
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
