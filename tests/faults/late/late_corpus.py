"""The corpus of trainings that go wrong late: a kind, a task and a seed enter, a program with its golden leaves."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.corpus import Program
from tests.faults.golden import BAD, Golden, golden
from tests.faults.late.late_kinds import KINDS, Kind
from tests.faults.late.late_pairs import PAIRS
from tests.faults.late.late_tasks import TASKS, Training

from neuraldbg.nouns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST = 300
"""Smallest onset."""


@dataclass(frozen=True)
class Late:
    """A training and what is changed in it, and when."""

    kind: Kind
    task: type[Training]
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind.name}__{self.task.name}__{self.seed}"

    @property
    def onset(self) -> int:
        """The step before which the change comes, log-uniform."""
        share = random.Random(self.name).random()
        return round(math.exp(math.log(FIRST) + share * math.log(self.task.longest / FIRST)))

    @property
    def steps(self) -> int:
        return self.onset + max(300, self.onset // 3)

    @property
    def golden(self) -> Golden:
        truth = self.kind.truth(self.task)
        if self.kind.harmless:
            return golden()
        # Without a name in the list, that the cause is none of the known ones is the right thing to say.
        return golden(truth, step=self.onset, verdict=BAD, tolerated=() if truth else UNKNOWN)

    def begun(self) -> Training:
        """Return the training before its first step."""
        training = self.task(self.seed)
        if self.kind.before is not None:
            self.kind.before(training)
        return training

    def run(self) -> None:
        self.begun().train(self.steps, self.onset, self.kind.change)

    def program(self) -> Program:
        return Program(self.name, self.run, self.task.name, self.golden, "late")


def late(kind: str, task: str, seed: int = 0) -> Late:
    return Late(KINDS[kind], TASKS[task], seed)


def fitting(seed: int = 0) -> list[Late]:
    """Return every kind on every task that has what it changes."""
    return [Late(kind, task, seed) for kind in KINDS.values() for task in TASKS.values() if kind.fits(task)]


def named(name: str) -> Late:
    """Return the program of a name."""
    kind, task, seed = name.split("__")
    return late(kind, task, int(seed))


def drawn(seeds: int = 1, only: Sequence[str] = ()) -> list[Late]:
    """Draw programs: every kind on one tuned and on one held-out task, of those on which it was measured to hold.

    A kind that holds on tasks of one sort only is drawn on two of these, or on the one that there is.
    """
    chosen = []
    for kind, names in PAIRS.items():
        tasks = [TASKS[name] for name in names]
        random.Random(f"draw {kind}").shuffle(tasks)
        sides = [[task for task in tasks if task.held_out is side] for side in (False, True)]
        mine = [side[0] for side in sides if side] if all(sides) else tasks[:2]
        chosen += [Late(KINDS[kind], task, seed) for task in mine for seed in range(seeds)]
    return [one for one in chosen if not only or {one.name, one.kind.name, one.task.name} & set(only)]
