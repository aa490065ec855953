"""What watching costs: the same training bare, under this tool and under others, as ratios of step times.

    python benchmarks/overhead.py [--models MLP,GPT] [--quick] [--no-peers] [--no-compiled] [--json FILE]

Each kind (``kinds.py``) trains its own copy of a model, of the same seed, in a process that stays attached from the
first step to the last (``turns.py``). They take turns of a tenth of a second; who has none is stopped
(``workers.py``). For this tool that is done with several sets of processes (``rounds.py``). A second bare copy says
what differences mean nothing here. `performance.py` writes what comes out to docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kinds import KINDS
from models import WORKLOADS
from rich.console import Console
from rich.table import Table
from rounds import (
    BARE,
    LEAST,
    Cost,
    Course,
    Effort,
    cost,
    in_place,
    in_turns,
    median,
    opening,
    pooled,
    tell_in_place,
    tell_opening,
)
from traincheck_peer import command
from workers import Worker, WorkerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = ("bare again", "NeuralDBG", "NeuralDBG, all")
PEERS = tuple(kind.name for kind in KINDS.values() if kind.peer)
COMPILED = ("MLP", "Narrow", "ConvNet", "LSTM", "GPT")
MOST_WARM_UP_S = 15.0
"""Of bare steps. A large model is measured before it is through."""
QUICK = Effort(sets=2, rounds=2, seconds=0.5, peer_rounds=1, peer_seconds=0.1, opening_s=2.0)


@dataclass
class Result:
    """What was measured on one workload."""

    workload: str
    compiled: bool
    parameters: int
    bare_ms: float
    costs: list[Cost]


def started(stack: ExitStack, kind: str, workload: str, compiled: bool) -> Worker:
    """Start a worker that ends with the stack."""
    how = partial(command, workload) if KINDS[kind].attach is None else None
    return stack.enter_context(Worker(kind, workload, compiled, how))


def measure(workload: str, compiled: bool, effort: Effort, *, peers: bool) -> Result:
    """Measure one workload: this tool in several sets of processes, the others beside one bare training."""
    kinds = [*OURS, *(("NeuralDBG, every 2nd",) if compiled else ())]
    sets: list[list[Cost]] = []
    others: list[Cost] = []
    for number in range(effort.sets):
        with ExitStack() as stack:
            bare = started(stack, BARE, workload, compiled)
            if number % 2:
                bare.compile_apart()
            bare.turn(2.0, 20)
            sets.append(group(bare, kinds, effort, number))
            if peers and number == 0:
                for name in PEERS:  # one at a time: a peer may need a lot of memory
                    others += group(bare, [name], effort.for_peers())
            left = bare.peak()
            bare.close()
        for one in (*sets[-1], *(others if number == 0 else ())):
            one.memory_mb -= 0 if one.problem else left / 1e6
    costs = [*(pooled(same) for same in zip(*sets, strict=True)), *others]
    result = Result(workload, compiled, bare.hello["parameters"], 0.0, costs)
    result.bare_ms = next((one.step_ms for one in costs if one.kind == "bare again" and not one.problem), 0.0)
    return result


def group(bare: Worker, kinds: list[str], effort: Effort, number: int = 0) -> list[Cost]:
    """Measure some kinds side by side; what fails is a row that says so. In every second set what is compiled without a
    tool is compiled first: of two models that were compiled alike in one process, one may be slower for good.
    """
    costs: dict[str, Cost] = {}
    with ExitStack() as stack:
        workers = []
        for kind in kinds:
            say(f"{bare.workload}{' compiled' if bare.compiled else ''}: {kind}")
            try:
                worker = started(stack, kind, bare.workload, bare.compiled)
                if number % 2:
                    worker.compile_apart()
                costs[kind] = begin(bare, worker, effort, first=number == 0)
                workers.append(worker)
            except WorkerFailed as failure:
                costs[kind] = Cost(kind, problem=str(failure))
        try:
            least = max(LEAST, *(KINDS[kind].period for kind in kinds))
            course = in_turns(bare, workers, effort.rounds, effort.seconds, least) if workers else None
        except WorkerFailed as failure:  # whoever it was: a tool that dies in mid-course has no numbers
            return [Cost(kind, problem=str(failure)) for kind in kinds]
        for worker in workers:
            assert course is not None
            try:
                costs[worker.kind].memory_mb = worker.peak() / 1e6  # in place a model is compiled once more
                if worker.hello.get("aside"):
                    tell_in_place(costs[worker.kind], in_place(worker, effort.rounds, effort.seconds))
                finish(costs[worker.kind], course, worker)
            except WorkerFailed as failure:
                costs[worker.kind].problem = str(failure)
    return list(costs.values())


def begin(bare: Worker, worker: Worker, effort: Effort, *, first: bool) -> Cost:
    """Take a worker's first steps, and say what they cost if it is the first of its kind."""
    ours = worker.kind == "NeuralDBG"
    found = Cost(worker.kind, attach_ms=1000 * worker.hello["attach_s"])
    seconds = effort.opening_s if ours else min(effort.opening_s, 1.0)
    steps = KINDS[worker.kind].warm_up
    if steps:
        steps = min(steps, int(MOST_WARM_UP_S / median(bare.turn(0.0, LEAST))))
    if not first:
        worker.turn(0.0)  # it may compile
        found.graphs = worker.turn(seconds, steps).graphs
        return found
    course = opening(bare, worker, seconds, steps)
    tell_opening(found, course)
    found.graphs = course.last(worker.kind).graphs
    return found


def finish(found: Cost, course: Course, worker: Worker) -> None:
    """Add what the rounds said, and what the tool leaves."""
    ratios, left = cost(course, worker.kind), worker.close()
    for name in ("step_ms", "ratio", "low", "high", "ratios", "of_totals", "of_processor"):
        setattr(found, name, getattr(ratios, name))
    last = course.last(worker.kind)
    found.late_graphs += last.graphs - found.graphs
    found.graphs, found.breaks = last.graphs, last.breaks
    found.steps, found.sites, found.close_s = left["steps"], left.get("sites", 0), left["close_s"]
    found.disk_mb = left["disk"] / 1e6
    found.disk_kb_a_step = left["disk"] / 1e3 / max(found.steps, 1)


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def run(
    models: list[str], effort: Effort, *, peers: bool = True, eager: bool = True, compiled: bool = True
) -> Iterator[Result]:
    """Measure workloads, eager and then compiled, one after the other."""
    # Told to end, it ends its workers, too: they are stopped, and would stay so.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    for name in models if eager else ():
        yield measure(name, False, effort, peers=peers)
    for name in models:
        if compiled and name in COMPILED:
            yield measure(name, True, effort, peers=False)


def table(results: list[Result]) -> Table:
    """Draw the results."""
    heads = (
        "model",
        "kind",
        "step ms",
        "ratio",
        "quartiles",
        "in place",
        "quartiles",
        "of totals",
        "of CPU",
        "start s",
        "MB",
        "disk KB/step",
        "graphs",
    )
    out = Table(*heads, title="What watching costs (ratios to the bare training)")
    for result in results:
        name = result.workload + (" compiled" if result.compiled else "")
        for one in result.costs:
            if one.problem:
                out.add_row(name, one.kind, f"NOT MEASURED: {one.problem}")
                continue
            out.add_row(
                name, one.kind, f"{one.step_ms:.2f}", f"{one.ratio:.3f}", f"{one.low:.3f}-{one.high:.3f}",
                f"{one.in_place:.3f}" if one.in_place else "",
                f"{one.in_place_low:.3f}-{one.in_place_high:.3f}" if one.in_place else "",
                f"{one.of_totals:.3f}", f"{one.of_processor:.3f}", f"{one.start_s:.2f}",
                f"{one.memory_mb:.0f}", f"{one.disk_kb_a_step:.2f}",
                f"{one.graphs} (+{one.late_graphs})" if result.compiled else "",
            )  # fmt: skip
        out.add_section()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(WORKLOADS), help="a comma between names; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="two short sets: to see that it works")
    parser.add_argument("--sets", type=int, help=f"sets of processes of this tool; default: {Effort.sets}")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-compiled", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to a file")
    args = parser.parse_args()
    effort = QUICK if args.quick else Effort()
    if args.sets:
        effort = replace(effort, sets=args.sets)
    models = args.models.split(",")
    if unknown := [name for name in models if name not in WORKLOADS]:
        parser.error(f"no such model: {', '.join(unknown)} (there are {', '.join(WORKLOADS)})")
    results = list(run(models, effort, peers=not args.no_peers, compiled=not args.no_compiled))
    Console(width=150).print(table(results))
    if args.json:
        args.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
