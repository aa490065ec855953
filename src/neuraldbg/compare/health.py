"""Faults of one run that the other does not have: events, dead units, gradients, causes.

Two runs and their diagnoses enter, HealthChanges leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.comparison import HealthChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from neuraldbg.compare.alignment import Side, Stretches
    from neuraldbg.compare.sites import SitePair
    from neuraldbg.nouns import Diagnosis, Event, RunRecord

DEAD = 0.1
"""Least difference between the shares of dead units of a layer that is listed."""
FACTOR = 2.0
"""Least factor between the median gradient norms of a layer that is listed."""
NOTHING = "-"


def changes(
    runs: tuple[RunRecord, RunRecord],
    judged: tuple[Diagnosis, Diagnosis] | None,
    layers: Mapping[str, str],
    pairs: Sequence[SitePair],
    time: Stretches,
) -> tuple[HealthChange, ...]:
    """Return the changes: outcomes, verdicts and causes first, then events, then layers in data-flow order."""
    ends = [_ending(run) for run in runs]
    found = [HealthChange("outcome", None, ends[0], ends[1])] if ends[0] != ends[1] else []
    if judged is not None:
        found += _verdicts(judged)
    found += _events(runs, layers)
    if len(time):
        found += _dead(runs, pairs, time)
        found += _gradients(runs, pairs, time)
    return tuple(found)


def _ending(run: RunRecord) -> str:
    outcome = run.info.outcome
    return f"{outcome.kind}: {outcome.message}" if outcome.message else outcome.kind


def _verdicts(judged: tuple[Diagnosis, Diagnosis]) -> Iterator[HealthChange]:
    """Compare the verdicts, and list the causes that only one of the diagnoses names."""
    if judged[0].verdict != judged[1].verdict:
        yield HealthChange("verdict", None, judged[0].verdict, judged[1].verdict)
    one, other = ({h.cause: h for h in diagnosis.hypotheses} for diagnosis in judged)
    for cause in dict.fromkeys((*one, *other)):
        if (cause in one) != (cause in other):
            hypothesis = one.get(cause) or other[cause]
            said = f"{cause} ({hypothesis.confidence:.0%})"
            pair = (said, NOTHING) if cause in one else (NOTHING, said)
            yield HealthChange("cause", hypothesis.layer, *pair, hypothesis.step)


def _events(runs: tuple[RunRecord, RunRecord], layers: Mapping[str, str]) -> Iterator[HealthChange]:
    """List kinds of events that a layer has in one run only. Their steps are not compared: rounding moves them."""
    back = {twin: path for path, twin in layers.items()}
    last = min(run.steps for run in runs)
    known: list[dict[tuple[str, str | None], Event]] = [{}, {}]
    for k, run in enumerate(runs):
        for event in run.events:
            layer = event.layer if k == 0 or event.layer is None else back.get(event.layer, event.layer)
            if event.first_step < last:
                known[k].setdefault((event.kind, layer), event)
    for key in dict.fromkeys((*known[0], *known[1])):
        if (key in known[0]) != (key in known[1]):
            event = known[0].get(key) or known[1][key]
            said = f"{event.kind.replace('_', ' ')}"
            pair = (said, NOTHING) if key in known[0] else (NOTHING, said)
            yield HealthChange("event", key[1], *pair, event.first_step)


def _dead(runs: tuple[RunRecord, RunRecord], pairs: Sequence[SitePair], time: Stretches) -> Iterator[HealthChange]:
    """Compare the shares of dead units at the last step that was read in both runs."""
    sides = time.one, time.other
    rows = [int(side.rows[-1]) for side in sides]
    tables = [run.history.row(at, "max") for run, at in zip(runs, rows, strict=True)]
    units, dead = 9, 10
    for pair in pairs:
        if pair.one.kind != "activation":
            continue
        values = [table[row] for table, row in zip(tables, pair.rows, strict=True)]
        if values[0][units] > 0 and values[1][units] > 0:
            shares = [float(v[dead] / v[units]) for v in values]
            if abs(shares[0] - shares[1]) >= DEAD:
                said = [f"{share:.0%} of {int(v[units])}" for share, v in zip(shares, values, strict=True)]
                yield HealthChange("dead units", pair.one.module, said[0], said[1], int(time.steps[-1]))


def _gradients(runs: tuple[RunRecord, RunRecord], pairs: Sequence[SitePair], time: Stretches) -> Iterator[HealthChange]:
    """Compare the norms of each weight's gradient, medians over steps."""
    weights = [pair for pair in pairs if pair.one.kind == "param_grad"]
    if not weights:
        return
    norms = [
        _norms(run, side, [pair.rows[k] for pair in weights])
        for k, (run, side) in enumerate(zip(runs, (time.one, time.other), strict=True))
    ]
    for pair, one, other in zip(weights, *norms, strict=True):
        low, high = sorted((one, other))
        if high > 0 and high > FACTOR * low:
            yield HealthChange("gradient norm", pair.one.module, f"{one:.3g} ({pair.one.name})", f"{other:.3g}")


def _norms(run: RunRecord, side: Side, rows: list[int]) -> list[float]:
    rms, total = (run.history.stat(rows, stat, "max")[side.rows] for stat in ("rms", "total"))
    norms = rms * np.sqrt(total)
    return [float(np.median(found)) if len(found := c[np.isfinite(c)]) else 0.0 for c in norms.T]
