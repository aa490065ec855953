"""What is known of a run's batches and of the experiments on its models: readings that the causes of data share."""

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
    """Return the newest BATCHES fact of each model that was trained, that with the most passes first."""
    return tuple(sorted(case.run.known_each(BatchesFact), key=lambda fact: -fact.passes))


def _judged(case: Case, kind: type[E]) -> list[tuple[int, E]]:
    """Return the judged experiments of a kind with their steps, oldest first."""
    return [(step, one) for step, one in case.run.versions(ExperimentFact) if isinstance(one, kind)]


def experiments(case: Case, kind: type[E]) -> tuple[E, ...]:
    """Return every experiment of a kind that could be judged, oldest first."""
    return tuple(one for _, one in _judged(case, kind))


def agreed(case: Case, kind: type[E], said: Callable[[E], object]) -> E | None:
    """Return the first experiment for which ``said`` was true, of a model for which no later one denied it.

    An experiment that finds the same again is not logged again.
    """
    found = _judged(case, kind)
    for step, one in found:
        later = [other for at, other in found if at > step and other.model == one.model]
        if said(one) and all(said(other) for other in later):
            return one
    return None


def birth(case: Case, *phases: str) -> NonfiniteBirth | None:
    """Return where the first non-finite value was born, if that was found out and lies in one of these phases."""
    return next((one for one in experiments(case, NonfiniteBirth) if one.phase in phases), None)


GROWS = (
    "mm", "bmm", "baddbmm", "mul", "add", "sub", "sum", "pow", "exp", "linear", "convolution", "dot", "mv", "einsum",
    "matmul", "square", "mean", "cumsum", "mkldnn", "scaled_dot", "to_copy",
)  # fmt: skip
"""Operations whose result overflows where a number format ends, and not because they have no finite value there."""


def outgrown(case: Case, step: int) -> NonfiniteBirth | None:
    """Return the birth of the first non-finite value at that step, if a float16 result of a sum, product or power of
    finite values was it: these have a finite value in a wider format.
    """
    born = birth(case, "forward")
    if born is None or born.dtype != "float16" or not beside(born, step):
        return None
    return born if born.op.strip("_").startswith(GROWS) else None


def beside(born: NonfiniteBirth, step: int) -> bool:
    """Return True if a non-finite value was born in that step or in one next to it."""
    return born.step is not None and abs(born.step - step) <= 1


def place(where: SourceLine | None) -> str:
    """Write a line of code as " (model.py line 12)", empty for None."""
    if where is None:
        return ""
    file = where.file.replace("\\", "/").rpartition("/")[2]
    return f" ({file} line {where.number})"
