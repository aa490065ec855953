"""Runs of scalars alone, as they are recorded by hand: curves enter; a RunRecord with the events of all detectors, and
its diagnosis, leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.detect.watch import Watch
from neuraldbg.explain import diagnose
from neuraldbg.nouns import STATS, Fact, History, Layout, Outcome, RunInfo, RunRecord, Series, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Diagnosis


class HandRecord:
    """What a session does with scalars and facts by hand: steps, detectors, a record."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, float]] = {}
        self.facts: list[Fact] = []

    def put_scalars(self, step: int, values: dict[str, float]) -> None:
        self.steps.setdefault(step, {}).update(values)

    def put_fact(self, fact: Fact) -> None:
        self.facts.append(fact)

    def record(self) -> RunRecord:
        steps = sorted(self.steps)
        names = sorted({name for values in self.steps.values() for name in values})
        scalars = {name: np.array([self.steps[at].get(name, np.nan) for at in steps], np.float64) for name in names}
        watch, empty = Watch(), np.zeros((0, len(STATS)))
        for at in steps:
            watch.observe(Step(at, 0, float(at), empty, self.steps[at]), Layout())
        n = len(steps)
        table = np.zeros((n, 0, len(STATS)), np.float32)
        ints = np.ones(n, np.int64)
        history = History(
            np.array(steps, np.int64), ints, np.arange(n) * 0.01, 0 * ints, ints > 0, table, table, table, scalars
        )
        info = RunInfo(outcome=Outcome("completed"))
        return RunRecord(info, Layout(), history, tuple(self.facts), watch.events, steps[-1] + 1 if steps else 0)

    def diagnose(self) -> Diagnosis:
        return diagnose(self.record())


def run_of(every: int = 1, facts: Sequence[Fact] = (), **curves: Any) -> RunRecord:
    """Return the run of some curves, one value each ``every`` steps; a NaN loss is one that was measured."""
    made = HandRecord()
    for name, values in curves.items():
        for i, value in enumerate(values):
            made.put_scalars(i * every, {name: float(value)})
            if name == "loss":
                made.put_scalars(i * every, {"loss_nonfinite": float(not np.isfinite(value))})
    for fact in facts:
        made.put_fact(fact)
    return made.record()


def series(values: Any, every: int = 1, width: int = 1) -> Series:
    """Return values as a series: one each ``every`` steps, each the mean of ``width`` steps."""
    values = np.asarray(values, np.float64)
    return Series(np.arange(len(values)) * every, values, np.full(len(values), width, np.int64))


def thinned(values: Any, width: int, kept: int) -> Series:
    """Return a series as retention leaves it: the first and the last values whole, those between as means."""
    values = np.asarray(values, np.float64)
    middle = values[kept:-kept]
    middle = middle[: len(middle) // width * width]
    bins = middle.reshape(-1, width).mean(axis=1)
    end = kept + len(middle)
    steps = np.concatenate([np.arange(kept), kept + np.arange(len(bins)) * width, np.arange(end, len(values))])
    widths = np.concatenate([np.ones(kept), np.full(len(bins), width), np.ones(len(values) - end)]).astype(np.int64)
    return Series(steps.astype(np.int64), np.concatenate([values[:kept], bins, values[end:]]), widths)
