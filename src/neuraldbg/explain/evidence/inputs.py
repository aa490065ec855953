"""What is known of a run's batches and of the experiments on its models: readings that the causes of data share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case


def batches(case: Case) -> tuple[dict[str, Any], ...]:
    """Return the newest BATCHES fact of each model that was trained, that with the most passes first."""
    latest = {str(fact.value.get("model")): fact.value for fact in case.run.facts_of(FactKey.BATCHES.value)}
    return tuple(sorted(latest.values(), key=lambda fact: -int(fact.get("passes") or 0)))


def experiments(case: Case, name: str) -> tuple[tuple[int, dict[str, Any]], ...]:
    """Return (step, finding) of every experiment of that name that could be judged, oldest first."""
    found = case.run.facts_of(FactKey.EXPERIMENT.value, name=name)
    return tuple((fact.step, fact.value) for fact in found if fact.value.get("judged"))


def agreed(case: Case, name: str, field: str) -> tuple[int, dict[str, Any]] | None:
    """Return the first finding in which ``field`` was true, of a model for which no later one denied it.

    An experiment that finds the same again is not logged again.
    """
    found = experiments(case, name)
    for step, value in found:
        later = [other for at, other in found if at > step and other.get("model") == value.get("model")]
        if value.get(field) and all(other.get(field) for other in later):
            return step, value
    return None


def birth(case: Case, *phases: str) -> dict[str, Any] | None:
    """Return where the first non-finite value was born, if that was found out and lies in one of these phases."""
    found = [value for _, value in experiments(case, "nonfinite_birth") if value.get("phase") in phases]
    return found[0] if found else None


GROWS = (
    "mm", "bmm", "baddbmm", "mul", "add", "sub", "sum", "pow", "exp", "linear", "convolution", "dot", "mv", "einsum",
    "matmul", "square", "mean", "cumsum", "mkldnn", "scaled_dot", "to_copy",
)  # fmt: skip
"""Operations whose result overflows where a number format ends, and not because they have no finite value there."""


def outgrown(case: Case, step: int) -> dict[str, Any] | None:
    """Return the birth of the first non-finite value at that step, if a float16 result of a sum, product or power of
    finite values was it: these have a finite value in a wider format.
    """
    born = birth(case, "forward")
    if born is None or born.get("dtype") != "float16" or abs(int(born.get("step", -9)) - step) > 1:
        return None
    return born if str(born["op"]).strip("_").startswith(GROWS) else None


def place(where: Any) -> str:
    """Write a WHERE as " (model.py line 12)", empty for None."""
    if not isinstance(where, (list, tuple)) or len(where) < 2:
        return ""
    file = str(where[0]).replace("\\", "/").rpartition("/")[2]
    return f" ({file} line {int(where[1])})"
