"""What watching costs: the same training bare and under the tool, interleaved, as ratios of step times.

    python benchmarks/overhead.py [--models MLP,GPT] [--rounds 8] [--separate] [--json FILE]

Each round trains a block of steps with a bare copy of the model, a watched copy, and a second bare copy, in an order
that rotates, so that a machine that slows down or speeds up meanwhile does so for all three. The second bare copy says
what differences mean nothing here. All copies have the same seed. Blocks start with steps that are not timed; of the
watched copy they take in the attaching and the first steps, which read more than later ones.

While the tool is attached, torch functions that it replaces are replaced for the whole process; in one process it
is therefore detached while the bare copies train. `--separate` gives each block a fresh process instead, in which the
tool stays attached from the first step to the last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from models import WORKLOADS, Trainer, Workload
from rich.console import Console
from rich.table import Table

from neuraldbg import NeuralDbg

WARM_UP = 5
"""Steps at the start of a block that are not timed."""
FIRST_WINDOW = 20
"""The first steps of a session, which read more; not timed either where a block is that long. A run has them once."""
KINDS = ("bare", "watched", "bare again")


@dataclass
class Block:
    """One kind's step times in one round."""

    kind: str
    seconds: list[float]
    sites: int = 0
    """Places at which numbers were read; 0 for a bare block."""


@dataclass
class Result:
    """What the rounds say about one workload. Ratios are watched over bare."""

    model: str
    parameters: int
    sites: int
    bare_ms: float
    """Median over all steps of all rounds, as the next."""
    watched_ms: float
    ratio: float
    """Of these medians."""
    ratio_low: float
    """First and third quartile, over rounds, of the ratio of one round's medians."""
    ratio_high: float
    ratio_of_totals: float
    """Of the total times: unlike the medians, it sees work that is done only now and then."""
    noise_low: float
    """Quartiles, over rounds, of the second bare copy over the first."""
    noise_high: float


def timed(trainer: Trainer, steps: int, warm_up: int) -> list[float]:
    """Return the seconds of each step after the warm-up."""
    for _ in range(warm_up):
        trainer.step()
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        trainer.step()
        seconds.append(time.perf_counter() - begin)
    return seconds


def run_block(trainer: Trainer, kind: str, steps: int, warm_up: int = WARM_UP) -> Block:
    """Train a block, under the tool with everything it does by default if the kind says so."""
    if kind != "watched":
        return Block(kind, timed(trainer, steps, warm_up))
    with tempfile.TemporaryDirectory() as folder:
        dbg = NeuralDbg(trainer.model, trainer.optimizer, out=folder)
        dbg.start()
        try:
            seconds = timed(trainer, steps, warm_up)
        finally:
            dbg.stop()
        return Block(kind, seconds, len(dbg.record().layout.sites))


def rotated(number: int) -> tuple[str, ...]:
    """Return the kinds in the order of a round."""
    shift = number % len(KINDS)
    return KINDS[shift:] + KINDS[:shift]


def in_one_process(workload: Workload, rounds: int) -> list[list[Block]]:
    """Interleave blocks of three copies of the model that live side by side."""
    trainers = {kind: Trainer(workload) for kind in KINDS}
    warm_up = max(WARM_UP, min(FIRST_WINDOW, workload.steps))
    return [[run_block(trainers[kind], kind, workload.steps, warm_up) for kind in rotated(n)] for n in range(rounds)]


def in_fresh_processes(workload: Workload, rounds: int) -> list[list[Block]]:
    """Give each block a process of its own."""

    def block(kind: str) -> Block:
        command = [sys.executable, __file__, "--worker", kind, "--models", workload.name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return Block(**json.loads(done.stdout.splitlines()[-1]))

    return [[block(kind) for kind in rotated(n)] for n in range(rounds)]


def summary(workload: Workload, rounds: list[list[Block]]) -> Result:
    """Reduce the rounds of one workload to the numbers of its row."""
    times = {kind: [block.seconds for blocks in rounds for block in blocks if block.kind == kind] for kind in KINDS}
    bare, watched = ([second for block in times[kind] for second in block] for kind in ("bare", "watched"))
    ratio_low, ratio_high = quartiles_of_ratios(times["watched"], times["bare"])
    noise_low, noise_high = quartiles_of_ratios(times["bare again"], times["bare"])
    return Result(
        model=workload.name,
        parameters=sum(p.numel() for p in workload.model().parameters()),
        sites=max(block.sites for blocks in rounds for block in blocks),
        bare_ms=1000 * statistics.median(bare),
        watched_ms=1000 * statistics.median(watched),
        ratio=statistics.median(watched) / statistics.median(bare),
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        ratio_of_totals=sum(watched) / sum(bare),
        noise_low=noise_low,
        noise_high=noise_high,
    )


def quartiles_of_ratios(above: list[list[float]], below: list[list[float]]) -> tuple[float, float]:
    """Return the first and third quartile of the ratios of the blocks' medians, paired by round."""
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(above, below, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return low, high


def table(results: list[Result], rounds: int, where: str) -> Table:
    """Draw the results."""
    out = Table(
        title="What watching costs (ratios: watched / bare)",
        caption=f"torch {torch.__version__}, {torch.get_num_threads()} threads, {rounds} rounds {where}; "
        "ranges are the quartiles over rounds",
    )
    for head in ("model", "parameters", "sites", "bare ms", "watched ms", "ratio", "range", "of totals", "bare / bare"):
        out.add_column(head, justify="left" if head == "model" else "right")
    for r in results:
        out.add_row(
            r.model,
            f"{r.parameters:,}",
            str(r.sites),
            f"{r.bare_ms:.2f}",
            f"{r.watched_ms:.2f}",
            f"{r.ratio:.3f}",
            f"{r.ratio_low:.3f}-{r.ratio_high:.3f}",
            f"{r.ratio_of_totals:.3f}",
            f"{r.noise_low:.3f}-{r.noise_high:.3f}",
        )
    return out


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(WORKLOADS), help="a comma between names; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--separate", action="store_true", help="give each block a fresh process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to a file")
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.models = args.models.split(",")
    unknown = [name for name in args.models if name not in WORKLOADS]
    if unknown:
        parser.error(f"no such model: {', '.join(unknown)} (there are {', '.join(WORKLOADS)})")
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


def main() -> None:
    args = parse()
    if args.worker:
        workload = WORKLOADS[args.models[0]]
        # A fresh process takes about a second to settle: allocator, thread pools, clock of the cores.
        block = run_block(Trainer(workload), args.worker, 2 * workload.steps, warm_up=WARM_UP + workload.steps)
        print(json.dumps(asdict(block)))
        return
    measure = in_fresh_processes if args.separate else in_one_process
    results = []
    for name in args.models:
        print(f"{name} ...", file=sys.stderr)
        results.append(summary(WORKLOADS[name], measure(WORKLOADS[name], args.rounds)))
    Console(width=120).print(table(results, args.rounds, "in fresh processes" if args.separate else "in one process"))
    if args.json:
        args.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
