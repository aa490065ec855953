"""Faults of one run that the other does not have: causes, the events that they explain, and what was measured there.

Two runs and their diagnoses enter, HealthChanges leave. What the diagnosis of a run does not count is no fault here: a
cause that is less likely than not, an event that no cause explains in a run that trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns import column
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
LIKELY = 0.5
"""Confidence from which a cause is listed: below it, its diagnosis does not name it as one."""
NOTHING = "-"
GRADIENTS = frozenset({"exploding_gradients", "gradient_spike", "vanishing_gradients"})
"""Kinds of events in whose layers the gradient norms are compared."""
UNITS, DEAD_UNITS = column("units"), column("dead")
Troubles = tuple["dict[tuple[str, str | None], Event]", "dict[tuple[str, str | None], Event]"]


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
    troubles = _troubles(runs, judged, layers)
    found += _events(troubles, min(run.steps for run in runs))
    if len(time):
        found += _dead(runs, pairs, time, _layers_of(troubles, frozenset({"dead_units"})))
        found += _gradients(runs, pairs, time, _layers_of(troubles, GRADIENTS))
    return tuple(found)


def _ending(run: RunRecord) -> str:
    outcome = run.info.outcome
    return f"{outcome.kind}: {outcome.message}" if outcome.message else outcome.kind


def _verdicts(judged: tuple[Diagnosis, Diagnosis]) -> Iterator[HealthChange]:
    """Compare the verdicts, and list the likely causes that only one of the diagnoses has."""
    if judged[0].verdict != judged[1].verdict:
        yield HealthChange("verdict", None, judged[0].verdict, judged[1].verdict)
    one, other = ({h.cause: h for h in diagnosis.hypotheses} for diagnosis in judged)
    for cause in dict.fromkeys((*one, *other)):
        hypothesis = one.get(cause) or other[cause]
        if (cause in one) != (cause in other) and hypothesis.confidence >= LIKELY:
            said = f"{cause} ({hypothesis.confidence:.0%})"
            pair = (said, NOTHING) if cause in one else (NOTHING, said)
            yield HealthChange("cause", hypothesis.layer, *pair, hypothesis.step)


def _troubles(
    runs: tuple[RunRecord, RunRecord], judged: tuple[Diagnosis, Diagnosis] | None, layers: Mapping[str, str]
) -> Troubles:
    """Return the first event of each kind and layer of each run that is a trouble there, by the rules of its diagnosis:
    an event that no cause explains, of a run that trains, is none.
    """
    back = {twin: path for path, twin in layers.items()}
    found: Troubles = ({}, {})
    for k, run in enumerate(runs):
        events = judged[k].effects if judged is not None else tuple(event for event in run.events if event.sure)
        for event in events:
            layer = event.layer if k == 0 or event.layer is None else back.get(event.layer, event.layer)
            found[k].setdefault((event.kind, layer), event)
    return found


def _events(troubles: Troubles, last: int) -> Iterator[HealthChange]:
    """List kinds of events that a layer has in one run only. Their steps are not compared: rounding moves them."""
    for key in dict.fromkeys((*troubles[0], *troubles[1])):
        event = troubles[0].get(key) or troubles[1][key]
        if (key in troubles[0]) != (key in troubles[1]) and event.first_step < last:
            said = f"{event.kind.replace('_', ' ')}"
            pair = (said, NOTHING) if key in troubles[0] else (NOTHING, said)
            yield HealthChange("event", key[1], *pair, event.first_step)


def _layers_of(troubles: Troubles, kinds: frozenset[str]) -> set[str | None]:
    """Return the layers, as the first run names them, in which either run has one of these kinds of events."""
    return {layer for found in troubles for kind, layer in found if kind in kinds}


def _dead(
    runs: tuple[RunRecord, RunRecord], pairs: Sequence[SitePair], time: Stretches, layers: set[str | None]
) -> Iterator[HealthChange]:
    """Compare the shares of dead units of some layers at the last step that was read in both runs."""
    sides = time.one, time.other
    rows = [int(side.rows[-1]) for side in sides]
    tables = [run.history.row(at, "max") for run, at in zip(runs, rows, strict=True)]
    for pair in pairs:
        rectified = all(s.module in run.layout.rectified for s, run in zip((pair.one, pair.other), runs, strict=True))
        if pair.one.kind != "activation" or pair.one.module not in layers or not rectified:
            continue
        values = [table[row] for table, row in zip(tables, pair.rows, strict=True)]
        if values[0][UNITS] > 0 and values[1][UNITS] > 0:
            shares = [float(v[DEAD_UNITS] / v[UNITS]) for v in values]
            if abs(shares[0] - shares[1]) >= DEAD:
                said = [f"{share:.0%} of {int(v[UNITS])}" for share, v in zip(shares, values, strict=True)]
                yield HealthChange("dead units", pair.one.module, said[0], said[1], int(time.steps[-1]))


def _gradients(
    runs: tuple[RunRecord, RunRecord], pairs: Sequence[SitePair], time: Stretches, layers: set[str | None]
) -> Iterator[HealthChange]:
    """Compare the norms of each weight's gradient in some layers, medians over steps."""
    weights = [pair for pair in pairs if pair.one.kind == "param_grad" and pair.one.module in layers]
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
