"""What exporting a run takes in each format: time, peak memory, and the size of what is written.

    python benchmarks/export.py [RUN ...] [--steps 100000] [--sites 500] [--format FORMAT ...]

Each RUN is a saved run; besides, a made-up one of so many steps and sites is recorded (see memory.py), unless
``--steps 0`` says not to. Each format is written in a process of its own, which has read and explained the run before.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory import MIB, Simulation, record, rss
from rich.console import Console
from rich.table import Table

from neuraldbg.config import RecordSettings
from neuraldbg.export import EXPORTERS, export
from neuraldbg.nouns import RunInfo
from neuraldbg.record import Recorder
from neuraldbg.saved import Run


def one(folder: str, name: str) -> None:
    """Write one format, and print what it took as JSON."""
    run = Run.load(folder)
    diagnosis = run.diagnose()
    before, peak_before = rss(), peak()
    with tempfile.TemporaryDirectory() as place:
        begin, cpu = time.perf_counter(), time.process_time()
        written = export(run, diagnosis, Path(place) / "out", name)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        files = [written] if written.is_file() else list(written.iterdir())
        size = sum(file.stat().st_size for file in files) / MIB
    # Memory that the diagnosis took and gave back shows in the peak before: what is more than that is the export's.
    took = {"seconds": seconds, "cpu": cpu, "size": size, "before": before, "peak_before": peak_before, "peak": peak()}
    print(json.dumps(took))


def peak() -> float:
    """Return the largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def simulated(folder: Path, steps: int, sites: int) -> Path:
    """Record a made-up run."""
    recorder = Recorder(folder, RecordSettings(flush_s=1e6), RunInfo(script="simulated", started=1.7e9))
    record(recorder, Simulation(sites, 50), folder, steps)
    recorder.close()
    return folder


def measure(console: Console, title: str, folder: Path, formats: list[str]) -> None:
    """Print a table for a run."""
    out = Table(title=title)
    for head in ("format", "s", "CPU s", "MiB written", "MiB before", "peak before", "peak"):
        out.add_column(head, justify="left" if head == "format" else "right")
    for name in formats:
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(folder), name], stdout=subprocess.PIPE, check=True
        )
        took = json.loads(done.stdout)
        out.add_row(
            name,
            f"{took['seconds']:.2f}",
            f"{took['cpu']:.2f}",
            f"{took['size']:.1f}",
            *(f"{took[key]:.0f}" for key in ("before", "peak_before", "peak")),
        )
    console.print(out)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:4])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--sites", type=int, default=500)
    parser.add_argument("--format", action="append", dest="formats", metavar="FORMAT")
    args = parser.parse_args()
    formats = args.formats or [member.name for member in EXPORTERS]
    console = Console(width=100, highlight=False)
    for run in args.runs:
        measure(console, run.name, run, formats)
    if args.steps:
        with tempfile.TemporaryDirectory() as name:
            folder = simulated(Path(name), args.steps, args.sites)
            measure(console, f"made up: {args.sites} sites, {args.steps:,} steps", folder, formats)


if __name__ == "__main__":
    main()
