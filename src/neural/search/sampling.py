"""Proposals for trials: optuna's random and Bayesian (TPE) samplers, and all points of a grid in a random order.

optuna's own grid needs all values before the first trial; here one choice may decide what else there is to choose.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from neural.errors import MissingPackage, NeuralError

if TYPE_CHECKING:
    from collections.abc import Callable

    from neural.plan import Search

POINTS = 5
"""Points of a grid in a range without steps, or of more whole numbers than these."""
MOST_POINTS = 1000
"""Points of a whole grid."""


class Proposal(Protocol):
    """Gives the values of one trial, and takes what came of it."""

    def value(self, label: str, search: Search) -> Any:
        """Return a value for what a search may choose."""

    def tell(self, objective: float | None) -> None:
        """Take the objective, None for a trial that was pruned or failed."""


class Sampler(Protocol):
    """Gives one proposal after another."""

    def proposal(self) -> Proposal | None:
        """Return the next proposal, None after the last one of a grid."""


# ---------------------------------------------------------------- optuna


class OptunaSampler:
    """Proposes values by optuna. MissingPackage is raised if it is not installed."""

    def __init__(self, method: str, seed: int, trials: int, *, maximized: bool) -> None:
        try:
            import optuna  # noqa: PLC0415 (of the extra `hpo`)
        except ImportError:
            raise MissingPackage("optuna", "'neuraldbg[hpo]'", f"the search {method!r}") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._pruned = optuna.trial.TrialState.PRUNED
        first = max(3, min(10, trials // 3))  # random ones, from which the others follow
        samplers = optuna.samplers
        chosen = (
            samplers.RandomSampler(seed)
            if method == "random"
            else samplers.TPESampler(seed=seed, n_startup_trials=first)
        )
        self._study = optuna.create_study(sampler=chosen, direction="maximize" if maximized else "minimize")

    def proposal(self) -> Proposal:
        return _OptunaProposal(self._study, self._study.ask(), self._pruned)


@dataclass
class _OptunaProposal:
    study: Any
    trial: Any
    pruned: Any

    def value(self, label: str, search: Search) -> Any:
        if search.kind == "choice":  # by its place: optuna takes neither tuples nor calls
            return search.values[self.trial.suggest_categorical(label, list(range(len(search.values))))]
        low, high, step = search.values
        log = search.kind == "log_range"
        if whole(search):
            wide = low + (high - low) // (step or 1) * (step or 1)
            return self.trial.suggest_int(label, low, wide, log=log, **({} if log else {"step": step or 1}))
        if step is not None and not log:  # by its number, as sums of steps miss the end
            number = self.trial.suggest_int(label, 0, math.floor((high - low) / step + 1e-9))
            return rounded(low + number * step, low, high)
        return rounded(self.trial.suggest_float(label, low, high, log=log), low, high)

    def tell(self, objective: float | None) -> None:
        if objective is None:
            self.study.tell(self.trial, state=self.pruned)
        else:
            self.study.tell(self.trial, objective)


# ---------------------------------------------------------------- a grid


class GridSampler:
    """Proposes all points of a grid in a random order, which the seed decides."""

    def __init__(self, seed: int, visit: Callable[[Proposal], None]) -> None:
        """`visit` makes one check with a proposal: what it asks for is what there is to choose."""
        points: list[tuple[int, ...]] = []
        after: list[int] | None = []
        while after is not None:
            walk = _GridProposal(tuple(after))
            visit(walk)
            points.append(tuple(walk.taken))
            after = _following(walk)
            if len(points) > MOST_POINTS:
                raise NeuralError(
                    f"the grid has more than {MOST_POINTS:,} points: search by random or bayesian, or for fewer values"
                )
        random.Random(seed).shuffle(points)  # noqa: S311 (no secret)
        self._points = iter(points)
        self.size = len(points)

    def proposal(self) -> Proposal | None:
        point = next(self._points, None)
        return None if point is None else _GridProposal(point)


@dataclass
class _GridProposal:
    path: tuple[int, ...]
    """The number of the value of each choice, in the order in which they are asked; the first value after its end."""
    taken: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def value(self, label: str, search: Search) -> Any:
        del label
        values = grid_values(search)
        at = self.path[len(self.taken)] if len(self.taken) < len(self.path) else 0
        self.taken.append(at)
        self.counts.append(len(values))
        return values[at]

    def tell(self, objective: float | None) -> None:
        """Take what came of it: a grid does not depend on that."""


def _following(walk: _GridProposal) -> list[int] | None:
    """Return the path after that of a walk, as an odometer counts; None after the last one."""
    path = list(walk.taken)
    while path:
        if path[-1] + 1 < walk.counts[len(path) - 1]:
            path[-1] += 1
            return path
        path.pop()
    return None


def grid_values(search: Search) -> list[Any]:
    """Return the values of a choice, the steps of a range, or points in it at equal distances or ratios."""
    if search.kind == "choice":
        return list(search.values)
    low, high, step = search.values
    if step is not None and search.kind == "range":
        count = math.floor((high - low) / step + 1e-9) + 1
        if count > MOST_POINTS:
            raise NeuralError(f"a range of {count:,} steps is too many for a grid: search by random or bayesian")
        found = [low + number * step for number in range(count)]
    elif whole(search) and high - low < POINTS:
        found = list(range(low, high + 1))
    else:
        shares = [number / (POINTS - 1) for number in range(POINTS)]
        log = search.kind == "log_range"
        found = [low * (high / low) ** share if log else low + share * (high - low) for share in shares]
    numbers = [round(each) for each in found] if whole(search) else [rounded(each, low, high) for each in found]
    return list(dict.fromkeys(numbers))


def whole(search: Search) -> bool:
    """Return True if a range has whole numbers only."""
    low, high, step = search.values
    return all(isinstance(each, int) for each in (low, high, step if step is not None else 0))


def rounded(value: float, low: float, high: float) -> float:
    """Return a number that a person would write, within its range."""
    return min(max(float(f"{value:.6g}"), low), high)
