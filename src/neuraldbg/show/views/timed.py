"""Common parts of the views of measured time: the layers of the TIMING fact, the parts of a step, sentences on both."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from neuraldbg.layer_alias import resolve
from neuraldbg.nouns.facts.timing import TimingFact
from neuraldbg.nouns.step_spans import parts_of
from neuraldbg.show.format.safe_text import counted
from neuraldbg.show.format.unit_amounts import amount, per_cent

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.facts.footprint import LayerFootprint
    from neuraldbg.nouns.facts.timing import LayerTiming
    from neuraldbg.show.forms import Floats
    from neuraldbg.show.views.view import Choice

    L = TypeVar("L", LayerTiming, LayerFootprint)

UNTIMED = (
    "no step of this run was timed: record it with neuraldbg run --profile, or with NeuralDbg(model, profile=True)"
)


def timing_of(run: RunRecord) -> TimingFact | None:
    """Return the newest times of the run; None if no step was timed."""
    return run.known(TimingFact)


def own_times(layers: tuple[LayerTiming, ...]) -> tuple[Floats, Floats]:
    """Return seconds of each layer without the layers inside of it, forward and backward; NaN if there is none."""
    forward = np.array([layer.own_forward_s for layer in layers], np.float64)
    backward = [np.nan if layer.own_backward_s is None else layer.own_backward_s for layer in layers]
    return forward, np.array(backward, np.float64)


def chosen(run: RunRecord, layers: tuple[L, ...], choice: Choice) -> tuple[L, ...]:
    """Return the layers of the chosen one and inside of it; all if none was chosen. UnknownLayer for an unknown one."""
    if choice.layer is None:
        return layers
    only = resolve(run.layout, choice.layer)
    return tuple(one for one in layers if not only or one.layer == only or one.layer.startswith(f"{only}."))


def costliest(costs: Floats, most: int) -> list[int]:
    """Return the positions of the largest values, at most so many, in their order."""
    if len(costs) <= most:
        return list(range(len(costs)))
    return sorted(np.argsort(-np.nan_to_num(costs), kind="stable")[:most].tolist())


def share(timing: TimingFact | None, seconds: float | None) -> str:
    """Write which share of a step seconds are; "" if the sampled steps are no ordinary ones."""
    return "" if timing is None or timing.doubtful else per_cent(seconds, timing.step_s)


def left_out(shown: int, costs: Floats, kept: list[int], timing: TimingFact) -> str:
    """Write how many layers are not shown and what they take together; "" if all are."""
    if shown == len(costs):
        return ""
    rest = float(np.nansum(costs) - np.nansum(costs[kept]))
    others = share(timing, rest) or amount(rest, "s")
    return f"{shown:,} of {len(costs):,} layers are shown, the costliest: the others take {others}"


def sampled_note(timing: TimingFact) -> str:
    """Write in how many steps the time was measured, and by which clock."""
    span = f"step {timing.first:,}" if timing.steps == 1 else f"steps {timing.first:,} to {timing.last:,}"
    clocks = {
        "cpu": "the processor's clock",
        "cuda": "events on the device's own stream",
        "host": "the processor's clock when work for the devices was launched",
    }
    kind = "timed step" if timing.by_hand else "sampled step"
    said = f"Typical of {counted(timing.steps, kind)} ({span})" if timing.steps > 1 else f"Measured in {span}"
    said_by = clocks.get(timing.clock, timing.clock)
    return f"{said}, {'timed by the program itself' if timing.by_hand else f'layers by {said_by}'}"


def step_note(timing: TimingFact) -> str:
    """Write how long a step takes and what its parts are."""
    told = () if timing.doubtful else parts_of(timing)
    parts = ", ".join(f"{per_cent(seconds, timing.step_s)} {name}" for name, seconds in told)
    usual = f"; a step that was not sampled takes {amount(timing.usual_s, 's')}" if timing.usual_s else ""
    said = f"A step takes {amount(timing.step_s, 's')}{f': {parts}' if parts else ''}{usual}"
    return f"{caution} {said}" if (caution := timing.caution()) else said


def split_note(timing: TimingFact) -> str:
    """Write that backward passes are missing from the layers' times, if they are."""
    if timing.backward_split:
        return ""
    if timing.by_hand:
        return "No backward time of a layer was given: it is not here"
    return "Some backward passes could not be split by layers: their time is not here"


def work_note(timing: TimingFact) -> str:
    """Write how many operations a step has, and how fast they are beside what the machine can do; "" if not counted."""
    if not timing.flops:
        return ""
    said = f"{amount(timing.flops, 'FLOP')} in a step"
    if timing.reached_flops:
        said += f", {amount(timing.reached_flops, 'FLOP/s')} in forward and backward passes"
    if timing.machine_flops and timing.reached_flops and not timing.doubtful:
        part = per_cent(timing.reached_flops, timing.machine_flops)
        of = f" ({timing.machine})" if timing.machine else ""
        said += f": {part} of the {amount(timing.machine_flops, 'FLOP/s')} that this machine can do{of}"
    return said
