"""Readings of a run's batches and of the experiments on its models, shared by the causes of data."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from neuraldbg.nouns.facts.batches import BatchesFact
from neuraldbg.nouns.facts.experiment import ExperimentFact, NonfiniteBirth

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns.facts.kinds import SourceLine

E = TypeVar("E", bound=ExperimentFact)


def batches(case: Case) -> tuple[BatchesFact, ...]:
    """Return the newest BATCHES fact of each trained model, the one with the most passes first."""
    return tuple(sorted(case.run.known_each(BatchesFact), key=lambda fact: -fact.passes))


def _judged(case: Case, kind: type[E]) -> list[tuple[int, E]]:
    """Return the judged experiments of a kind with their steps, oldest first."""
    return [(step, one) for step, one in case.run.versions(ExperimentFact) if isinstance(one, kind)]


def experiments(case: Case, kind: type[E]) -> tuple[E, ...]:
    """Return every experiment of a kind that could be judged, oldest first."""
    return tuple(one for _, one in _judged(case, kind))


def agreed(case: Case, kind: type[E], said: Callable[[E], object]) -> E | None:
    """Return the first experiment for which ``said`` is true, and is true of all later ones on the same model.

    An experiment that finds the same again is not logged again. None if there is no such experiment.
    """
    found = _judged(case, kind)
    for step, one in found:
        later = [other for at, other in found if at > step and other.model == one.model]
        if said(one) and all(said(other) for other in later):
            return one
    return None


def birth(case: Case, *phases: str) -> NonfiniteBirth | None:
    """Return the operation that gave the first non-finite value, None if it is unknown or in none of these phases."""
    return next((one for one in experiments(case, NonfiniteBirth) if one.phase in phases), None)


GROWS = (
    "mm", "bmm", "baddbmm", "mul", "add", "sub", "sum", "pow", "exp", "linear", "convolution", "dot", "mv", "einsum",
    "matmul", "square", "mean", "cumsum", "mkldnn", "scaled_dot", "to_copy",
)  # fmt: skip
"""Operations that have a finite value for finite operands: their result overflows only where a number format ends."""


def outgrown(case: Case, step: int) -> NonfiniteBirth | None:
    """Return the origin of the first non-finite value near a step if it is the float16 result of a sum, product or
    power of finite values, which is finite in a wider format; else None.
    """
    born = birth(case, "forward")
    if born is None or born.dtype != "float16" or not beside(born, step):
        return None
    return born if born.op.strip("_").startswith(GROWS) else None


def beside(born: NonfiniteBirth, step: int) -> bool:
    """Return True if a non-finite value arose in a step or in one next to it."""
    return born.step is not None and abs(born.step - step) <= 1


def place(where: SourceLine | None) -> str:
    """Write a source line as " (model.py line 12)", empty for None."""
    if where is None:
        return ""
    file = where.file.replace("\\", "/").rpartition("/")[2]
    return f" ({file} line {where.number})"
