"""A script run under a session for the sake of one question: where did the time of watching go?"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuraldbg.cli.command import FAILED, OK
from neuraldbg.runner.script import execute
from neuraldbg.runner.session_guard import Watch
from neuraldbg.show.format.run_line import steps_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from neuraldbg.runner.script import Program


def clocked(program: Program) -> int:
    """Run the program, then print the breakdown; the exit status is 1 if it failed or nothing was trained."""
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(program, Path(folder) / "run", None)
        watch.arm()
        ending = execute(program)
        diagnosis = watch.finish(ending)
    for problem in watch.problems:
        print(f"neuraldbg: {problem}", file=sys.stderr)
    cost = (diagnosis.run.get("coverage") or {}).get("cost") if diagnosis is not None else None
    if not cost or not cost["full_steps"]:
        print("neuraldbg: no training step was seen, so there is nothing to break down", file=sys.stderr)
        return FAILED
    width = 26
    for name, value in lines(cost):
        print(f"{name:<{width}}  {value}")
    return OK if ending.error is None else ending.announce()


def lines(cost: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Say what watching cost, a name and its value at a time. ``cost`` is ``coverage["cost"]`` of a diagnosis."""
    (full, sighted), light = steps_read(cost), cost["light_steps"]
    steps = full + sighted + light
    layers = f"the layers of {sighted:,} more, " if sighted else ""
    yield "steps", f"{steps:,}: {full:,} read in full, {layers}{light:,} light"
    yield "training by itself", _each(cost["training_s"], steps)
    yield "watching it", _each(cost["own_s"], steps)
    for name, seconds in sorted(cost["parts_s"].items(), key=lambda part: -part[1]):
        yield f"  {name}", _each(seconds, steps)
    ratio = cost["ratio"]
    if ratio is not None:
        yield "overhead", f"{ratio:.2%} of the training's time"
    if cost["budget"] is None:
        yield "budget", "none: every step is read in full"
    else:
        yield "budget", f"{cost['budget']:.2%}, and {cost['allowance_s']:g} s at the start of a run"


def _each(seconds: float, steps: int) -> str:
    return f"{seconds:.3f} s, {1e6 * seconds / max(steps, 1):,.1f} us a step"
