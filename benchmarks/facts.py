"""What the facts about the program cost: a watched training with and without reading them, interleaved.

    python benchmarks/facts.py [--models ConvNet,GPT] [--rounds 3]

Facts are read in the first steps of a run and then ever more rarely (steps that are powers of two), but for a few
numbers of every step. Two copies of a model train in turn, both under the tool: one as it comes, the other with every
reader, the reading of the loss's graph and the log of facts switched off. The ratio of their step times is what the
facts add; a second copy without facts says what differences mean nothing here. Beside it stands the time that was
clocked inside the code that reads facts, over the step: it is free of noise, and blind to what the code does to caches.
The first steps are reported apart, in milliseconds, since a run has them once.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from models import WORKLOADS, Trainer, Workload
from rich.console import Console
from rich.table import Table

from neuraldbg import NeuralDbg
from neuraldbg.capture.loop.backward import Losses
from neuraldbg.capture.readers import Readers
from neuraldbg.capture.steps.fact_schedule import Learning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST = 260
"""Steps of a block, which is a run of its own, that are counted apart: some facts are read at each of the first 256."""
KINDS = ("with facts", "without", "without again")


@dataclass
class Clock:
    """Seconds spent in the code that reads facts; calls inside calls count once."""

    seconds: float = 0.0
    inside: bool = False

    def timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return original(*args, **kwargs)
            self.inside, began = True, time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.inside = False
                self.seconds += time.perf_counter() - began

        return call


@dataclass
class Block:
    """Steps of one kind in one round."""

    seconds: list[float] = field(default_factory=list)
    facts: list[float] = field(default_factory=list)


@contextlib.contextmanager
def reading(clock: Clock, *, facts: bool) -> Iterator[None]:
    """Clock what reads facts, or switch it off."""
    with contextlib.ExitStack() as stack:
        if facts:
            for owner, name in ((Readers, "at"), (Learning, "learn"), (Losses, "read_graph")):
                stack.enter_context(mock.patch.object(owner, name, clock.timed(getattr(owner, name))))
        else:
            none = functools.partial(Readers, members=())
            stack.enter_context(mock.patch("neuraldbg.capture.capture.Readers", none))
            stack.enter_context(mock.patch.object(Learning, "reading", return_value=False))
            stack.enter_context(mock.patch.object(Losses, "read_graph", return_value=None))
            stack.enter_context(mock.patch.object(Learning, "learn"))
        yield


def run_block(trainer: Trainer, kind: str, steps: int) -> Block:
    """Train a block under the tool."""
    clock, block = Clock(), Block()
    with reading(clock, facts=kind == "with facts"), NeuralDbg(trainer.model, trainer.optimizer):
        for _ in range(FIRST + steps):
            before, began = clock.seconds, time.perf_counter()
            trainer.step()
            block.seconds.append(time.perf_counter() - began)
            block.facts.append(clock.seconds - before)
    return block


def row(workload: Workload, rounds: int, steps: int) -> list[str]:
    """Measure one model."""
    trainers = {kind: Trainer(workload) for kind in KINDS}
    blocks: dict[str, list[Block]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in (*KINDS[number % 3 :], *KINDS[: number % 3]):
            blocks[kind].append(run_block(trainers[kind], kind, steps))
    late = {kind: [s for b in blocks[kind] for s in b.seconds[FIRST:]] for kind in KINDS}
    without = statistics.median(late["without"])
    clocked = [s for b in blocks["with facts"] for s in b.facts[FIRST:]]
    first = statistics.median(sum(b.facts[:FIRST]) for b in blocks["with facts"])
    return [
        workload.name,
        f"{1000 * without:.2f}",
        f"{statistics.median(late['with facts']) / without:.4f}",
        f"{sum(late['with facts']) / sum(late['without']):.4f}",
        f"{statistics.median(late['without again']) / without:.4f}",
        f"{statistics.median(clocked) / without:.2%}",
        f"{statistics.fmean(clocked) / without:.2%}",
        f"{1000 * first:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="ConvNet,GPT", help="a comma between names; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    table = Table(
        "model", "step ms", "ratio of medians", "of totals", "without / without", "clocked, median", "clocked, mean",
        f"first {FIRST} steps, ms",
        title="What the facts add to a watched step",
        caption=f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.rounds} rounds of "
        f"{args.steps} steps",
    )  # fmt: skip
    for name in args.models.split(","):
        table.add_row(*row(WORKLOADS[name], args.rounds, args.steps))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
