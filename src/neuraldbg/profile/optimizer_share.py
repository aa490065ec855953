"""Steps of the optimizer that take a large part of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.measures import percent
from neuraldbg.nouns.profile import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.profile.finder import Measured

LEAST = 0.25
"""Share of the step. A weight is multiplied at least twice forward and four times backward for each sample, and an
optimizer passes over it some five times: over a quarter means that a step has few samples, or an optimizer that goes
over the parameters one by one."""
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of torch with a fused implementation, on processors and on CUDA."""
FOREACH = ("Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "Adafactor")
"""Optimizers of torch with an implementation over lists of tensors only."""


def bottlenecks(measured: Measured) -> Iterator[Bottleneck]:
    """Return the time of the optimizer."""
    timing = measured.timing
    if timing is None:
        return
    share = measured.share(timing.optimizer_s)
    if share < LEAST:
        return
    kinds = list(dict.fromkeys(fact.type for fact in measured.optimizers if fact.type))
    name = f" ({', '.join(kinds)})" if kinds else ""
    text = f"{percent(share)} of the step is the optimizer{name}"
    yield Bottleneck("optimizer", text, _remedy(measured), share)


def _remedy(measured: Measured) -> str:
    """Return the faster implementation of an optimizer that has one and does not use it, and what helps any."""
    larger = "give more samples to a step: a larger batch_size, or several backward passes for one step"
    torch = measured.timing is not None and not measured.timing.by_hand
    for one in measured.optimizers if torch else ():
        if one.type in FUSED and not any(group.fused for group in one.groups):
            return f"torch.optim.{one.type}(..., fused=True); or {larger}"
        # On a CUDA device torch takes it by itself.
        if one.type in FOREACH and not measured.on_device and not any(group.foreach for group in one.groups):
            return f"torch.optim.{one.type}(..., foreach=True); or {larger}"
    return f"{larger[0].upper()}{larger[1:]}"
