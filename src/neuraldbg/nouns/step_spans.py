"""A typical step laid out over time: a TimingFact enters; start and end of its parts and of its layers leave.

The fact has durations and the order of first calls, no start times. Parts follow one another. A layer's own time is
laid before that of the layers inside of it, and the backward pass in the reverse order of the forward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from neuraldbg.nouns.facts.timing import LayerTiming, TimingFact

DATA, FORWARD, BACKWARD, OPTIMIZER = "data loader", "forward", "backward", "optimizer"
EVALUATION, OTHER = "forward passes without gradients", "other"
DATA_BY_HAND, EVALUATION_BY_HAND = "data", "evaluation"


class StepSpan(NamedTuple):
    """A stretch of a typical step."""

    part: str
    """DATA, FORWARD, BACKWARD, OPTIMIZER, EVALUATION or OTHER; of times by hand DATA_BY_HAND and EVALUATION_BY_HAND."""
    start: float
    """Seconds since the step began."""
    end: float
    layer: str | None = None
    """Path of the layer; None for the part as a whole."""


def parts_of(timing: TimingFact) -> tuple[tuple[str, float], ...]:
    """Return the parts of a step that took time, in the order in which they are laid, with their seconds."""
    by_hand = timing.by_hand  # then it is not known by what batches are made, and what an evaluation is
    data, evaluation = (DATA_BY_HAND, EVALUATION_BY_HAND) if by_hand else (DATA, EVALUATION)
    parts = (
        (data, timing.data_s),
        (FORWARD, timing.forward_s),
        (BACKWARD, timing.backward_s),
        (OPTIMIZER, timing.optimizer_s),
        (evaluation, timing.evaluation_s),
        (OTHER, timing.other_s),
    )
    return tuple((name, seconds) for name, seconds in parts if seconds)


def step_spans(timing: TimingFact, among: Collection[str] | None = None) -> tuple[StepSpan, ...]:
    """Return the parts of a step, then its layers; ``among`` are the paths of the layers that are returned, None for
    all: the others take their time all the same.
    """
    found: list[StepSpan] = []
    now = 0.0
    for part, seconds in parts_of(timing):
        found.append(StepSpan(part, now, now + seconds))
        now += seconds
    begins = {span.part: span.start for span in found}
    for part, reverse in ((FORWARD, False), (BACKWARD, True)):
        begin = begins.get(part, 0.0)
        for layer, (start, end) in _laid(timing.layers, reverse=reverse).items():
            if end > start and (among is None or layer in among):
                found.append(StepSpan(part, begin + start, begin + end, layer))
    return tuple(found)


def _laid(layers: tuple[LayerTiming, ...], *, reverse: bool) -> dict[str, tuple[float, float]]:
    """Return the start and the end of each layer within the pass, a layer around those inside of it."""
    inside = _children(layers)
    own = {layer.layer: (layer.own_backward_s or 0.0) if reverse else layer.own_forward_s for layer in layers}
    order = -1 if not reverse else 1  # the last of a stack is taken first
    found: dict[str, tuple[float, float]] = {}
    now = 0.0
    # No recursion: a path may be as deep as a program likes. Each layer is met twice, at its start and its end.
    todo: list[tuple[str, float | None]] = [(path, None) for path in inside[None][::order]]
    while todo:
        path, start = todo.pop()
        if start is None:
            start = now
            now += 0.0 if reverse else own[path]
            todo.append((path, start))
            todo += [(child, None) for child in inside.get(path, [])[::order]]
        else:
            now += own[path] if reverse else 0.0
            found[path] = (start, now)
    return found


def _children(layers: tuple[LayerTiming, ...]) -> dict[str | None, list[str]]:
    """Return the layers directly inside of each, in the order of their first call; those inside of none are of None."""
    known = dict.fromkeys(layer.layer for layer in layers)  # a run file may name a layer twice
    found: dict[str | None, list[str]] = {None: []}
    for path in known:
        around = path
        while around:
            around = around.rpartition(".")[0]
            if around in known:
                break
        found.setdefault(around if around in known and around != path else None, []).append(path)
    return found
