"""Evaluations that take a large part of the run.

An evaluation is a stretch between two steps with forward passes in eval mode, or whose loss is computed without
gradients, in few of the steps. Forward passes without gradients that most steps have are part of the algorithm: samples
of a generator for its critic, the actions of a policy, targets. They are a part of the step, and no evaluation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.measures import percent, seconds
from neuraldbg.nouns.profile import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns import RunRecord
    from neuraldbg.profile.finder import Measured

LEAST = 0.25
"""Share of the run: an evaluation once for each epoch, on a tenth of the data and without a backward pass, takes some
4%."""
LEAST_STEPS = 8
"""Steps without an evaluation, of which the median is the time of one."""
OFTEN = 0.5
"""Share of the steps from which on such passes are part of the algorithm."""


def bottlenecks(measured: Measured) -> Iterator[Bottleneck]:
    """Return the time of evaluations: how much longer steps with one took than the median of the others."""
    run = measured.run
    took, own, passes = _alone(run, "duration"), _alone(run, "overhead"), _alone(run, "evals")
    evaluated = {
        step for name in ("eval_passes", "eval_loss") for step, value in _alone(run, name).items() if not value <= 0
    }
    # Passes are counted in steps that were read in full: of others it is not known, and they are not compared. The
    # first step holds the imports and the loading of data.
    steps = [step for step in passes if step > 0 and step in took]
    times = np.array([took[step] - own.get(step, 0.0) for step in steps], np.float64)
    with_one = np.array([step in evaluated for step in steps], bool)
    count = int(with_one.sum())
    if not count or len(steps) - count < LEAST_STEPS or count > OFTEN * len(steps):
        return
    longer = np.maximum(times[with_one] - float(np.median(times[~with_one])), 0.0)
    share = float(longer.sum()) / max(float(times.sum()), 1e-9)
    if share < LEAST:
        return
    text = (
        f"{percent(share)} of the time of the steps that were read in full is evaluation: {count:,} of {len(steps):,} "
        f"have one before them, of {seconds(float(longer.mean()))} on average"
    )
    remedy = "Evaluate less often, in larger batches, and under torch.inference_mode()."
    yield Bottleneck("evaluation", text, remedy, share)


def _alone(run: RunRecord, name: str) -> dict[int, float]:
    """Return the values of a scalar by step, without the means of several steps, which say nothing of one."""
    found = run.scalar(name)
    rows = zip(found.steps, found.values, found.width, strict=True)
    return {int(step): float(value) for step, value, width in rows if width == 1 and not np.isnan(value)}
