"""Does the model in eval mode give the same output twice for the same input?

``F.dropout(x, 0.5)`` drops by default whatever the mode is. Noise that is meant to be there (the sample of a VAE, a
stochastic policy) is told apart by the operation that draws it, which is named with the user's file and line.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg.capture.experiment import SEED, Bench, Experiment
from neuraldbg.capture.frames import Place, user_place
from neuraldbg.capture.twin import Unfit

_DRAWS = ("native_dropout", "bernoulli", "rand", "normal", "uniform", "multinomial", "exponential", "poisson",
          "randperm", "rrelu")  # fmt: skip


class _Draws(TorchDispatchMode):
    """Writes down which operations draw random numbers, and where they stand in the user's code."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[tuple[str, Place | None], None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1].rstrip("_")  # noqa: SLF001 (an operator's only name)
        if name.startswith(_DRAWS) and len(self.found) < 8:
            self.found.setdefault((name, user_place()))
        return func(*args, **(kwargs or {}))


def run(bench: Bench) -> dict[str, Any] | None:
    """Call the twin twice with other random numbers; where the outputs differ, find who draws."""
    first, second = bench.call(seed=SEED), bench.call(seed=SEED + 1)
    if [name for name, _ in first] != [name for name, _ in second] or not first:
        raise Unfit("its output has no fixed form")
    moved = any(a.shape != b.shape or not torch.equal(a, b) for (_, a), (_, b) in zip(first, second, strict=True))
    if not moved:
        return {"random": False, "draws": []}
    draws = _Draws()
    with draws:
        bench.call()
    return {"random": True, "draws": [{"op": op, "where": list(where) if where else None} for op, where in draws.found]}


EXPERIMENT = Experiment("eval_random", run, forwards=3)
