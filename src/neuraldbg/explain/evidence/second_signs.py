"""Second signs of a training loss that lost a part of what was learnt: harder data raise it as much, and do no harm.

Augmentation that is switched on, a harder task or smoothed labels raise the training loss alone. A fault shows
elsewhere, too: in a setting that changed, in data that are not trained on, or in gradients, units and weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.change_points import change_points
from neuraldbg.explain.evidence.metric_meanings import ROSE, WORSE, meaning_of
from neuraldbg.nouns import METRIC, metric_names

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.change_points import ChangePoint
    from neuraldbg.explain.evidence.record_readings import RecordReadings
    from neuraldbg.nouns import Series

LATER, BEFORE = 2, 3
"""Values of data that are not trained on from an onset on at least, and newest ones before it, that are compared."""
SLACK = 5
"""Steps before an onset from which an event belongs to it."""
HARMLESS = ("loss", "batch_size", "optimizer")
"""Changes that raise no loss which is computed as before."""
RAISED = ("lr", "momentum", "weight_decay", "dropout")
"""Settings that raise a loss where they grow."""
ALONGSIDE = ("gradient_spike", "exploding_gradients", "activation_scale", "update_ratio_low")
"""Kinds of events that a higher loss, or harder data, bring with them."""


def second_sign(run: RecordReadings, onset: int, best: int) -> bool:
    """Return True if a rise of the training loss from a step on has a second sign. ``best`` is the step at which the
    loss was lowest before it.
    """
    if any(_tells(change) for change in change_points(run, onset, best)):
        return True
    if any(_belongs(event.first_step, onset) and event.sure for event in run.run.events if _apart(event.kind)):
        return True
    return _worse(run.scalar("eval_loss").finite(), onset, rises=False) or any(_metrics(run, onset))


def _tells(change: ChangePoint) -> bool:
    if change.what in RAISED:
        return change.after > change.before
    return change.what not in HARMLESS


def _apart(kind: str) -> bool:
    return not kind.startswith("loss_") and kind not in ALONGSIDE


def _belongs(step: int, onset: int) -> bool:
    return step >= onset - SLACK


def _metrics(run: RecordReadings, onset: int) -> list[bool]:
    """Return of each metric of data that are not trained on whether it got worse from a step on."""
    found = []
    for name in metric_names(run.history.scalars):
        meaning = meaning_of(name)
        if meaning is not None and meaning.held_out:
            series = run.run.scalar(f"{METRIC}{name}").finite()
            found.append(_worse(series, onset, rises=meaning.rises, share=meaning.share))
    return found


def _worse(series: Series, onset: int, *, rises: bool, share: bool = False) -> bool:
    """Return True if the values from a step on are worse than the newest before it, beyond their scatter. Overfitting
    makes them worse by and by.
    """
    sign = 1.0 if rises else -1.0
    before = sign * series.values[series.steps < onset][-BEFORE:]
    after = sign * series.values[series.steps >= onset]
    if len(before) < LATER or len(after) < LATER:
        return False
    most = (100.0 if float(np.abs(series.values).max()) > 1.5 else 1.0) if share else float(np.abs(before).max())
    room = (WORSE if share else ROSE) * most + float(before.max() - before.min())
    return bool(after.max() < before.min() - room)
