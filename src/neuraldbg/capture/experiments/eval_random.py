"""An experiment: does the model in eval mode give the same output twice for the same input?

``F.dropout(x, 0.5)`` drops by default whatever the mode is. Intended noise (the sample of a VAE, a stochastic policy)
is distinguished by the operation that draws it, which is named with the user's file and line.
"""

from __future__ import annotations

import linecache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg.capture.experiments.experiment import SEED, Bench, Experiment
from neuraldbg.capture.guest.purity import Unfit
from neuraldbg.capture.guest.user_code import Place, user_place

_DRAWS = ("native_dropout", "bernoulli", "rand", "normal", "uniform", "multinomial", "exponential", "poisson",
          "randperm", "rrelu")  # fmt: skip
_LINES = 8
"""Source lines that a call may span."""


class _Draws(TorchDispatchMode):
    """Records the operations that draw random numbers, and their places in the user's code."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[tuple[str, Place | None], None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1].rstrip("_")  # noqa: SLF001 (an operator's only name)
        if name.startswith(_DRAWS) and len(self.found) < 8:
            self.found.setdefault((name, user_place()))
        return func(*args, **(kwargs or {}))


def run(bench: Bench) -> dict[str, Any] | None:
    """Call the copy twice with different random numbers; if the outputs differ, record the drawing operations."""
    first, second = bench.call(seed=SEED), bench.call(seed=SEED + 1)
    if [name for name, _ in first] != [name for name, _ in second] or not first:
        raise Unfit("its output has no fixed form")
    moved = any(a.shape != b.shape or not torch.equal(a, b) for (_, a), (_, b) in zip(first, second, strict=True))
    if not moved:
        return {"random": False, "draws": []}
    draws = _Draws()
    with draws:
        bench.call()
    found = [{"op": op, "where": list(where) if where else None, "call": _call(where)} for op, where in draws.found]
    return {"random": True, "draws": found}


def _call(where: Place | None) -> str:
    """Return the source of the drawing statement, from its line to the line where its brackets close."""
    if where is None:
        return ""
    text = ""
    for line in range(int(where[1]), int(where[1]) + _LINES):
        text += linecache.getline(str(where[0]), line).strip()
        if text.count("(") <= text.count(")"):
            break
    return (text or str(where[2]))[:400]


EXPERIMENT = Experiment("eval_random", run, forwards=3)
