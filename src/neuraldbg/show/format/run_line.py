"""One line of facts about a run: script, duration, and the overhead of NeuralDBG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.show.format.safe_text import counted, duration, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neuraldbg.nouns.rank_state import RankState

NAMES = 2
"""Models or optimizers named before the list is cut."""
LEAST_MS = 0.1
"""Milliseconds below which a step's share is not worth a number: it would be rounded to 0, or be that of the clock."""
LIGHT, WRITING, PROFILE = "light steps", "writing", ("profile", "memory records")
"""Parts of the overhead that full steps have no share in."""
FEW_RANKS = 8
"""Ranks of a job that are each told."""
LEAST_PROFILE = 0.05
"""Share of the overhead from which on that of the profile is told."""


def facts_line(run: Mapping[str, Any], between: str, *, brief: bool = False) -> str:
    """Join the facts about the run that the diagnosis has; ``brief``: without models, optimizers and limits."""
    parts = [str(run[name]) for name in ("note", "script") if run.get(name)]
    if isinstance(run.get("steps"), int):
        several = len(run.get("optimizers") or ())
        turns = f"{run['steps']:,} optimizer steps of {several} optimizers"  # no iterations
        parts.append(turns if several > 1 else counted(run["steps"], "step"))
    for key in () if brief else ("models", "optimizers"):
        names = [str(name) for name in run.get(key) or ()]
        if names:
            parts.append(listed(names, NAMES).replace(": --json", ""))
    if isinstance(run.get("duration_s"), (int, float)):
        parts.append(duration(run["duration_s"]))
    ratio = run.get("overhead_ratio")
    cost = (run.get("coverage") or {}).get("cost") or {}
    if isinstance(ratio, (int, float)) and ratio >= 0:
        parts.append(_overhead(run, ratio, cost, brief=brief))
    if cost.get("light_steps") and not brief and "full steps" not in "".join(parts[-1:]):
        full, sighted = steps_read(cost)
        more = f", the layers of {sighted:,} more" if sighted else ""
        parts.append(f"{counted(full, 'step')} read in full{more}")
    return between.join(parts)


def ranks_line(ranks: Sequence[RankState], between: str) -> str:
    """Write the state of each rank of a job; of many those that are not healthy, and the number of the others."""
    shown = [one for one in ranks if len(ranks) <= FEW_RANKS or one.verdict != "healthy"]
    parts = [str(one) for one in shown[:FEW_RANKS]]
    if left := len(ranks) - len(parts):
        healthy = sum(one.verdict == "healthy" for one in ranks) if len(shown) <= FEW_RANKS else 0
        parts.append(f"{left} more, {'all' if healthy == left else healthy} healthy" if healthy else f"{left} more")
    return between.join(parts)


def _overhead(run: Mapping[str, Any], ratio: float, cost: Mapping[str, Any], *, brief: bool) -> str:
    """Write the overhead as a share of the training; ``brief``: of a short run, as its part of the run's time."""
    share, own, whole = _percent(ratio), cost.get("own_s"), run.get("duration_s")
    # A run of a few seconds is mostly imports and data: the share of its few steps says little.
    of_run = f"{duration(own)} ({_percent(own / whole)} of the run" if ratio >= 0.1 and own and whole else ""
    if brief and of_run:
        return f"overhead {of_run})"
    said = "" if brief else spent(cost)
    if of_run and said and ratio > cost["budget"]:
        return f"overhead {of_run}; {share} of the steps: {said})"
    return f"overhead {share}" + (f" of the steps ({said})" if said and ratio > cost["budget"] else "")


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f}%" if ratio < 0.1 else f"{100 * ratio:.0f}%"


def steps_read(cost: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of steps that were read in full, and of those of which only the layers were."""
    sighted = cost.get("sighted_steps") or 0
    return (cost.get("full_steps") or 0) - sighted, sighted


def spent(cost: Mapping[str, Any]) -> str:
    """Write the overhead by its parts, and its limit: ``2.1 s on 14.5 s of training: 9.7 ms in each of 205 full steps,
    0.91 ms in each of 40 of which only the layers were read, 0.57 ms in each of 95 light ones; allowed: 2 s at the
    start, then 1%``.

    "" if nothing was counted, or nothing limited.
    """
    own, training, budget, start = (cost.get(name) for name in ("own_s", "training_s", "budget", "allowance_s"))
    if own is None or training is None or budget is None or start is None:
        return ""
    parts = cost.get("parts_s") or {}
    (full, sighted), light = steps_read(cost), cost.get("light_steps") or 0
    lights = float(parts.get(LIGHT) or 0.0)
    profile = sum(float(parts.get(part) or 0.0) for part in PROFILE)
    rest = own - lights - profile - float(parts.get(WRITING) or 0.0)
    if sighted:
        rest = float(cost.get("full_s") or 0.0)
        lights = own - rest - float(cost.get("sighted_s") or 0.0) - profile
    each = [f"{_each(rest, full)} full steps"] if full and parts else []
    each += [f"{_each(cost['sighted_s'], sighted)} of which only the layers were read"] if sighted and each else []
    each += [f"{_each(lights, light)} light ones"] if light and each else []
    each += [f"{duration(profile)} for the profile"] if profile >= LEAST_PROFILE * own and each else []
    took = f"{duration(own)} on {duration(training)} of training{': ' if each else ''}{', '.join(each)}"
    return f"{took}; allowed: {f'{start:g} s at the start, then ' if start else ''}{100 * budget:.3g}%"


def _each(seconds: float, count: int) -> str:
    taken = 1000 * max(0.0, seconds) / count
    said = "under 0.1" if taken < LEAST_MS else f"{taken:.2g}" if taken < 10 else f"{taken:,.0f}"
    return f"{said} ms in each of {count:,}"
