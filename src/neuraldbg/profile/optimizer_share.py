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
    yield Bottleneck("optimizer", text, _remedy(kinds), share)


def _remedy(kinds: list[str]) -> str:
    larger = "give more samples to a step: a larger batch_size, or several backward passes for one step"
    for kind in kinds:
        if kind in FUSED:
            return f"torch.optim.{kind}(..., fused=True); or {larger}"
        if kind in FOREACH:
            return f"torch.optim.{kind}(..., foreach=True); or {larger}"
    return f"{larger[0].upper()}{larger[1:]}"
