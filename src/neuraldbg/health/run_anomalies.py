"""Odd things in the numbers of a run: a RunRecord enters, Anomalies leave.

What the detectors found is taken from the events of the record. What no detector judges is read here: metrics that are
not finite, jumps of the learning rate, throughput that falls, memory that grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.health.curve_readings import LEAST, curve_of
from neuraldbg.nouns.facts.growth import GROWN, GrowthFact
from neuraldbg.nouns.html import number_text
from neuraldbg.nouns.measures import percent, size
from neuraldbg.nouns.robust_statistics import kendall
from neuraldbg.nouns.run import Series
from neuraldbg.nouns.training_dynamics import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.health.curve_readings import Curve
    from neuraldbg.nouns import RunRecord

NONFINITE = ("nonfinite_loss", "nonfinite_input", "nonfinite_activation", "nonfinite_gradient", "nonfinite_parameter")
"""Kinds of events of values that are NaN or infinite."""
THROUGHPUT = "metric/throughput_samples_per_sec"
JUMP = 3.0
"""Factor from one step to the next by which a learning rate jumps, if it is then larger than ever before. Source: our
own choice; a warm-up doubles it at most, and a restart returns to where it was."""
SLOWER = 0.25
"""Fall of the samples per second, as a share, from which it is said. Source: our own choice."""
SURE = 0.01
"""Probability below which the order in time of throughput or memory counts."""
MOST = 20
"""Largest number of anomalies of one kind."""


def anomalies_of(run: RunRecord) -> tuple[Anomaly, ...]:
    """Return what is odd, by first step."""
    found = [*_events(run), *_series(run), *_learning_rate(run), *_throughput(run), *_memory(run)]
    counts: dict[str, int] = {}
    kept = []
    for one in sorted(found, key=lambda one: one.step):
        counts[one.kind] = counts.get(one.kind, 0) + 1
        if counts[one.kind] <= MOST:
            kept.append(one)
    return tuple(kept)


def _events(run: RunRecord) -> Iterator[Anomaly]:
    steps = max(run.steps, 1)
    for event in run.events:
        if not event.sure:
            continue
        share = min(1.0, (event.last_step - event.first_step + 1) / steps)
        if event.kind in NONFINITE:
            yield Anomaly("nonfinite", event.first_step, f"{event} ({event.kind})", share)
        elif event.kind == "loss_spike":
            yield Anomaly("spike", event.first_step, str(event), share)
        elif event.kind == "loss_divergence":
            yield Anomaly("divergence", event.first_step, str(event), share)


def _series(run: RunRecord) -> Iterator[Anomaly]:
    """Yield losses and metrics that are not finite, where no event says so."""
    told = bool(run.events_of("nonfinite_loss"))
    names = [name for name in run.history.scalars if name == "eval_loss" or name.startswith("metric/")]
    for name in [*([] if told else ["loss"]), *names]:
        series = run.scalar(name)
        bad = np.flatnonzero(~np.isfinite(series.values))
        if len(bad):
            said = f"{name.removeprefix('metric/')} is NaN or infinite in {len(bad):,} of {len(series):,} values"
            yield Anomaly("nonfinite", int(series.steps[bad[0]]), said, len(bad) / len(series))


def _learning_rate(run: RunRecord) -> Iterator[Anomaly]:
    for stream in run.streams:
        series = run.scalar("lr", stream, reduce="max").finite()
        if len(series) < 2:
            continue
        before, after = series.values[:-1], series.values[1:]
        highest = np.maximum.accumulate(before)
        jumps = np.flatnonzero((before > 0) & (after >= JUMP * before) & (after > highest))
        for at in jumps[:MOST]:
            said = f"the learning rate jumps from {number_text(before[at])} to {number_text(after[at])}"
            yield Anomaly("learning_rate_jump", int(series.steps[at + 1]), said, 0.5)


def throughput_of(run: RunRecord) -> Curve:
    """Return the samples per second over steps, as the program tells them, else by batch sizes and durations without
    the time that this tool took; empty if neither was recorded.
    """
    told = run.scalar(THROUGHPUT)
    scalars = run.history.scalars
    if len(told) or "batch_size" not in scalars or "duration" not in scalars:
        return curve_of(told)
    overhead = np.nan_to_num(scalars["overhead"]) if "overhead" in scalars else 0.0
    spent = scalars["duration"] - overhead
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rate = np.where(spent > 0, scalars["batch_size"] / spent, np.nan)
    return curve_of(Series(run.history.steps, rate, run.history.width).finite())


def _throughput(run: RunRecord) -> Iterator[Anomaly]:
    curve = throughput_of(run)
    if len(curve) < 3 * LEAST or len(run.streams) > 1:
        return
    window = curve.window(0.1)  # the first steps compile, and fill caches
    begin, end = float(np.median(window.level[: len(window.level) // 3])), curve.last
    order = kendall(window.level)
    if begin <= 0 or order.s >= 0 or order.p >= SURE:
        return
    fall = 1 - end / begin
    if fall >= SLOWER:
        said = (
            f"throughput falls by {percent(fall)}, from {number_text(begin)} to {number_text(end)} samples per second"
        )
        yield Anomaly("throughput_falls", window.first, said, min(fall, 1.0))


def _memory(run: RunRecord) -> Iterator[Anomaly]:
    """Yield memory that grows: as it was counted with a profile, else by the last half of the resident bytes."""
    known = run.known(GrowthFact)
    if known is not None and known.slope_first is not None and known.slope_last is not None:
        grown = (known.resident_per_step or 0.0) * (known.slope_last - known.slope_first)
        if grown >= GROWN:
            said = f"resident memory grows by {size(known.resident_per_step or 0.0)} per step"
            yield Anomaly("memory_grows", known.slope_first, said, 1.0)
        return
    curve = curve_of(run.scalar("resident"))
    if len(curve) < 2 * LEAST:
        return
    window = curve.window(0.5)
    if len(window.at) < LEAST:
        return
    grown = window.slope.value * window.span
    if grown >= GROWN and window.order.s > 0 and window.order.p < SURE:
        said = f"resident memory grows by {size(grown)} over the last half of the steps"
        yield Anomaly("memory_grows", window.first, said, min(1.0, grown / max(float(window.level[0]), 1.0)))
