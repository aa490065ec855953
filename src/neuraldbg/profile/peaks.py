"""The peak of a step's memory: what takes most of it, and the layer where it is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.measures import percent, size
from neuraldbg.nouns.profile import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns.facts.footprint import FootprintFact
    from neuraldbg.profile.finder import Measured

_SMALL = 32 << 20
"""Bytes of a peak below which nobody has to save memory."""
_ACTIVATIONS = 0.5
"""Share of the peak: below it checkpointing saves less than it costs, a second forward pass."""
_OPTIMIZER = 0.4
"""Share of the peak. Two moments are half of the memory of a step without activations."""
_LAYER = 0.5
"""Share of the activations that one layer has."""
_SURGE = 0.4
"""Share of the peak that a layer needs for a moment only, beyond what was kept before its backward pass."""
_BESIDE = 0.4
"""Share of the peak that lies on the device all the time beside the model."""
_ON_DEVICE = "CUDA"
"""The begin of ``FootprintFact.method`` for a device."""
_FULL = 0.9
"""Share of the device's memory that a peak takes."""
_EIGHT = ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad")
"""Optimizers of torch of which bitsandbytes has one with state of 8 bits, for CUDA."""
_STATE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")
"""Optimizers of torch with two moments for each weight."""


def bottlenecks(measured: Measured) -> Iterator[Bottleneck]:
    """Return what takes a large share of the memory of a step."""
    found = measured.footprint
    if found is None or found.peak is None or found.peak < _SMALL or found.by_hand:
        return  # of a peak by hand it is not known what it holds
    yield from _activations(found, found.peak)
    yield from _optimizer(found, found.peak, measured)
    yield from _surge(found, found.peak)
    yield from _beside(found, found.peak)
    if found.device_total and found.peak > _FULL * found.device_total:
        which = "most since the program began" if found.whole_run else "peak of a step"
        text = f"the {which}, {size(found.peak)}, is {percent(found.peak / found.device_total)} of the memory"
        yield Bottleneck("peak", text, "Take smaller batches and accumulate gradients: one larger batch ends the run")


def _activations(found: FootprintFact, peak: int) -> Iterator[Bottleneck]:
    if found.activations is None:
        return
    share = min(1.0, found.activations / peak)
    if share < _ACTIVATIONS:
        return
    layers = [one for one in found.layers if one.activations]
    largest = max(layers, key=lambda one: one.activations or 0, default=None)
    most, total = (largest.activations or 0) if largest is not None else 0, sum(one.activations or 0 for one in layers)
    lone = largest is not None and most > _LAYER * total
    at = f", most of it of {largest.layer!r} ({size(most)})" if largest is not None and lone else ""
    text = f"{percent(share)} of the memory at the peak, {size(found.activations)}, are activations{at}"
    name = f"of {largest.layer!r}" if largest is not None and lone else "of the largest blocks"
    remedy = (
        f"torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) around the call {name}; or a smaller "
        "batch_size with several backward passes for one step; or torch.autocast"
    )
    yield Bottleneck("activations", text, remedy, share, largest.layer if largest is not None and lone else None)


def _optimizer(found: FootprintFact, peak: int, measured: Measured) -> Iterator[Bottleneck]:
    share = min(1.0, found.optimizer / peak)
    if share < _OPTIMIZER:
        return
    kinds = list(dict.fromkeys(fact.type for fact in measured.optimizers if fact.type))
    name = f" ({', '.join(kinds)})" if kinds else ""
    times = found.optimizer / found.parameters if found.parameters else 0.0
    text = f"{percent(share)} of the memory at the peak, {size(found.optimizer)}, is the optimizer's state{name}"
    text += f": {times:.1f} times the parameters" if times >= 0.1 else ""
    cuda = measured.on_device or found.method.startswith("CUDA")
    ways = [f"an optimizer with state of 8 bits (bitsandbytes.optim.{kind}8bit)" for kind in kinds if kind in _EIGHT]
    ways = ways[:1] if cuda else []
    if any(kind in _STATE for kind in kinds) or not kinds:
        ways.append("torch.optim.Adafactor, which keeps rows and columns of the second moment")
    remedy = ", or ".join(ways)
    yield Bottleneck("optimizer_memory", text, remedy[:1].upper() + remedy[1:], share)


def _surge(found: FootprintFact, peak: int) -> Iterator[Bottleneck]:
    """Return the layer at which memory is needed for a moment only."""
    if found.beside is None and found.method.startswith(_ON_DEVICE):  # a data set may lie there all the time
        return
    held = found.parameters + found.gradients + found.optimizer + (found.activations or 0)
    steady = held + (found.beside or 0)
    share = (peak - steady) / peak
    if share < _SURGE or not found.peak_at:
        return
    text = f"{percent(share)} of the memory at the peak, {size(peak - steady)}, is needed for a moment only, in the "
    layer = found.peak_at.partition("'")[2].rpartition("'")[0] or None
    remedy = "Compute it in parts: chunks of the batch or of the vocabulary, or a fused operation"
    yield Bottleneck("peak", text + found.peak_at.removeprefix("the "), remedy, share, layer)


def _beside(found: FootprintFact, peak: int) -> Iterator[Bottleneck]:
    """Return what lies on the device beside the model."""
    share = min(1.0, (found.beside or 0) / peak)
    if found.beside is None or share < _BESIDE:
        return
    text = f"{percent(share)} of the memory at the peak, {size(found.beside)}, lies on the device all the time beside "
    text += "the model: a data set, another model, results that are kept"
    remedy = "Keep on the CPU what a step does not need, and move what it needs (pin_memory(), non_blocking=True)"
    yield Bottleneck("peak", text, remedy, share)
