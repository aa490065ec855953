"""Trainings whose profile the tests of this room look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from neuraldbg import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from neuraldbg.nouns.facts.timing import LayerTiming, TimingFact

STEPS = 12


def train(
    model: nn.Module,
    batch: Callable[[], Any],
    loss: Callable[[Any], Tensor] = lambda output: output.square().mean(),
    steps: int = STEPS,
    **options: Any,
) -> TimingFact:
    """Train a model with a profile, and return its TIMING fact."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, **{"profile": True, **options}) as dbg:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(batch())).backward()
            optimizer.step()
    return timing_of(dbg)


def timing_of(dbg: NeuralDbg) -> TimingFact:
    """Return the TIMING fact of a session."""
    timing = dbg.profile().timing
    assert timing is not None
    return timing


def layers_of(timing: TimingFact) -> dict[str, LayerTiming]:
    """Return the layers by path."""
    return {one.layer: one for one in timing.layers}
