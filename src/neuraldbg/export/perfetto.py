"""A trace for ui.perfetto.dev (or chrome://tracing): the steps, their numbers and the events over time.

The Trace Event Format as JSON; times are microseconds since the run began. The process ``training`` has a thread for
each optimizer with its steps, counters of the scalars, and the events; each kind of sites is a process of its own,
with a counter for each site and statistic (``rms`` if no statistic is selected).

A counter cannot show NaN: a non-finite value is an instant. A row for several steps is a slice with a separate name
over all of them, and its numbers are counters with separate names. Of such a row only the end of its first step is
recorded: the rows around it, or the mean duration, give start and end of the slice.

A run whose layers were timed has a process ``profile``: a typical step with its parts and its layers as slices, laid
out from their durations so that it ends where the last sampled step did.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.export.exporter import Exporter
from neuraldbg.export.spans import spans, time_of
from neuraldbg.export.tables import measured, scalar_meanings, scalar_rows
from neuraldbg.nouns import KINDS, METRIC, column, jsonable
from neuraldbg.nouns.facts.timing import TimingFact
from neuraldbg.nouns.step_spans import step_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from neuraldbg.export.exporter import Selection
    from neuraldbg.nouns import Diagnosis, RunRecord, Slab

TRAINING = 1
"""Process of the steps; those of the kinds of sites come after it."""
PROFILE = 100
"""Process of the typical step, after those of the kinds of sites."""
EVENTS = 1_000_000
"""Thread of the instants, far from any optimizer's."""
COUNTERS = (
    "loss",
    "grad_norm",
    "unclipped_norm",
    "lr",
    "update_ratio",
    "loss_scale",
    "batch_size",
    "eval_loss",
    "eval_accuracy",
    "overhead",
    "resident",
    "device_memory",
)
"""Scalars that are counters; all others are arguments of the step."""
_US = 1e6


def write(run: RunRecord, diagnosis: Diagnosis, selection: Selection, path: Path) -> None:
    """Write the trace, an event a line."""
    told = {
        "schema": "neuraldbg.trace/1",
        "started": run.info.started,
        "script": run.info.script,
        "verdict": diagnosis.verdict,
        "summary": diagnosis.summary,
    }
    with path.open("w", encoding="utf-8", newline="\n") as out:
        out.write(f'{{"displayTimeUnit": "ms",\n"otherData": {_dumps(told)},\n"traceEvents": [')
        for number, event in enumerate(_trace(run, diagnosis, selection)):
            out.write(f"{',' if number else ''}\n{_dumps(event)}")
        out.write("\n]}\n")


def _dumps(value: Any) -> str:
    return json.dumps(jsonable(value), allow_nan=False, separators=(",", ":"))


def _trace(run: RunRecord, diagnosis: Diagnosis, selection: Selection) -> Iterator[dict[str, Any]]:
    yield from _names(run)
    yield from _steps(run)
    yield from _events(run, diagnosis)
    yield from _profile(run)
    rows = selection.rows(run)
    stats = selection.columns(("rms",))
    for slab in run.history.slabs():
        yield from _sites(run, slab, rows, stats)


def _names(run: RunRecord) -> Iterator[dict[str, Any]]:
    yield from _named(TRAINING, "training")
    optimizers = run.info.optimizers
    for stream in run.streams:
        kind = f" ({optimizers[stream]})" if stream < len(optimizers) else ""
        yield _meta("thread_name", TRAINING, stream, name=f"optimizer {stream}{kind}")
        yield _meta("thread_sort_index", TRAINING, stream, sort_index=stream)
    yield _meta("thread_name", TRAINING, EVENTS, name="events")
    for kind in KINDS:
        if run.layout.rows(kind):
            yield from _named(_process(kind), kind)


def _named(pid: int, name: str) -> Iterator[dict[str, Any]]:
    yield _meta("process_name", pid, 0, name=name)
    yield _meta("process_sort_index", pid, 0, sort_index=pid)


def _meta(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _process(kind: str) -> int:
    return TRAINING + 1 + KINDS.index(kind)


def _steps(run: RunRecord) -> Iterator[dict[str, Any]]:
    history = run.history
    rows = scalar_rows(history)
    meanings = scalar_meanings(history)
    counters = (*COUNTERS, *(name for name in meanings if name.startswith(METRIC)))
    known = {name: measured(history, name) for name in history.scalars if name in meanings}
    begins, ends = spans(history, rows)
    several = len(run.streams) > 1
    for row, begin, end in zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True):
        first, width, stream = int(history.steps[row]), int(history.width[row]), int(history.stream[row])
        values = {name: float(history.scalars[name][row]) for name, there in known.items() if there[row]}
        head = {"step": first, "width": width, "applied": bool(history.applied[row])}
        yield {
            "ph": "X",
            "name": f"step {first}" if width == 1 else f"steps {first} to {first + width - 1} (thinned)",
            "cat": "step" if width == 1 else "steps",
            "pid": TRAINING,
            "tid": stream,
            "ts": begin * _US,
            "dur": (end - begin) * _US,
            "args": {**head, **values},
        }
        named = {_scalar(name, stream, several): {"value": values[name]} for name in counters if name in values}
        yield from _counters(named, TRAINING, float(history.time[row]), width)


def _scalar(name: str, stream: int, several: bool) -> str:
    return f"{name} of optimizer {stream}" if several and not name.startswith(METRIC) else name


def _counters(named: dict[str, dict[str, float]], pid: int, time_s: float, width: int) -> Iterator[dict[str, Any]]:
    """Yield counters at one time, by name and part: ``value``, or ``low``, ``mean`` and ``high``."""
    for name, parts in named.items():
        title = name if width == 1 else f"{name} (thinned)"
        finite = {part: value for part, value in parts.items() if math.isfinite(value)}
        if finite:
            yield {"ph": "C", "name": title, "pid": pid, "tid": 0, "ts": time_s * _US, "args": finite}
        if len(finite) < len(parts):
            yield _instant(f"{title} is not finite", "nonfinite", pid, time_s, parts)


def _instant(name: str, category: str, pid: int, time_s: float, args: dict[str, Any]) -> dict[str, Any]:
    place = {"pid": pid, "tid": EVENTS, "ts": time_s * _US}
    return {"ph": "i", "s": "p", "name": name, "cat": category, **place, "args": args}


def _events(run: RunRecord, diagnosis: Diagnosis) -> Iterator[dict[str, Any]]:
    """Yield the events; lasting ones may overlap, so each is an asynchronous slice with a separate track."""
    for number, event in enumerate(diagnosis.events):
        name = f"{event.kind} in {event.layer}" if event.layer else event.kind
        begin, end = (time_of(run.history, step) for step in (event.first_step, event.last_step))
        args = {"event": event}
        if end <= begin:
            yield _instant(name, event.transition, TRAINING, begin, args)
            continue
        place = {"name": name, "cat": event.transition, "id": str(number), "pid": TRAINING, "tid": EVENTS}
        yield {"ph": "b", **place, "ts": begin * _US, "args": args}
        yield {"ph": "e", **place, "ts": end * _US}


def _profile(run: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield a typical step: its parts on one thread, on the other its layers, each around those inside of it."""
    timing = run.known(TimingFact)
    if timing is None:
        return
    yield from _named(PROFILE, "profile")
    which = "sampled step, which says little of others" if timing.doubtful else "typical step"
    for thread, name in enumerate((f"parts of a {which}", f"layers of a {which}")):
        yield _meta("thread_name", PROFILE, thread, name=name)
        yield _meta("thread_sort_index", PROFILE, thread, sort_index=thread)
    layers = {layer.layer: layer for layer in timing.layers}
    begin = max(0.0, time_of(run.history, timing.last) - timing.step_s)
    for span in step_spans(timing):
        args: dict[str, Any] = {"sampled": timing.steps, "first": timing.first, "last": timing.last}
        args |= {"caution": caution} if (caution := timing.caution()) else {}
        if span.layer is not None:
            args = {"timing": layers[span.layer]}
        yield {
            "ph": "X",
            "name": span.part if span.layer is None else span.layer or "(model)",
            "cat": span.part,
            "pid": PROFILE,
            "tid": 0 if span.layer is None else 1,
            "ts": (begin + span.start) * _US,
            "dur": (span.end - span.start) * _US,
            "args": args,
        }


def _sites(run: RunRecord, slab: Slab, rows: Sequence[int], stats: Sequence[str]) -> Iterator[dict[str, Any]]:
    history, chosen = run.history, [run.layout.sites[row] for row in rows]
    picked = [column(stat) for stat in stats]
    seen = slab.high[:, list(rows), column("count")] > 0
    # (3, R, S, K), of the selection only.
    three = np.stack([part[:, list(rows)][:, :, picked] for part in (slab.low, slab.mean, slab.high)])
    for place, at in enumerate(slab.rows.tolist()):
        time_s, width, cells = float(history.time[at]), int(history.width[at]), three[:, place].tolist()
        for i in np.flatnonzero(seen[place]).tolist():
            named = {}
            for k, stat in enumerate(stats):
                low, mean, high = (part[i][k] for part in cells)
                parts = {"value": mean} if width == 1 else {"low": low, "mean": mean, "high": high}
                named[f"{chosen[i].label} {stat}"] = parts
            yield from _counters(named, _process(chosen[i].kind), time_s, width)


EXPORTER = Exporter(
    "perfetto",
    target="trace.json",
    write=write,
    selects=True,
)
