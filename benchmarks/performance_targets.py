"""What was aimed at, beside what was reached: the numbers of performance.py enter, rows of a table leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT, FULL = "NeuralDBG", "NeuralDBG, all"
DEFAULT_MOST = {"MLP": 1.02, "Narrow": 1.02, "ConvNet": 1.01, "LSTM": 1.01, "GPT": 1.01}
FULL_MOST = {"MLP": 1.15, "ConvNet": 1.03, "GPT": 1.03}
COMPILED_MOST = 1.03
BEYOND_CACHE = 2**24
"""Elements: 64 MB of float32."""
SHARE, CALL_US = 0.7, 2.0
IMPORT_MS, ATTACH_MS, HELP_MS = 50.0, 100.0, 150.0


@dataclass(frozen=True)
class Target:
    """One aim, and whether it was met."""

    what: str
    aim: str
    reached: str
    met: str


def found(result: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Return what was measured of a kind; None if nothing was."""
    return next((c for c in result["costs"] if c["kind"] == kind and not c["problem"]), None)


def quartiles(cost: dict[str, Any]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile of the ratio: in place, where it was measured so."""
    names = ("in_place_low", "in_place", "in_place_high") if cost["in_place"] else ("low", "ratio", "high")
    low, ratio, high = (float(cost[name]) for name in names)
    return low, ratio, high


def noise(result: dict[str, Any]) -> float:
    """Return how far the quartiles of bare against bare lie from 1."""
    again = found(result, "bare again")
    return max(abs(end - 1) for end in quartiles(again)[::2]) if again else 0.0


def _stray(result: dict[str, Any]) -> float:
    """Return how far bare against bare lies from 1 between processes, by its quartiles."""
    again = found(result, "bare again")
    return max(abs(float(again[end]) - 1) for end in ("low", "high")) if again else 0.0


def _ratio(result: dict[str, Any], kind: str, most: float, label: str) -> list[Target]:
    """Judge by the ratio in place. It does not see what the turns without the tool bear as well: where even the lower
    quartile between processes lies beyond the aim and what bare ones stray, the aim is not met.
    """
    cost = found(result, kind)
    if cost is None:
        return []
    more, stray, (_, ratio, _) = noise(result), _stray(result), quartiles(cost)
    met = "yes" if ratio <= most else "within the noise" if ratio <= most + more else "**no**"
    if float(cost["low"]) > most + stray:
        met = "**no**"
    what = f"{label}, {result['workload']}{' compiled' if result['compiled'] else ''}"
    reached = f"{ratio:.3f} (noise {more:.3f}), between processes {float(cost['ratio']):.3f} ({stray:.3f})"
    return [Target(what, f"ratio <= {most:.2f}", reached, met)]


def targets(numbers: dict[str, Any]) -> list[Target]:
    """Judge every aim for which there is a number."""
    eager = [result for result in numbers["results"] if not result["compiled"]]
    rows = [
        row
        for label, kind, aims in (("default budget", DEFAULT, DEFAULT_MOST), ("every site every step", FULL, FULL_MOST))
        for result in eager
        if result["workload"] in aims
        for row in _ratio(result, kind, aims[result["workload"]], label)
    ]
    for result in numbers["results"]:
        if result["compiled"]:
            rows += _compiled(result)
    return [*rows, *_kernel(numbers["kernel"]), *_starts(numbers["startup"])]


def _compiled(result: dict[str, Any]) -> list[Target]:
    rows = _ratio(result, DEFAULT, COMPILED_MOST, "default budget")
    rows += _ratio(result, FULL, COMPILED_MOST, "every site every step")
    plain = found(result, "bare again")
    for kind in (DEFAULT, "NeuralDBG, every 2nd"):
        cost = found(result, kind)
        if cost is None or plain is None:
            continue
        reached = (
            f"{cost['breaks']} breaks, {cost['graphs']} graphs (bare {plain['graphs']}), {cost['late_graphs']} later"
        )
        good = not cost["breaks"] and not cost["late_graphs"]
        what = f"{kind}, {result['workload']} compiled"
        rows.append(Target(what, "no graph break, no recompile in mid-course", reached, _met(good=good)))
    return rows


def _kernel(speeds: list[dict[str, Any]]) -> list[Target]:
    rows = [
        Target(
            f"kernel, {one['elements']:,} of {one['dtype']}",
            f">= {SHARE:.0%} of a plain read",
            f"{one['gbs']:.1f} of {one['limit_gbs']:.1f} GB/s: {one['gbs'] / one['limit_gbs']:.0%}",
            _met(good=one["gbs"] >= SHARE * one["limit_gbs"]),
        )
        for one in speeds
        if one["elements"] >= BEYOND_CACHE
    ]
    small = min((one for one in speeds if one["dtype"] == "float32"), key=lambda one: int(one["elements"]))
    took = small["kernel_us"]
    return [
        *rows,
        Target("kernel, 1,024 of float32", f"<= {CALL_US:g} us a call", f"{took:.2f} us", _met(good=took <= CALL_US)),
    ]


def _starts(starts: dict[str, float]) -> list[Target]:
    aims = (
        ("import neuraldbg", "`import neuraldbg` after torch", IMPORT_MS),
        ("from neuraldbg import NeuralDbg", "`from neuraldbg import NeuralDbg` after torch", IMPORT_MS),
        ("attach to 1,000 modules", "attaching to 1,000 modules", ATTACH_MS),
        ("neuraldbg --help", "`neuraldbg --help`", HELP_MS),
    )
    return [
        Target(what, f"<= {most:g} ms", f"{starts[name]:.1f} ms", _met(good=starts[name] <= most))
        for name, what, most in aims
    ]


def _met(*, good: bool) -> str:
    return "yes" if good else "**no**"
