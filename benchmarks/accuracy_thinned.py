"""What light steps cost in accuracy: full records are thinned as the governor would, and explained again.

    python benchmarks/accuracy_thinned.py [--seeds 1] [--allowance 0 0.25 0.5] [--every 16 64] [--only NAME ...]
        [--calm] [--changed] [--out FILE]

A share of each run (``--allowance``) is read in full. After that come light steps, with a burst of four full ones in
every ``--every`` steps, and a longer one after a step whose scalars look bad (``--calm``: without that). A light step
keeps the scalars that cost nothing, and its facts. The detectors see the thinned steps, `explain` the thinned record.
Records come from .cache/faults, by whatever source recorded them; nothing is trained.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from accuracy_runs import CACHE, Job, each, key, programs, recorded

from tests.faults.golden import Grade, grade  # isort: skip (the path to tests is set by the module above)
from rich.console import Console
from rich.table import Table

from neuraldbg.detect.watch import Watch
from neuraldbg.explain import diagnose
from neuraldbg.nouns import STATS, History, RunRecord, Step, column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from neuraldbg.nouns import Event

    Bools = npt.NDArray[np.bool_]

LIGHT = ("loss", "loss_nonfinite", "lr", "grad_norm", "duration", "overhead")
"""The scalars of a light step."""
BURST = 4
"""Full steps in a row every so often."""
ALERT = 16
"""Full steps after one that looks bad."""


@dataclass(frozen=True)
class Thinning:
    """How a run is thinned."""

    allowance: float
    """Share of the steps that is read in full first."""
    every: int
    """Steps from one burst to the next."""
    alert: bool = True
    """Whether a step that looks bad is followed by full ones."""

    @property
    def label(self) -> str:
        return f"A={self.allowance:g} k={self.every}{'' if self.alert else ' calm'}"


@dataclass(frozen=True)
class Outcome:
    """What was said of one record."""

    name: str
    seed: int
    how: str
    read: float
    """Share of the steps that was read in full."""
    grade: Grade
    failed: tuple[str, ...] = ()
    """Causes whose judge failed."""


def full_steps(run: RunRecord, how: Thinning) -> Bools:
    """Say which rows of a history stay full."""
    history = run.history
    count = len(history)
    first = round(how.allowance * count)
    at = np.arange(count)
    full = (at < first) | ((at - first) % how.every < BURST)
    if how.alert:
        bad = np.flatnonzero(_bad(history))
        for row in bad.tolist():
            full[row + 1 : row + 1 + ALERT] = True
    return full


def _bad(history: History) -> Bools:
    """Rows whose scalars look bad: not finite, or far above those of the last steps of the same optimizer."""
    nothing = np.full(len(history), np.nan)
    found = np.nan_to_num(history.scalars.get("loss_nonfinite", nothing)) > 0
    for name, factor in (("loss", 3.0), ("grad_norm", 10.0)):
        recent: dict[int, deque[float]] = {}
        for row, value in enumerate(history.scalars.get(name, nothing).tolist()):
            window = recent.setdefault(int(history.stream[row]), deque(maxlen=16))
            found[row] |= math.isinf(value)
            if math.isfinite(value):
                middle = statistics.median(window) if len(window) >= 8 else math.inf
                found[row] |= value > factor * abs(middle)
                window.append(value)
    return found


def padded(run: RunRecord) -> RunRecord:
    """Give a record by an older source the statistics that it lacks."""
    history = run.history
    lack = len(STATS) - history.mean.shape[2]
    if not lack:
        return run
    mean = np.pad(history.mean, ((0, 0), (0, 0), (0, lack)))
    if (history.width == 1).all():
        return replace(run, history=replace(history, mean=mean, low=mean, high=mean))
    low, high = (np.pad(block, ((0, 0), (0, 0), (0, lack))) for block in (history.low, history.high))
    return replace(run, history=replace(history, mean=mean, low=low, high=high))


def thinned(run: RunRecord, full: Bools) -> RunRecord:
    """Make the other rows of the history light, and let the detectors see what is left."""
    history = run.history
    unseen = np.full(len(STATS), np.nan, np.float32)
    unseen[column("count")] = 0
    for name in ("total", "nonfinite", "zeros", "units", "dead", "saturated", "under", "over"):
        unseen[column(name)] = 0
    mean = history.mean.copy()
    mean[~full] = unseen
    low = high = mean
    if not (history.width == 1).all():
        low, high = history.low.copy(), history.high.copy()
        low[~full] = high[~full] = unseen
    scalars = {name: values.copy() for name, values in history.scalars.items()}
    for name, values in scalars.items():
        if name not in LIGHT:
            values[~full] = np.nan
    after = replace(history, mean=mean, low=low, high=high, scalars=scalars)
    thin = replace(run, history=after)
    return replace(thin, events=detected(thin, full, history))


def steps_of(run: RunRecord, full: Bools, before: History) -> list[Step]:
    """Turn the history back into steps; ``before`` is that of the full record."""
    history, nothing = run.history, np.zeros((0, len(STATS)))
    names = list(history.scalars)
    scalars = np.array([history.scalars[name] for name in names]).T.reshape(len(history), len(names)).tolist()
    tables = history.mean.astype(np.float64)
    lost = history.scalars.get("loss_nonfinite", np.zeros(len(history)))
    norm = history.scalars.get("grad_norm", np.zeros(len(history)))
    grads = list(run.layout.rows("param_grad"))
    ruined = np.isnan(norm) & (before.stat(grads, "nonfinite") > 0).any(axis=1)
    found = []
    for row in range(len(history)):
        values = {name: value for name, value in zip(names, scalars[row], strict=True) if not math.isnan(value)}
        if lost[row] > 0 and "loss" not in values:
            values["loss"] = math.nan
        if ruined[row]:  # a norm that is NaN was measured, though the record cannot tell
            values["grad_norm"] = math.nan
        found.append(
            Step(
                int(history.steps[row]), int(history.stream[row]), float(history.time[row]),
                tables[row] if full[row] else nothing, values, applied=bool(history.applied[row]),
            )
        )  # fmt: skip
    return found


def detected(run: RunRecord, full: Bools, before: History) -> tuple[Event, ...]:
    """Return the events that the detectors find in a history."""
    watch = Watch()
    with np.errstate(all="ignore"):
        for step in steps_of(run, full, before):
            watch.observe(step, run.layout)
    return watch.events


@functools.cache
def cached(name: str, seed: int) -> bool:
    """Whether there is a record of a program."""
    return any(CACHE.glob(f"{key(Job(name, seed))}-*.pkl"))


def outcomes(job: Job, hows: Sequence[Thinning]) -> list[Outcome]:
    """Explain one record as it is, with its events found anew, and thinned in each way."""
    run = padded(recorded(job))
    everything = np.ones(len(run.history), bool)
    found = [_outcome(job, "recorded", 1.0, run)]
    if not len(run.history):
        return [replace(found[0], how=how) for how in ("recorded", "full", *(how.label for how in hows))]
    found.append(_outcome(job, "full", 1.0, thinned(run, everything)))
    for how in hows:
        full = full_steps(run, how)
        found.append(_outcome(job, how.label, float(full.mean()), thinned(run, full)))
    return found


def _outcome(job: Job, how: str, read: float, run: RunRecord) -> Outcome:
    said = diagnose(run)
    failed = tuple(f"{u.what}: {u.reason}" for u in said.unjudged if "could not be judged" in u.reason)
    return Outcome(job.name, job.seed, how, read, grade(programs()[job.name].golden, said), failed)


def share(values: Sequence[bool | None]) -> str:
    """Count what is right of what is defined."""
    known = [bool(value) for value in values if value is not None]
    return f"{sum(known)}/{len(known)} ({sum(known) / len(known):.1%})" if known else "-"


def row_of(label: str, mine: Sequence[Outcome], before: Sequence[Outcome]) -> list[str]:
    """Sum up one way of thinning."""
    faulty = [o for o in mine if programs()[o.name].golden.cause]
    healthy = [o for o in mine if programs()[o.name].golden.healthy]
    right = {(o.name, o.seed): o.grade.right for o in before}
    lost = sum(right[o.name, o.seed] and not o.grade.right for o in mine)
    won = sum(o.grade.right and not right[o.name, o.seed] for o in mine)
    return [
        label,
        f"{statistics.mean(o.read for o in mine):.0%}",
        share([o.grade.cause for o in faulty]),
        share([o.grade.top3 for o in faulty]),
        share([o.grade.layer for o in faulty]),
        share([o.grade.step for o in faulty]),
        share([o.grade.verdict for o in mine]),
        f"{sum(not o.grade.cause for o in healthy)} of {len(healthy)}",
        f"{sum(not o.grade.verdict for o in healthy)}",
        f"-{lost} +{won}",
    ]


HEAD = ("steps", "read", "top-1", "top-3", "layer", "step", "verdict", "alarms", "healthy said otherwise", "changed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--allowance", type=float, nargs="*", default=[0.5, 0.25, 0.0])
    parser.add_argument("--every", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--only", nargs="*", default=[], help="names of programs, modules or tasks")
    parser.add_argument("--calm", action="store_true", help="no full steps after one that looks bad")
    parser.add_argument("--changed", action="store_true", help="list what is right in full and wrong when thinned")
    parser.add_argument("--workers", type=int, default=2)
    wanted = parser.parse_args()
    hows = [Thinning(a, k, not wanted.calm) for a in wanted.allowance for k in wanted.every]
    chosen = [
        name for name, one in programs().items() if not wanted.only or {name, one.family, one.task} & set(wanted.only)
    ]
    jobs = [Job(name, seed, True) for name in chosen for seed in wanted.seeds if cached(name, seed)]
    began = time.time()
    every = [o for batch in each(functools.partial(outcomes, hows=hows), jobs, wanted.workers) for o in batch]
    by = {how: [o for o in every if o.how == how] for how in ("recorded", "full", *(how.label for how in hows))}
    console = Console(width=190)
    if wanted.changed:
        right = {(o.name, o.seed): o for o in by["full"]}
        listed = Table("program", "seed", "steps", "golden", "full", "thinned", "wrong")
        for one in every:
            if one.how != "recorded" and one.grade != right[one.name, one.seed].grade and not one.grade.right:
                golden, full = programs()[one.name].golden, right[one.name, one.seed]
                if full.grade.right:
                    listed.add_row(
                        one.name, str(one.seed), one.how, " or ".join(golden.cause) or " or ".join(golden.verdicts),
                        full.grade.said, one.grade.said, ", ".join(one.grade.wrong),
                    )  # fmt: skip
        console.print(listed)
    for one in every:
        if one.failed:
            console.print(f"{one.name} {one.seed} {one.how}: {'; '.join(one.failed)}")
    summed = Table(*HEAD)
    for how, mine in by.items():
        summed.add_row(*row_of(how, mine, by["full"]))
    console.print(summed)
    console.print(f"{len(jobs)} records, {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
