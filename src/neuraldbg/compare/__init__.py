"""The comparison of two runs: two RunRecords enter, a Comparison with the first and all other differences leaves.

Pure numpy, no torch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.compare import health, layers, settings
from neuraldbg.compare.alignment import stretches
from neuraldbg.compare.divergence import Findings
from neuraldbg.compare.measure import measure
from neuraldbg.compare.metric_notes import metric_notes
from neuraldbg.compare.reasons import explaining, reading_of
from neuraldbg.compare.scalars import loss_pair, scalar_pair
from neuraldbg.compare.sentences import notes_of, summary_of, unlike
from neuraldbg.compare.sites import pair_sites
from neuraldbg.compare.tolerance import tolerance_for
from neuraldbg.compare.totals import drift_of, kind_spans, layer_spans, overall_trend
from neuraldbg.nouns import FactKey
from neuraldbg.nouns.comparison import Compared, Comparison
from neuraldbg.nouns.facts.replica import ReplicaFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.compare.layers import Matching
    from neuraldbg.compare.sites import SitePair
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.nouns.comparison import Tolerance

__all__ = ["compare"]

REPLICATED = ("param", "param_grad", "update")
"""Kinds of sites that are equal on all ranks of a data-parallel job."""


def compare(
    one: RunRecord,
    other: RunRecord,
    judged: tuple[Diagnosis, Diagnosis] | None = None,
    *,
    names: tuple[str, str] = ("A", "B"),
    rtol: float | None = None,
    atol: float | None = None,
    replicas: bool = False,
) -> Comparison:
    """Compare two runs step by step and layer by layer. Of two ranks of one job, ``replicas`` are compared: weights,
    their gradients and updates. Their data always differ, and with them activations and losses.

    ``judged`` are the two diagnoses, so that verdicts and causes are compared as well. ``rtol`` and ``atol`` are as in
    ``torch.testing.assert_close``, relative to the size of the tensor; by default they follow from the dtypes. An
    invalid tolerance raises ConfigError.
    """
    runs = (one, other)
    matching = layers.match(one, other)
    pairs, only = pair_sites((one.layout, other.layout), matching.pairs, loss_alike=_losses_alike(runs))
    if replicas:
        pairs = _held_alike(runs, pairs)
    tol = tolerance_for((site.dtype for pair in pairs for site in (pair.one, pair.other)), rtol, atol)
    whole = all(_read_in_full(run) for run in runs)
    found = _findings(runs, pairs, tol, names, whole=whole, losses=not replicas)
    comparison = Comparison(
        verdict="",
        summary="",
        names=names,
        tolerance=tol,
        kinds=kind_spans(found),
        layers=layer_spans(found),
        settings=settings.differences(runs, matching, whole=whole),
        paired=matching.paired,
        only=matching.only if all(matching.leaves) else ((), ()),  # of a run without steps no layer is known
        losses=tuple(loss_pair(pair) for pair in found.losses),
        verdicts=(judged[0].verdict, judged[1].verdict) if judged else ("", ""),
        health=health.changes(runs, judged, matching.pairs, pairs, found.time),
        compared=_compared(found, only),
        notes=(*notes_of(found, names, whole=whole), *metric_notes(runs, tol, names)),
        drift=drift_of(found),
    )
    return _judge(comparison, found, matching)


def _findings(
    runs: tuple[RunRecord, RunRecord],
    pairs: Sequence[SitePair],
    tol: Tolerance,
    names: tuple[str, str],
    *,
    whole: bool,
    losses: bool = True,
) -> Findings:
    """Align both histories and measure the differences of sites and losses."""
    one, other = runs
    time = stretches(one.history, other.history, (one.history.read, other.history.read), whole=whole)
    measured = measure(runs, pairs, time, tol)
    streams = sorted({*one.streams} & {*other.streams})
    pairs_of_losses = [scalar_pair(runs, "loss", stream, tol) for stream in streams if losses]
    return Findings(runs, pairs, time, measured, [pair for pair in pairs_of_losses if pair is not None], names)


def _held_alike(runs: tuple[RunRecord, RunRecord], pairs: Sequence[SitePair]) -> list[SitePair]:
    """Return the sites that two ranks are to hold alike: those of parameters, except where each holds a part."""
    parts = set()
    for run in runs:
        names: tuple[str, ...] = ()
        for _, fact in run.versions(ReplicaFact):
            names = fact.names or names
            parts |= {name for name, letter in zip(names, fact.held, strict=False) if letter == "p"}
    return [
        pair
        for pair in pairs
        if pair.one.kind in REPLICATED and ".".join(filter(None, (pair.one.module, pair.one.name))) not in parts
    ]


def _compared(found: Findings, only: tuple[int, int]) -> Compared:
    """Return the extent of the comparison."""
    one, other = found.runs
    time, measured = found.time, found.measured
    return Compared(
        steps=(one.steps, other.steps),
        read=int(time.width.sum()),
        span=(int(time.steps[0]), int(time.steps[-1] + time.width[-1] - 1)) if len(time) else None,
        scalars=max((int(pair.time.width.sum()) for pair in found.losses), default=0),
        sites=int((~np.isnan(measured.relative)).any(axis=0).sum()) if len(time) else 0,
        only=only,
        share=measured.share,
    )


def _judge(comparison: Comparison, found: Findings, matching: Matching) -> Comparison:
    """Add the verdict, the first difference with its trend, and the summary."""
    first, earliest = found.first(beyond=True), found.first(beyond=False)
    verdict = "diverged" if first else "close" if earliest else "identical"
    if not comparison.compared.sites and not found.losses:
        verdict = "incomparable"
    reasons = explaining(first.difference, comparison.settings) if first and not unlike(matching) else ()
    difference = first.difference if first else None
    if difference and reasons and found.sourced(difference):
        difference = replace(difference, reading=reading_of(difference))
    judged = replace(
        comparison,
        verdict=verdict,
        first=difference,
        earliest=earliest.difference if earliest and (first is None or earliest.key < first.key) else None,
        trend=first.trend if first else None,
        overall=overall_trend(found, earliest.difference.step) if earliest else None,
    )
    time = found.time
    before = int(time.width[time.steps < first.difference.step].sum()) if first else 0
    return replace(judged, summary=summary_of(judged, matching, before, reasons))


def _losses_alike(runs: tuple[RunRecord, RunRecord]) -> bool:
    """Return True if the losses of both runs are made of the same operations, as far as their graphs were read."""
    made = [{str(fact.value.get("ops")) for fact in run.facts_of(FactKey.LOSS.value)} for run in runs]
    return made[0] == made[1] or not all(made)


def _read_in_full(run: RunRecord) -> bool:
    """Return True if every step was read, so that thinned rows have all of their steps, or if the record is silent."""
    cost = run.info.coverage.get("cost") or {}
    return not cost.get("light_steps")
