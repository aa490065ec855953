"""A layer that takes far more time than its share of the arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.facts.timing import layer_around
from neuraldbg.nouns.measures import percent
from neuraldbg.nouns.profile import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns.facts.footprint import FootprintFact
    from neuraldbg.nouns.facts.timing import LayerTiming
    from neuraldbg.profile.finder import Measured

LEAST = 0.2
"""Share of the step that one layer takes by itself: of several such layers none can be said to dominate."""
EXCESS = 2.0
"""Ratio of its share of the time of all layers to its share of their operations. On the models of
``benchmarks/models.py`` matrix products and convolutions, forward and backward, lie between 0.6 and 1.4."""
HALF = 0.5
"""Share of the step from which on a layer is told although its operations are not known, as of times by hand: twice as
fast, it makes the step at least 1.33 times as fast (Amdahl)."""
MANY_CALLS = 16
"""Calls in a step from which their number is the likely reason: a loop over time steps, or over samples."""


def bottlenecks(measured: Measured) -> Iterator[Bottleneck]:
    """Return the layer with the largest time of its own, if its arithmetic does not account for it."""
    timing = measured.timing
    if timing is None or len(timing.layers) < 2:
        return
    layer = max(timing.layers, key=_own)
    share, flops = measured.share(_own(layer)), timing.own_flops()
    if not flops and timing.by_hand and share >= HALF:
        yield _by_hand(layer, share, measured.footprint)
    if share < LEAST or not flops:
        return
    work = flops[layer.layer] / sum(flops.values())
    of_layers = _own(layer) / sum(_own(one) for one in timing.layers)
    if of_layers < EXCESS * work:
        return
    name = f"'{layer.layer}'" if layer.layer else "The model itself, outside of its layers,"
    done = f"{percent(work)} of the operations" if work >= 0.005 else "next to none of the operations"
    text = f"{name} takes {percent(share)} of the step and does {done}{_calls(layer)}"
    yield Bottleneck("one_layer", text, _remedy(layer), share, layer.layer)


def _by_hand(layer: LayerTiming, share: float, footprint: FootprintFact | None) -> Bottleneck:
    """Return a layer that the program timed itself, with its share of the parameters if they were given, too."""
    counts = {one.layer: one.parameter_count or 0 for one in footprint.layers} if footprint is not None else {}
    whole = counts.get("") or sum(count for path, count in counts.items() if layer_around(path, counts) is None)
    held = f" and has {percent(counts[layer.layer] / whole)} of the parameters" if counts.get(layer.layer) else ""
    text = f"'{layer.layer}' takes {percent(share)} of the step{held}{_calls(layer)}"
    faster = f"Twice as fast, it would make the step {1 / (1 - share / 2):.2f} times as fast"
    return Bottleneck("one_layer", text, f"{_remedy(layer, torch=False)} {faster}.", share, layer.layer)


def _own(layer: LayerTiming) -> float:
    return layer.own_forward_s + (layer.own_backward_s or 0.0)


def _calls(layer: LayerTiming) -> str:
    return f", in {layer.calls:,} calls" if layer.calls > 1 else ""


def _remedy(layer: LayerTiming, *, torch: bool = True) -> str:
    if layer.calls >= MANY_CALLS:
        return "Call it once with all inputs stacked, instead of once for each."
    if not torch:
        return "Look for loops in Python, copies, indexing, or elementwise operations on large arrays there."
    backward = layer.own_backward_s or 0.0
    where = "backward" if backward > 2 * layer.own_forward_s else "forward"
    return (
        f"Its time is not arithmetic: most of it is {where}. Look for loops in Python, copies, indexing, or "
        "elementwise operations on large tensors there; torch.compile(model) joins elementwise operations."
    )
