"""The picture of docs/performance.md: the numbers of performance.py enter, one panel a workload leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from performance_targets import quartiles

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart with any colour vision.
OURS, PEERS, NOISE = "#0072B2", "#D55E00", "#7F7F7F"
TICKS = (1, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
FLOOR = 1.001
"""Costs are drawn as the ratio less one, on a log axis; what is less than a thousandth is drawn as that."""


def colour(kind: str) -> str:
    if kind == "bare again":
        return NOISE
    return OURS if kind.startswith("NeuralDBG") else PEERS


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw the ratio of each kind to bare, with quartiles: eager workloads, one panel each, and the compiled in one."""
    mpl.use("Agg")
    eager = [result for result in numbers["results"] if not result["compiled"]]
    compiled = [result for result in numbers["results"] if result["compiled"]]
    rows = max(len(result["costs"]) for result in eager)
    panels = len(eager) + bool(compiled)
    figure, axes = plt.subplots(-(-panels // 2), 2, figsize=(13, (0.3 * rows + 1.1) * -(-panels // 2)), squeeze=False)
    for axis, result in zip(axes.flat, eager, strict=False):
        bars = [(cost["kind"], cost) for cost in result["costs"]]
        panel(axis, f"{result['workload']}: {result['bare_ms']:.3g} ms a step", bars)
    if compiled:
        bars = [
            (f"{result['workload']}, {cost['kind'].removeprefix('NeuralDBG, ').replace('NeuralDBG', 'default')}", cost)
            for result in compiled
            for cost in result["costs"]
        ]
        panel(axes.flat[len(eager)], "compiled", bars)
    for axis in axes.flat[panels:]:
        axis.set_axis_off()
    figure.suptitle(
        "Step time over the bare training's (bar: median; line: quartiles; diamond: all steps together)\n"
        "NeuralDBG: within one process; the others: between two"
    )
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def label(cost: dict[str, Any]) -> str:
    """Return the ratio, with that of all steps together where work is done only now and then."""
    ratio, totals = (f"{x:.3g}" if x >= 10 else f"{x:.3f}" for x in (quartiles(cost)[1], totals_of(cost)))
    return ratio if totals_of(cost) < 1.5 * quartiles(cost)[1] else f"{ratio} (all: {totals})"


def totals_of(cost: dict[str, Any]) -> float:
    """Return the ratio of all steps together, in place where it was measured so."""
    return float(cost["in_place_totals"] or cost["of_totals"])


def panel(axis: Axes, title: str, bars: list[tuple[str, dict[str, Any]]]) -> None:
    """Draw one workload, the first kind on top."""
    measured = [max(quartiles(cost)[2], totals_of(cost)) for _, cost in bars if not cost["problem"]]
    most = max([1.05, *measured]) - 1
    floor = FLOOR - 1
    for place, (_, cost) in enumerate(bars):
        if cost["problem"]:
            axis.text(floor * 1.1, place, "not measured", va="center", fontsize=8, color=NOISE)
            continue
        low, ratio, high = (max(each - 1, floor) for each in quartiles(cost))
        kind = cost["kind"]
        axis.barh(place, ratio - floor, left=floor, color=colour(kind), height=0.7, alpha=0.85)
        axis.plot([low, high], [place, place], color="black", linewidth=1.2)
        totals = max(totals_of(cost) - 1, floor)
        axis.plot(totals, place, marker="D", markersize=4, markerfacecolor="white", markeredgecolor="black", zorder=3)
        axis.text(max(high, ratio, totals) * 1.2, place, label(cost), va="center", fontsize=8)
    axis.set_yticks(range(len(bars)), [name for name, _ in bars], fontsize=8)
    axis.set_ylim(len(bars) - 0.4, -0.6)  # the first on top, with room for rows that have no bar
    axis.set_xscale("log")
    axis.set_xlim(floor, most * 25)
    shown = [tick - 1 for tick in TICKS[1:] if tick - 1 <= most * 25]
    spaced = shown if len(shown) < 11 else [tick - 1 for tick in (1.01, 1.1, 2, 10, 100, 1000) if tick - 1 <= most * 25]
    axis.xaxis.set_major_locator(FixedLocator(spaced))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{1 + x:g}"))
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
    axis.set_title(title, fontsize=10, loc="left")
