"""The profile stage: a RunRecord enters, a Profile leaves (``nouns/profile.py``). It never imports torch.

What it judges was measured by ``capture/profiling`` and stands in the facts ``timing``, ``footprint`` and ``growth``.
A kind of bottleneck is one file with ``bottlenecks(measured)`` and its thresholds; to register one, add a line to
``FINDERS``.

- ``finder.py``: the contract of a kind of bottleneck, and what it is given
- ``data_loading.py``: waiting for the data loader
- ``dominant_layer.py``: a layer that takes far more time than its share of the arithmetic
- ``small_operations.py``: layers so small that their calls take longer than their arithmetic
- ``optimizer_share.py``: steps of the optimizer
- ``outside_layers.py``: the rest of the step
- ``evaluation_share.py``: evaluations
- ``leaks.py``: memory that does not come back
- ``peaks.py``: what takes most of the memory of a step
- ``read_outputs.py``: the bytes of outputs, where no step was recorded
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.nouns.measures import percent
from neuraldbg.nouns.profile import Bottleneck, Profile
from neuraldbg.profile.data_loading import bottlenecks as data_loading
from neuraldbg.profile.dominant_layer import bottlenecks as dominant_layer
from neuraldbg.profile.evaluation_share import bottlenecks as evaluation_share
from neuraldbg.profile.finder import Measured, measured_of
from neuraldbg.profile.leaks import bottlenecks as leaks
from neuraldbg.profile.optimizer_share import bottlenecks as optimizer_share
from neuraldbg.profile.outside_layers import bottlenecks as outside_layers
from neuraldbg.profile.peaks import bottlenecks as peaks
from neuraldbg.profile.read_outputs import read_outputs
from neuraldbg.profile.small_operations import bottlenecks as small_operations

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.facts.timing import TimingFact
    from neuraldbg.profile.finder import Finder

FINDERS: tuple[Finder, ...] = (
    data_loading,
    dominant_layer,
    evaluation_share,
    leaks,
    optimizer_share,
    outside_layers,
    peaks,
    small_operations,
)
"""All kinds of bottlenecks, by name."""


def profile(run: RunRecord) -> Profile:
    """Return where the time and the memory of a run went, and its bottlenecks: leaks, then the largest share first."""
    measured = measured_of(run)
    # Of steps that were not ordinary ones no share is told. What was measured in other steps is told all the same.
    doubtful = measured.timing is not None and measured.timing.doubtful
    judged = replace(measured, timing=None) if doubtful else measured
    found = [one for finder in FINDERS for one in finder(judged)]
    # A leak ends a run, whatever else costs time.
    found.sort(key=lambda one: (one.kind != "leak", -(one.share if one.share is not None else 0.0)))
    return Profile(
        measured.timing, measured.footprint, measured.growth, tuple(found), tuple(_notes(measured)), read_outputs(run)
    )


def _notes(measured: Measured) -> list[str]:
    """Return what was not measured, and why."""
    timing = measured.timing
    if timing is None:
        few = "it had too few steps" if measured.run.steps < LEAST_STEPS else "no optimizer of torch stepped its model"
        return [f"No step was timed: the run was made without a profile, or {few}."]
    notes = [caution] if (caution := timing.caution()) else []
    if timing.by_hand:
        return notes + _not_given(timing)
    if not timing.layers:
        notes.append("No layer was timed: the model was compiled in a function, or no call of it was seen.")
    if not timing.backward_split:
        notes.append("Some backward pass is not split by layers: its graph is too large, or it is compiled.")
    if timing.alike < 1.0:
        notes.append(
            f"Steps differ: {percent(timing.alike)} of the sampled ones did the same. Times are means over all of them."
        )
    if timing.flops is None and timing.shapes > 1:
        notes.append(
            f"Operations are not told: inputs came in {timing.shapes:,} shapes, and too few of these were counted."
        )
    elif timing.flops is None:
        notes.append("Operations were not counted: give profile=True, or --profile, to count them.")
    if timing.uncounted:
        notes.append(f"Not in the count of operations: {', '.join(timing.uncounted)}.")
    if timing.data_s is None:
        notes.append("No data loader of torch was waited for: code that makes batches counts as the rest of the step.")
    return notes


def _not_given(timing: TimingFact) -> list[str]:
    """Return what a program that gives its times by hand has not given."""
    notes = []
    if not timing.layers:
        notes.append("No layer was timed: profiler.record_layer_execution takes the seconds of one.")
    if not timing.backward_split:
        notes.append("No backward time of a layer was given.")
    if timing.alike < 1.0:
        notes.append(f"Steps differ: in {percent(timing.alike)} of them the same was timed. Times are means over all.")
    parts = ("data", "forward", "backward", "optimizer")
    if missing := [name for name in parts if getattr(timing, f"{name}_s") is None]:
        notes.append(f"Not timed: {', '.join(missing)}. A timer of that name makes it a part of the step.")
    return notes


LEAST_STEPS = 10
"""Steps before the first that is timed by default, with it and the one that ends it."""

__all__ = ["FINDERS", "Bottleneck", "profile"]
