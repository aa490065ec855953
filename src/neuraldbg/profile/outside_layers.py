"""The rest of the step: neither data loader, nor forward or backward pass of the model, nor optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.measures import percent
from neuraldbg.nouns.profile import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns.facts.timing import TimingFact
    from neuraldbg.profile.finder import Measured

LEAST = 0.2
"""Share of the step. The loss function, zero_grad and clipping are in the rest, and take up to a tenth of the steps of
``benchmarks/models.py``."""


def bottlenecks(measured: Measured) -> Iterator[Bottleneck]:
    """Return the rest of the step."""
    timing = measured.timing
    if timing is None or not (timing.layers or timing.by_hand):
        return
    share = measured.share(timing.other_s)
    if share < LEAST:
        return
    if timing.by_hand:
        yield _by_hand(timing, share)
        return
    parts = ["the loss function, metrics, logging, transfers"]
    if timing.data_s is None:  # code that makes batches counts here
        parts.append("and the making of batches, since no data loader of torch is used")
    text = f"{percent(share)} of the step is neither data loader, nor model, nor optimizer: {', '.join(parts)}"
    remedy = "Log and measure every few steps instead of at each"
    if measured.on_device:
        remedy += "; each .item(), print and .cpu() waits for the device; copy with non_blocking=True"
    yield Bottleneck("outside", text, f"{remedy}.", share)


def _by_hand(timing: TimingFact, share: float) -> Bottleneck:
    """Return the rest of a step whose parts the program timed itself."""
    seconds = {name: getattr(timing, f"{name}_s") for name in ("data", "forward", "backward", "optimizer")}
    timed = [name for name, took in seconds.items() if took is not None]
    missing = [name for name, took in seconds.items() if took is None]
    text = f"{percent(share)} of the step is "
    text += f"outside of what was timed as {', '.join(timed)}" if timed else "in no part that was timed"
    remedy = "Log and measure every few steps instead of at each"
    if missing:
        text += f"; {', '.join(missing)} {'was' if len(missing) == 1 else 'were'} not timed"
        named = "a timer named" if len(missing) == 1 else "timers named"
        remedy = f"Add {named} {', '.join(missing)}, to see what takes it"
    return Bottleneck("outside", text, f"{remedy}.", share)
