"""What hooks and breakpoints cost: the same training bare, watched, with hooks, and with breakpoints that never fire.

    python benchmarks/hooks.py [--models MLP,ConvNet,GPT] [--seconds 2.5] [--sets 3] [--json FILE]

Each kind trains in a process of its own and they take turns, as in `overhead.py`. A ratio is the median, over turns, of
the median step to that of the bare turns beside it; of several sets of processes the median of theirs.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from models import WORKLOADS
from rich.console import Console
from rich.table import Table
from rounds import BARE, Cost, cost, in_turns, pooled
from workers import Worker

OURS = (
    "bare again",
    "NeuralDBG",
    "a hook on all layers",
    "statistics of all layers",
    "a condition at all layers",
    "a breakpoint at one layer",
)
"""All but the first are sessions with the default budget, after the beginning of a run."""
OPENING_S, OPENING_STEPS = 1.5, 20
"""The beginning of each process, which does more than later steps: seconds and steps, at least."""


def measure(workload: str, sets: int, seconds: float) -> list[Cost]:
    """Measure all kinds on one workload."""
    found: list[list[Cost]] = []
    for number in range(sets):
        print(f"{workload}: set {number + 1} of {sets}", file=sys.stderr, flush=True)
        with ExitStack() as stack:
            bare, *others = [stack.enter_context(Worker(kind, workload)) for kind in (BARE, *OURS)]
            for worker in (bare, *others):
                worker.turn(OPENING_S, OPENING_STEPS)
            course = in_turns(bare, others, rounds=5, seconds=seconds)
            found.append([cost(course, kind) for kind in OURS])
            for worker, one in zip(others, found[-1], strict=True):
                one.steps = worker.close()["steps"]
            bare.close()
    return [pooled(same) for same in zip(*found, strict=True)]


def table(results: dict[str, list[Cost]]) -> Table:
    """Draw the results."""
    out = Table("model", "kind", "step ms", "ratio", "quartiles", "of totals", "steps")
    for workload, costs in results.items():
        for one in costs:
            spread = f"{one.low:.3f} to {one.high:.3f}"
            cells = (f"{one.step_ms:.3f}", f"{one.ratio:.3f}", spread, f"{one.of_totals:.3f}", f"{one.steps:,}")
            out.add_row(workload if one is costs[0] else "", one.kind, *cells, end_section=one is costs[-1])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="MLP,ConvNet,GPT", help=f"some of {', '.join(WORKLOADS)}")
    parser.add_argument("--sets", type=int, default=3, help="processes of each kind, one after the other")
    parser.add_argument("--seconds", type=float, default=2.5, help="training of each process in each set, at least")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    names = options.models.split(",")
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"there is no model {unknown[0]!r}: use {', '.join(WORKLOADS)}")
    results = {name: measure(name, options.sets, options.seconds) for name in names}
    Console(width=120).print(table(results))
    if options.json is not None:
        told = {name: [asdict(one) for one in costs] for name, costs in results.items()}
        options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
