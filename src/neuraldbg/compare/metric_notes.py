"""The metrics of two runs: two records enter, a note on each metric that differs leaves.

A metric changes no verdict: it may be a time or a rate, which differs between equal trainings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from neuraldbg.compare.scalars import scalar_pair
from neuraldbg.compare.sentences import short
from neuraldbg.nouns import METRIC, metric_names

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.comparison import Tolerance

MOST = 4
"""Metrics that are named in notes at most, the earliest differences first."""


class _First(NamedTuple):
    """The first difference of one metric beyond the tolerance."""

    step: int
    name: str
    one: float
    other: float


def metric_notes(runs: tuple[RunRecord, RunRecord], tol: Tolerance, names: tuple[str, str]) -> tuple[str, ...]:
    """Write the first difference of each metric that both runs logged, and the metrics that only one of them did."""
    logged = [metric_names(run.history.scalars) for run in runs]
    both = sorted({*logged[0]} & {*logged[1]})
    found = sorted(first for name in both if (first := _first(runs, name, tol)) is not None)
    notes = [
        f"the metric {one.name!r} differs first at step {one.step:,}: {short(one.one, 4)} in {names[0]} and "
        f"{short(one.other, 4)} in {names[1]}"
        for one in found[:MOST]
    ]
    if len(found) > MOST:
        notes.append(f"{len(found) - MOST} more metrics differ")
    for run, mine, others in ((names[0], *logged), (names[1], *logged[::-1])):
        if lone := sorted({*mine} - {*others}):
            more = f" and {len(lone) - MOST} more" if len(lone) > MOST else ""
            notes.append(f"metrics of {run} alone: {', '.join(map(repr, lone[:MOST]))}{more}")
    return tuple(notes)


def _first(runs: tuple[RunRecord, RunRecord], name: str, tol: Tolerance) -> _First | None:
    pair = scalar_pair(runs, f"{METRIC}{name}", None, tol)
    if pair is None or not pair.beyond.any():
        return None
    k = int(pair.beyond.argmax())
    return _First(int(pair.time.steps[k]), name, float(pair.one[k]), float(pair.other[k]))
