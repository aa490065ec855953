"""What recording a long run takes: memory, file, time a step, and time to read it back.

    python benchmarks/memory.py [--steps 1000000] [--sites 500] [--every 50] [--all-full] [--json FILE]

Steps with made-up numbers go through the real Recorder to a real file; nothing is trained. As the governor of the
overhead makes it, the first 1,000 steps are full and then one in ``--every``; ``--all-full`` reads the sites at every
step. The writer is called every so many steps, as it would come every half second of a training of 2.7 ms a step: a
simulated training has no pauses in which it could come by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import STATS, Layout, RunInfo, Site, Step, column
from neuraldbg.record import Recorder, file_bound, read_run

FIRST = 1_000
"""Steps at the beginning that are full."""
EACH, EACH_FULL = 185, 64
"""Steps between two looks of the writer: half a second of 2.7 ms each, or as many full ones as fill half its queue."""
KINDS = 64
"""Different tables that take turns."""
MIB = 2**20


@dataclass
class Mark:
    """How things stood after some steps."""

    step: int
    rss: float
    """Resident memory of this process in MiB."""
    file: float
    """The run file with its log, MiB."""
    put_us: float
    """Microseconds a step on the training thread, since the last mark."""
    writer_us: float
    """CPU time of the writer, likewise."""


@dataclass
class Result:
    """What was measured."""

    steps: int
    full: int
    sites: int
    seconds: float
    marks: list[Mark]
    file: float
    """The closed run file, MiB."""
    bound: float
    open_ms: float
    open_cpu_ms: float
    """CPU time of it, which does not depend on what else the machine does."""
    series_ms: list[float]
    """Of single statistics of single sites, each read from a run that was just opened."""
    rows: int
    tables: int
    """Rows of time in the record, and those that have a table."""
    nonfinite: tuple[float, float]
    """Non-finite values put in, and found in the record."""


class Simulation:
    """Steps of a made-up model."""

    def __init__(self, sites: int, every: int) -> None:
        self.layout = Layout(sites=tuple(Site("param_grad", f"layer{i}", 0, "weight", "float32") for i in range(sites)))
        self.every = every
        self.full = 0
        self.nonfinite = 0.0
        random = np.random.default_rng(0)
        self._tables = [self._table(random, sites) for _ in range(KINDS)]
        self._none = np.zeros((0, len(STATS)))

    @staticmethod
    def _table(random: np.random.Generator, sites: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Moments and zeros vary from step to step; the counts of elements, units and findings hardly do."""
        table = np.zeros((sites, len(STATS)))
        table[:, [column("total"), column("count")]] = 4096
        for name in ("mean", "std", "rms", "min", "max", "zeros"):
            table[:, column(name)] = random.standard_normal(sites)
        return table

    def step(self, index: int) -> Step:
        """Make a step."""
        full = index < FIRST or index % self.every == 0
        table = self._none
        if full:
            table = self._tables[index % KINDS].copy()
            bad = index % 10_000 == 0
            table[0, column("nonfinite")] = bad
            self.full, self.nonfinite = self.full + 1, self.nonfinite + bad
        time_s = index * 0.0027
        scalars = {"loss": 1 / (1 + index), "loss_nonfinite": 0.0, "lr": 0.1, "backwards": 1.0, "forwards": 1.0,
                   "batch_size": 32.0, "grad_norm": 1.0 + index % 7, "duration": 0.0027 + index % 5 * 1e-5,
                   "overhead": 1e-5}  # fmt: skip
        return Step(index, 0, time_s, table, scalars)


def rss() -> float:
    """Return this process's resident memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / MIB


def on_disk(folder: Path) -> float:
    """Return the size of all files there in MiB."""
    return sum(file.stat().st_size for file in folder.iterdir()) / MIB


def record(recorder: Recorder, simulation: Simulation, folder: Path, steps: int, marks: int = 10) -> list[Mark]:
    """Put all steps, and measure now and then."""
    found = []
    put = writer = 0.0
    since = 0
    ends = {FIRST, *(steps * k // marks for k in range(1, marks + 1))}
    done = 0
    while done < steps:
        first, each = done, EACH_FULL if simulation.every == 1 or done < FIRST else EACH
        batch = [simulation.step(i) for i in range(first, min(first + each, steps))]
        begin = time.perf_counter()
        for step in batch:
            recorder.put(step, simulation.layout)
        put += time.perf_counter() - begin
        begin = time.thread_time()
        recorder.flush()
        writer += time.thread_time() - begin
        done = first + len(batch)
        if any(first < end <= done for end in ends):
            scale = 1e6 / (done - since)
            found.append(Mark(done, rss(), on_disk(folder), put * scale, writer * scale))
            put, writer, since = 0.0, 0.0, done
            print(f"{done:,} steps ...", file=sys.stderr, flush=True)
    return found


def read_back(folder: Path, sites: int) -> tuple[tuple[float, float], list[float], int, int, float]:
    """Time the opening, and single series; also return rows, rows with tables, and non-finite values."""
    opening, used, series = [], [], []
    for k in range(10):
        begin, cpu = time.perf_counter(), time.process_time()
        run = read_run(folder)
        opening.append(1000 * (time.perf_counter() - begin))
        used.append(1000 * (time.process_time() - cpu))
        begin = time.perf_counter()
        if k % 2:
            run.scalar("loss")
        else:
            run.series(k * (sites - 1) // 9, "rms", "max")
        series.append(1000 * (time.perf_counter() - begin))
    bad = float(run.history.stat(0, "nonfinite").sum())
    return (
        (float(np.median(opening)), float(np.median(used))),
        series,
        len(run.history),
        int(run.history.read.sum()),
        bad,
    )


def measure(steps: int, sites: int, every: int, settings: RecordSettings) -> Result:
    """Record a run and read it back."""
    with tempfile.TemporaryDirectory() as name:
        folder, simulation = Path(name), Simulation(sites, every)
        # The writer comes when it is called.
        recorder = Recorder(folder, settings.replaced(flush_s=1e6), RunInfo(script="simulated"))
        begin = time.perf_counter()
        marks = record(recorder, simulation, folder, steps)
        recorder.close()
        seconds = time.perf_counter() - begin
        assert recorder.problem is None, recorder.problem
        size = on_disk(folder)
        opening, series, rows, tables, bad = read_back(folder, sites)
        bound = file_bound(settings, sites) / MIB
        return Result(steps, simulation.full, sites, seconds, marks, size, bound, *opening, series, rows, tables,
                      (simulation.nonfinite, bad))  # fmt: skip


def show(result: Result, console: Console) -> None:
    """Print what was measured."""
    out = Table(title=f"{result.steps:,} steps, {result.full:,} of them full, {result.sites} sites")
    for head in ("after step", "RSS MiB", "file + log MiB", "put us/step", "writer CPU us/step"):
        out.add_column(head, justify="right")
    for mark in result.marks:
        out.add_row(
            f"{mark.step:,}", f"{mark.rss:.1f}", f"{mark.file:.1f}", f"{mark.put_us:.2f}", f"{mark.writer_us:.2f}"
        )
    console.print(out)
    settled = [mark.rss for mark in result.marks if mark.step > result.steps // 5]
    spread = max(settled) - min(settled)
    lines = {
        "RSS after the first fifth": f"within {spread:.1f} MiB ({min(settled):.1f} to {max(settled):.1f})",
        "run file": f"{result.file:.1f} MiB of at most {result.bound:.1f}",
        "rows kept": f"{result.rows:,}, of which {result.tables:,} have a table",
        "opening": f"{result.open_ms:.1f} ms, {result.open_cpu_ms:.1f} ms of CPU (medians of 10)",
        "one series": f"{np.median(result.series_ms):.2f} ms (median of 10), {max(result.series_ms):.2f} at most",
        "non-finite values": f"{result.nonfinite[1]:.0f} of {result.nonfinite[0]:.0f} found again",
        "whole simulation": f"{result.seconds:.0f} s, on {os.cpu_count()} cores",
    }
    for name, said in lines.items():
        console.print(f"{name:28}{said}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--sites", type=int, default=500)
    parser.add_argument("--every", type=int, default=50, help="one step in so many is full; default: %(default)s")
    parser.add_argument("--all-full", action="store_true", help="as --every 1")
    parser.add_argument("--budget", type=int, default=64, help="MiB; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to a file")
    return parser.parse_args()


def main() -> None:
    args = parse()
    settings = RecordSettings(budget_mb=args.budget)
    result = measure(args.steps, args.sites, 1 if args.all_full else args.every, settings)
    show(result, Console(width=100, highlight=False))
    if args.json:
        args.json.write_text(json.dumps(asdict(result), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
