"""A corpus of training programs with what is wrong with each: programs enter, goldens and grades leave.

A program is an ordinary function that builds and trains something. ``@program(...)`` registers it with its golden.
``watch`` runs one under the real front door and ``grade`` compares the diagnosis with the golden.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from neuraldbg import Diagnosis, NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable

FAMILIES = (
    "healthy",
    "scary",
    "unclear",
    "loop",
    "loss",
    "data",
    "optimisation",
    "architecture",
    "precision",
    "second",
)
"""Modules of tests.faults.programs."""
NEAR = 2
"""Steps by which the first step of a cause may be off."""


@dataclass(frozen=True)
class Program:
    """A training and what is known to be wrong with it."""

    name: str
    run: Callable[[], None]
    kind: str
    """Of model: mlp, convnet, transformer, lstm, autoencoder, ..."""
    cause: tuple[str, ...] = ()
    """The right answers (more than one where they cannot be told apart); empty for a healthy training."""
    layer: str | None = None
    """The guilty layer, None where no single one is."""
    step: int | None = None
    """When the cause was first at work, None where that is not defined."""
    verdicts: tuple[str, ...] = ("healthy",)


@dataclass(frozen=True)
class Grade:
    """What a diagnosis got right; None for what the golden leaves open."""

    verdict: bool
    cause: bool
    layer: bool | None = None
    step: bool | None = None
    said: str = ""
    wrong: tuple[str, ...] = field(default=())

    @property
    def right(self) -> bool:
        return not self.wrong


PROGRAMS: dict[str, Program] = {}


def program(
    kind: str,
    cause: str | tuple[str, ...] = (),
    *,
    layer: str | None = None,
    step: int | None = None,
    verdict: str | tuple[str, ...] = "",
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a training; a verdict that is not given is ``healthy``, or ``failing`` or ``suspect`` with a cause."""
    causes = (cause,) if isinstance(cause, str) else cause
    verdicts = (verdict,) if isinstance(verdict, str) and verdict else tuple(verdict)
    verdicts = verdicts or (("failing", "suspect") if causes else ("healthy",))

    def register(run: Callable[[], None]) -> Callable[[], None]:
        assert run.__name__ not in PROGRAMS, run.__name__
        PROGRAMS[run.__name__] = Program(run.__name__, run, kind, causes, layer, step, verdicts)
        return run

    return register


def load() -> dict[str, Program]:
    """Return every program by name."""
    for family in FAMILIES:
        importlib.import_module(f"tests.faults.programs.{family}")
    return PROGRAMS


def watch(one: Program, seed: int = 0) -> Diagnosis:
    """Run a program under the front door, single-threaded, and return the diagnosis."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    debugger = NeuralDbg(discover=True)
    try:
        with warnings.catch_warnings(), contextlib.suppress(FloatingPointError, RuntimeError):
            warnings.simplefilter("ignore")
            with debugger:
                one.run()
    finally:
        torch.set_num_threads(threads)
    return debugger.diagnose()


def grade(one: Program, diagnosis: Diagnosis) -> Grade:
    """Compare a diagnosis with the golden. Any hypothesis at all is an alarm where nothing is wrong."""
    top = diagnosis.hypotheses[0] if diagnosis.hypotheses else None
    verdict = diagnosis.verdict in one.verdicts
    said = diagnosis.verdict
    if top is not None:
        said += f": {top.cause} {top.confidence:.2f} at {top.layer or '-'} step {top.step}"
    if not one.cause:
        sure = top is not None and top.confidence >= 0.5
        cause = top is None if one.verdicts == ("healthy",) else not sure
        layer = step = None
    else:
        cause = top is not None and top.cause in one.cause and top.confidence >= 0.5
        layer = None if one.layer is None else top is not None and top.layer == one.layer
        found = top.step if top is not None else None
        step = None if one.step is None else found is not None and abs(found - one.step) <= NEAR
    checks = {"verdict": verdict, "cause": cause, "layer": layer, "step": step}
    return Grade(verdict, cause, layer, step, said, tuple(name for name, good in checks.items() if good is False))
