"""Layers so small that their calls take longer than their arithmetic: the machine is hardly used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.measures import percent, rate, seconds
from neuraldbg.nouns.profile import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.profile.finder import Measured

LEAST_REACHED = 0.1
"""Share of the machine's matrix product that a training reaches which is not bound by calls: large models reach 0.3 to
0.6 (PaLM, arXiv 2204.02311, table 3: 0.46), the GPT of ``benchmarks/models.py`` 0.5."""
SMALL_S = 1e-4
"""Seconds of a call of a layer that does little more than start: an operator of torch takes 5 to 20 us to start,
forward, and as long again backward (``benchmarks/overhead.py``, MLP)."""
LEAST = 0.3
"""Share of the step in forward and backward passes: of less, no larger batch makes a step much better."""
MANY = 4
"""Layers from which calls are many."""


def bottlenecks(measured: Measured) -> Iterator[Bottleneck]:
    """Return the low use of the machine, if the layers are small."""
    timing = measured.timing
    if timing is None or not timing.flops or not timing.machine_flops:
        return
    busy = (timing.forward_s or 0.0) + (timing.backward_s or 0.0)
    calls = sum(one.calls for one in timing.layers)
    if not busy or not calls or measured.share(busy) < LEAST:
        return
    reached = timing.reached_flops or 0.0
    used, each = reached / timing.machine_flops, busy / calls
    if used >= LEAST_REACHED or each >= SMALL_S or len(timing.layers) < MANY:
        return
    text = (
        f"Forward and backward passes reach {rate(reached)}, {percent(used)} of the {rate(timing.machine_flops)} of a "
        f"large matrix product here: {calls:,} calls of layers take {seconds(each)} each"
    )
    remedy = "Give more samples to a step (batch_size), or join the calls: torch.compile(model)."
    yield Bottleneck("many_small_layers", text, remedy, measured.share(busy) * (1 - used))
