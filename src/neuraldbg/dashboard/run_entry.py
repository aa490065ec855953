"""The row of a run in the list of runs: its scalars and its last diagnosis in, an Entry out."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.explain.evidence.loss_curve import LossSummary
from neuraldbg.nouns import Series
from neuraldbg.nouns.diagnosis import VERDICTS
from neuraldbg.nouns.loss_names import loss_names
from neuraldbg.record.run_names import RunName

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from neuraldbg.dashboard.feed import Entry
    from neuraldbg.nouns import Diagnosis, RunRecord

POINTS = 1_000
"""Values of a loss curve that an entry keeps at most: a folder may hold hundreds of runs."""
LARGEST_FILE = 4 << 20
"""Bytes of a ``diagnosis.json`` that is read at most."""


@dataclass(frozen=True)
class Judged:
    """The verdict on a run and its first cause."""

    verdict: str = ""
    """One of VERDICTS; "" before the first diagnosis."""
    cause: str = ""
    """Id of the first cause; "" if there is none."""
    confidence: float = 0.0
    """Probability of the first cause."""

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> Judged:
        """Return the verdict and the first cause of a diagnosis."""
        first = next(iter(diagnosis.hypotheses), None)
        return cls(diagnosis.verdict) if first is None else cls(diagnosis.verdict, first.cause, first.confidence)


def judged_before(run: Path, root: Path) -> Judged:
    """Read the verdict from the run's own ``diagnosis.json``, which may come from anybody; without one it is empty."""
    with suppress(OSError, ValueError, AttributeError, LookupError, TypeError, RecursionError):
        file = run.with_name((RunName.of(run) or RunName()).beside("diagnosis")).resolve(strict=True)
        if not (file.is_file() and file.is_relative_to(root) and file.stat().st_size <= LARGEST_FILE):
            return Judged()
        said = json.loads(file.read_bytes())
        verdict = said.get("verdict")
        return Judged(verdict, *_first_cause(said)) if verdict in VERDICTS else Judged()
    return Judged()


def _first_cause(said: dict[str, Any]) -> tuple[str, float] | tuple[()]:
    """Return id and probability of the first hypothesis of a diagnosis as JSON; () if it has none."""
    with suppress(AttributeError, LookupError, TypeError):
        first = said["hypotheses"][0]
        cause, confidence = first["cause"], first["confidence"]
        if isinstance(cause, str) and isinstance(confidence, (int, float)) and 0 <= confidence <= 1:
            return cause, float(confidence)
    return ()


def entry_of(entry: Entry, run: RunRecord, judged: Judged) -> Entry:
    """Return the entry with everything that the scalars of a run and its diagnosis say."""
    curves = tuple(_curves(run))
    return replace(
        entry,
        steps=run.steps,
        state=run.info.outcome.kind,
        verdict=judged.verdict,
        cause=judged.cause,
        confidence=judged.confidence,
        losses=tuple(_final(series, alone=len(curves) == 1) for _, series in curves),
        duration_s=float(run.history.time[-1]) if len(run.history) else 0.0,
        started=run.info.started,
        script=run.info.script,
        problem="",
        curves=tuple((name, shortened(series, POINTS)) for name, series in curves),
    )


def _curves(run: RunRecord) -> Iterator[tuple[str, Series]]:
    for stream, name in loss_names(run).items():
        yield name, run.scalar("loss", stream)


def _final(series: Series, *, alone: bool) -> float:
    """Return the level of a loss at its end, as the diagnosis takes it; NaN or infinity if it ended there."""
    last = float(series.values[-1])
    return LossSummary(series, alone).last if np.isfinite(last) else last


def shortened(series: Series, most: int) -> Series:
    """Return a series of at most ``most`` values: means of equal numbers of rows, weighted by the steps in each.

    Rows that are not finite are left out of a mean; a mean of nothing else is NaN.
    """
    if len(series) <= most:
        return series
    starts = np.arange(0, len(series), -(-len(series) // most))
    ends = np.append(starts[1:], len(series)) - 1
    finite = np.isfinite(series.values)
    weight = np.where(finite, series.width, 0)
    total = np.add.reduceat(np.where(finite, series.values, 0.0) * weight, starts)
    count = np.add.reduceat(weight, starts)
    values = np.divide(total, count, out=np.full(len(starts), np.nan), where=count > 0)
    return Series(series.steps[starts], values, (series.steps + series.width)[ends] - series.steps[starts])
