"""One line of facts about a run: script, duration, and the overhead of NeuralDBG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.show.format.safe_text import counted, duration, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = 2
"""Models or optimizers named before the list is cut."""


def facts_line(run: Mapping[str, Any], between: str) -> str:
    """Join the facts about the run that the diagnosis has."""
    parts = [str(run["script"])] if run.get("script") else []
    if isinstance(run.get("steps"), int):
        parts.append(counted(run["steps"], "step"))
    for key in ("models", "optimizers"):
        names = [str(name) for name in run.get(key) or ()]
        if names:
            parts.append(listed(names, NAMES).replace(": --json", ""))
    if isinstance(run.get("duration_s"), (int, float)):
        parts.append(duration(run["duration_s"]))
    ratio = run.get("overhead_ratio")
    cost = (run.get("coverage") or {}).get("cost") or {}
    if isinstance(ratio, (int, float)) and ratio >= 0:
        said = spent(cost)
        why = f" ({said})" if said and ratio > cost["budget"] else ""
        parts.append((f"overhead {100 * ratio:.1f}%" if ratio < 0.1 else f"overhead {100 * ratio:.0f}%") + why)
    if cost.get("light_steps"):
        parts.append(f"{counted(cost['full_steps'], 'step')} read in full")
    return between.join(parts)


def spent(cost: Mapping[str, Any]) -> str:
    """Write the overhead and its limit: ``0.23 s on 0.21 s of training; allowed: 2 s at the start, then 1%``.

    In a run of a few seconds the allowance at the start dominates. "" if nothing was counted, or nothing limited.
    """
    own, training, budget, start = (cost.get(name) for name in ("own_s", "training_s", "budget", "allowance_s"))
    if own is None or training is None or budget is None or start is None:
        return ""
    took = f"{duration(own)} on {duration(training)} of training"
    return f"{took}; allowed: {start:g} s at the start, then {100 * budget:.3g}%"
