"""A corpus of training programs with what is wrong with each: programs enter, diagnoses leave.

Two kinds stand side by side. Functions of ``programs/``, registered by ``@program(...)``, and ordinary scripts: the
healthy ones of ``corpus/tasks/`` and the edits of ``injectors/``, each of which makes one fault (or one training that
only looks faulty) out of a healthy script. ``watch`` runs either under the real front door.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import random
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tests.faults import edits
from tests.faults.golden import Golden, Grade, golden
from tests.faults.golden import grade as golden_grade

from neuraldbg import Diagnosis, NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neuraldbg.nouns import RunRecord

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
    "wiring",
    "targets",
    "target_order",
    "data_flow",
    "dynamics",
    "loop_order",
    "structure",
)
"""Modules of tests.faults.programs."""


@dataclass(frozen=True)
class Program:
    """A training and what is known to be wrong with it."""

    name: str
    run: Callable[[], None]
    """Trains. Scripts read their seed from ``sys.argv``."""
    task: str
    """The healthy training that it is a variant of; for a function the kind of model."""
    golden: Golden
    family: str
    """The module that holds it."""
    text: str = ""
    """Of a script, its source."""
    raises: bool = False
    """Whether it ends with an exception."""

    @property
    def cause(self) -> tuple[str, ...]:
        return self.golden.every


PROGRAMS: dict[str, Program] = {}


def program(
    kind: str,
    cause: str | tuple[str, ...] = (),
    *,
    layer: str | tuple[str, ...] | None = None,
    step: int | None = None,
    verdict: str | tuple[str, ...] = "",
    tolerated: str | tuple[str, ...] = (),
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function; a verdict that is not given is ``healthy``, or ``failing`` or ``suspect`` with a cause."""

    def register(run: Callable[[], None]) -> Callable[[], None]:
        assert run.__name__ not in PROGRAMS, run.__name__
        family = run.__module__.rpartition(".")[2]
        one = golden(cause, layer=layer, step=step, verdict=verdict, tolerated=tolerated)
        PROGRAMS[run.__name__] = Program(run.__name__, run, kind, one, family)
        return run

    return register


def load() -> dict[str, Program]:
    """Return every program by name: functions first, then scripts."""
    for family in FAMILIES:
        importlib.import_module(f"tests.faults.programs.{family}")
    functions, texts = dict(PROGRAMS), load_scripts()
    assert not functions.keys() & texts.keys(), functions.keys() & texts.keys()
    return functions | texts


def load_scripts() -> dict[str, Program]:
    """Return the scripts alone."""
    return {
        one.name: Program(one.name, one.run, one.task, one.golden, one.family, one.text, one.raises)
        for one in edits.every().values()
    }


def record(one: Program, seed: int = 0, capture: Mapping[str, Any] | None = None) -> tuple[RunRecord, Diagnosis]:
    """Run a program under the front door, single-threaded, and return what was recorded and said of it.

    ``capture`` are settings of capture that differ from the defaults.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the generator that people's scripts draw from)
    random.seed(seed)
    argv = sys.argv
    sys.argv = [f"{one.name}.py", "--seed", str(seed)]
    debugger = NeuralDbg(discover=True, settings={"capture": dict(capture or {})})
    # A function stops at an error that it expects; a script at whatever it meets, as it would in a shell.
    expected: tuple[type[BaseException], ...] = (
        (Exception, SystemExit) if one.text else (FloatingPointError, RuntimeError, ValueError)
    )
    try:
        with warnings.catch_warnings(), contextlib.suppress(*expected), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            with debugger:
                one.run()
    finally:
        sys.argv = argv
        torch.set_num_threads(threads)
    return debugger.record(), debugger.diagnose()


def watch(one: Program, seed: int = 0) -> Diagnosis:
    """Run a program under the front door and return the diagnosis."""
    return record(one, seed)[1]


def grade(one: Program, diagnosis: Diagnosis) -> Grade:
    """Compare a diagnosis with what is known of the program."""
    return golden_grade(one.golden, diagnosis)
