"""Measures what watching costs, and writes docs/performance.md and its picture: `make bench`.

    python benchmarks/performance.py [--quick] [--cached] [--models MLP,GPT] [--no-peers] [--no-compiled]
                                     [--again eager|compiled|kernel|starting]

About an hour. The numbers are kept in .cache/bench/performance.json: ``--cached`` writes the page from them
anew. ``--again`` measures the models, eager or compiled, the kernel or starting anew and keeps the rest. ``--quick``
writes the page to .cache/bench instead of docs, since its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import kernel
import startup
from kinds import KINDS
from models import WORKLOADS
from overhead import QUICK, run, say, table
from performance_page import page
from performance_picture import draw
from rich.console import Console
from rounds import Effort

from neuraldbg.capture.guest.native import backend

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
KEPT = CACHE / "performance.json"


def machine() -> dict[str, Any]:
    """Say where this was measured."""
    named = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    packages = ["torch", "numpy", *sorted({kind.package for kind in KINDS.values() if kind.package})]
    return {
        "processor": named[0].partition(":")[2].strip() if named else platform.processor(),
        "cores": len(named) or None,
        "load": next(iter(_lines("/proc/loadavg")), "").split()[:1],
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "date": time.strftime("%d %B %Y"),
        "kernel": backend(),
        "versions": {name: _version(name) for name in packages},
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def measure(args: argparse.Namespace, kept: Path) -> None:
    """Run all three benchmarks, and keep what is there after each workload: a run that is broken off leaves a page."""
    began, effort = time.time(), QUICK if args.quick else Effort(sets=args.sets or Effort.sets)
    numbers: dict[str, Any] = {
        "machine": machine(),
        "effort": asdict(effort),
        "results": [],
    }
    say("start-up")
    numbers["repeats"] = 2 if args.quick else startup.REPEATS
    numbers["startup"] = startup.run(numbers["repeats"])
    Console(width=150).print(startup.table(numbers["startup"]))
    numbers["kernel"] = measure_kernel(0.05 if args.quick else kernel.REPEAT_S)
    for result in run(args.models.split(","), effort, peers=not args.no_peers, compiled=not args.no_compiled):
        Console(width=150).print(table([result]))
        numbers["results"].append(asdict(result))
        numbers["minutes"] = (time.time() - began) / 60
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def measure_kernel(seconds: float) -> list[dict[str, Any]]:
    """Measure the kernel, and print it."""
    say("kernel")
    speeds = kernel.run(seconds)
    Console(width=150).print(kernel.table(speeds))
    return [
        {**asdict(s), "gbs": s.gbs(s.kernel_us), "limit_gbs": s.gbs(s.limit_us), "copy_gbs": s.gbs(s.copy_us),
         "torch_gbs": s.gbs(s.torch_us)} for s in speeds
    ]  # fmt: skip


def measure_again(models: list[str], effort: Effort, kept: Path, *, compiled: bool, peers: bool) -> None:
    """Measure workloads anew, eager or compiled, in place of what was kept of them."""
    numbers = json.loads(kept.read_text(encoding="utf-8"))
    told = f", {effort.sets} times" if effort.sets != numbers["effort"]["sets"] else ""
    for result in run(models, effort, peers=peers, eager=not compiled, compiled=compiled):
        Console(width=150).print(table([result]))
        what = f"{result.workload} {'compiled' if compiled else 'eager'}"
        numbers["again"] = {**numbers.get("again", {}), what: time.strftime("%d %B %Y") + told}
        every = numbers["results"]
        same = [i for i, old in enumerate(every) if (old["workload"], old["compiled"]) == (result.workload, compiled)]
        if same:
            every[same[0]] = asdict(result)
        else:
            every.append(asdict(result))
            every.sort(key=lambda one: (one["compiled"], list(WORKLOADS).index(one["workload"])))
        kept.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def usable(kept: Path) -> bool:
    """Whether numbers that were kept say what the page tells of how they were measured."""
    return kept.exists() and "effort" in json.loads(kept.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(WORKLOADS), help="a comma between names; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="two short sets: to see that it works")
    sets = f"of processes of this tool; default: {Effort.sets}, or as the rest was"
    parser.add_argument("--sets", type=int, help=sets)
    parser.add_argument("--cached", action="store_true", help="write the page from what was measured before")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-compiled", action="store_true")
    parser.add_argument(
        "--again", choices=("eager", "compiled", "kernel", "starting"), help="measure this anew, keep the rest"
    )
    args = parser.parse_args()
    kept = CACHE / "quick.json" if args.quick else KEPT
    if args.sets is not None and args.sets < 1:
        parser.error("--sets has to be 1 or more")
    if (args.again or args.cached) and not usable(kept):
        parser.error(f"{kept} is missing, or of an older form of this benchmark: measure all, without this option")
    if args.again in ("eager", "compiled"):
        models, compiled = args.models.split(","), args.again == "compiled"
        effort = Effort(**json.loads(kept.read_text(encoding="utf-8"))["effort"])  # as the rest was
        effort = replace(effort, sets=args.sets or effort.sets)
        measure_again(models, effort, kept, compiled=compiled, peers=not args.no_peers)
    elif args.again:
        numbers = json.loads(kept.read_text(encoding="utf-8"))
        if args.again == "kernel":
            numbers["kernel"] = measure_kernel(kernel.REPEAT_S)
        else:
            numbers["startup"] = startup.run(startup.REPEATS)
        numbers["again"] = {**numbers.get("again", {}), args.again: time.strftime("%d %B %Y")}
        kept.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    elif not args.cached:
        measure(args, kept)
    numbers = json.loads(kept.read_text(encoding="utf-8"))
    folder = CACHE if args.quick else ROOT / "docs"
    draw(numbers, folder / "performance.png")
    (folder / "performance.md").write_text(page(numbers), encoding="utf-8")
    print(f"wrote {folder / 'performance.md'} and its picture")


if __name__ == "__main__":
    main()
