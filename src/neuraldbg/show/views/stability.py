"""The stability of a run: loss and gradient norm beside their usual size, and what their noise amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.loss_names import loss_names
from neuraldbg.show.axes.ticks import wide
from neuraldbg.show.format.safe_text import counted, number
from neuraldbg.show.forms import Line, Lines, Scale
from neuraldbg.show.views.columns import end_of, within
from neuraldbg.show.views.moments import marks_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns import Diagnosis, RunRecord, Series
    from neuraldbg.show.forms import Floats

WINDOW = 25
"""Steps before a step whose median is its usual size."""
FEWEST = 5
"""Steps before a step that its usual size needs."""
SPIKE = 3.0
"""Times the usual size from which a gradient norm counts as a spike."""
ENOUGH = 20
"""Changes of the loss that a sentence on their direction needs."""
ZIGZAG = 0.85
"""Share of turns from which the loss is said to swing: of independent noise two thirds of the changes turn."""
AGAINST = -0.2
"""Median cosine of successive gradients below which steps are said to go back and forth."""


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return loss and gradient norm of each optimizer over their usual size, with what was measured in words."""
    lines: list[Line] = []
    notes: list[str] = []
    several = len(run.streams) > 1
    for stream in run.streams:
        name = loss_names(run).get(stream, "loss")
        of = f" of optimizer {stream}" if several else ""
        loss = within(run.scalar("loss", stream), choice).finite()
        norm = within(run.scalar("grad_norm", stream), choice).finite()
        lines += [line for line in (_line(name, loss), _line(f"gradient norm{of}", norm)) if line is not None]
        notes += [*_noise(loss, name), *_turns(loss, name), *_spikes(norm, of), *_against(run, stream, choice, of)]
    every = np.concatenate([np.zeros(0), *(line.values for line in lines)])
    return Lines(
        name="stability",
        title="Loss and gradient norm beside their usual size",
        lines=tuple(lines),
        y=Scale(f"times the median of the {WINDOW} values before", log=wide(every)),
        end=end_of(run, choice),
        marks=marks_of(run, diagnosis, choice),
        notes=tuple(notes),
        empty="" if lines else f"neither a loss nor a gradient norm was measured in more than {FEWEST} of these steps",
    )


def usual(values: Floats) -> Floats:
    """Return the median of the WINDOW values before each, shape (T,); NaN where fewer than FEWEST are."""
    found = np.full(len(values), np.nan)
    for i in range(FEWEST, min(WINDOW, len(values))):
        found[i] = np.median(values[:i])
    if len(values) > WINDOW:
        windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW)[:-1]
        found[WINDOW:] = np.median(windows, axis=1)
    return found


def _line(name: str, series: Series) -> Line | None:
    before = usual(series.values)
    there = np.isfinite(before) & (before > 0)
    if not there.any():
        return None
    return Line(name, series.steps[there], series.values[there] / before[there])


def _noise(loss: Series, name: str) -> Iterator[str]:
    """Write how much the loss scatters from one step to the next, beside its level: half of the changes are larger."""
    changes = np.abs(np.diff(loss.values[loss.width == 1][-10 * WINDOW :]))
    level = float(np.median(np.abs(loss.values[-10 * WINDOW :]))) if len(loss) else 0.0
    if len(changes) >= ENOUGH and level > 0:
        yield f"The {name} changes by {100 * float(np.median(changes)) / level:.2g}% of its size from step to step"


def _turns(loss: Series, name: str) -> Iterator[str]:
    """Write in how many steps the loss turned, if that is more than noise does."""
    changes = np.diff(loss.values[loss.width == 1][-10 * WINDOW :])
    changes = changes[changes != 0]
    if len(changes) < ENOUGH:
        return
    share = float((changes[1:] * changes[:-1] < 0).mean())
    if share >= ZIGZAG:
        yield f"The {name} swings: it turns in {share:.0%} of the steps, of independent noise it would be 67%"


def _spikes(norm: Series, of: str) -> Iterator[str]:
    """Write how many gradient norms were far above the usual, and the first and the largest of them."""
    before = usual(norm.values)
    ratio = np.divide(norm.values, before, out=np.zeros(len(norm)), where=before > 0)
    hit = np.flatnonzero(ratio >= SPIKE)
    if not len(hit):
        if len(norm) > ENOUGH:
            yield f"The gradient norm{of} was never {SPIKE:.0f} times its usual size"
        return
    top = hit[ratio[hit].argmax()]
    words = counted(len(hit), "step")
    largest = f"the most {number(float(f'{ratio[top]:.3g}'))} times, in step {int(norm.steps[top]):,}"
    yield f"The gradient norm{of} was {SPIKE:.0f} times its usual size or more in {words}: {largest}"


def _against(run: RunRecord, stream: int, choice: Choice, of: str) -> Iterator[str]:
    """Write if successive gradients point against each other: the steps go across the valley of the loss."""
    turn = within(run.scalar("gradient_turn", stream), choice).finite()
    if len(turn) < ENOUGH or float(np.median(turn.values)) > AGAINST:
        return
    share = float((turn.values < 0).mean())
    yield f"Successive gradients{of} point against each other in {share:.0%} of the steps measured: it steps too far"


VIEW = Member("stability", "loss and gradient norm beside their usual size: spikes, noise, swings", compute, ("step",))
