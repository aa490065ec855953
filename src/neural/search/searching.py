"""The search itself: values are proposed, a network is trained with them, and NeuralDBG judges the training."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neural.check.checker import checked
from neural.errors import CheckFailed, DataUnfit, NeuralError, SourceError, nearest
from neural.language.reader import read
from neural.plan import SEARCHES
from neural.preparing import Wanted, prepare
from neural.search.one_trial import Outcome, trained
from neural.search.sampling import GridSampler, OptunaSampler
from neural.search.search_space import Chosen
from neural.search.trial_result import DONE, FAILED, INTERRUPTED, PRUNED, Result, Trial, finite
from neural.workspace import Workspace, write_whole
from neuraldbg.cli.run import RUNS, free_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from neural.language.tree import SourceFile
    from neural.plan import Plan
    from neural.search.sampling import Proposal, Sampler

USUAL, TRIALS = SEARCHES[0], 10
LOWER = ("loss", "error", "mae", "mse", "rmse", "msle", "mape", "divergence", "crossentropy", "perplexity", "hinge")
"""Parts of the names of numbers that are better if they are lower."""


def is_lower_better(number: str) -> bool:
    """Return True for a loss or an error, whose trials are compared by the lowest value."""
    return any(part in number for part in LOWER)


def searched(
    file: str | Path,
    wanted: Wanted | None = None,
    *,
    trials: int | None = None,
    method: str | None = None,
    objective: str | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Train a network with several values of its searches, and return every trial.

    `trials` is their number: 10, or all points of a grid, if it is None. `method` is `random`, `bayesian` or `grid`; by
    default what `search_method` in `train` says, or random. `objective` is the number after the last epoch that is
    compared: by default `val_loss`, or `loss` without validation. The seed of `wanted` decides both the values and the
    trainings. Runs are saved in folders of `folder`, by default a new one in `neuraldbg-runs`; `say` takes a line for
    each trial.

    A trial that crashes, whose loss is not finite or whose diagnosis is failing is one of the trials, and never the
    best. Ctrl-C ends the search and keeps what there is. NeuralError is raised if the file has nothing to search for,
    or for a method or an objective that there is not.
    """
    wanted, source = wanted or Wanted(), read(file)
    plan = checked(source, wanted.network)
    if not plan.searches:
        raise NeuralError(
            f"{file}: the network {plan.name} has nothing to search for: write HPO(choice(32, 64)), HPO(range(1, 9)) "
            "or HPO(log_range(1e-4, 1e-2)) in the place of a value"
        )
    method = _known("search", method or plan.training.get("search_method") or USUAL, SEARCHES)
    objective = _known("objective", objective or _numbers(plan)[0], _numbers(plan))
    seed = wanted.training(plan)["seed"] or 0
    wanted = replace(wanted, seed=seed)
    maximized = not is_lower_better(objective)
    count = trials or TRIALS
    sampler: Sampler
    if method == "grid":
        grid = GridSampler(seed, lambda proposal: _visit(source, wanted, proposal))
        sampler, count = grid, min(trials or grid.size, grid.size)
    else:
        sampler = OptunaSampler(method, seed, count, maximized=maximized)
    folder = folder or free_folder(Path(RUNS), f"{Path(file).stem}-search", time.localtime())
    if next(folder.glob("trial-*"), None) is not None:
        raise NeuralError(f"{folder} holds the trials of a search already: name another folder")
    found: list[Trial] = []

    def trial(number: int, proposal: Proposal) -> Trial:
        found.append(_trial(number, proposal, source, wanted, objective, folder))
        say(_line(found[-1], count, objective))
        return found[-1]

    interrupted = _all_trials(sampler, count, trial)
    return Result(str(file), method, objective, maximized, tuple(found), folder, interrupted=interrupted)


def _all_trials(sampler: Sampler, count: int, trial: Callable[[int, Proposal], Trial]) -> bool:
    """Try what the sampler proposes. Return True if Ctrl-C has ended it."""
    try:
        for number in range(1, count + 1):
            proposal = sampler.proposal()
            if proposal is None:
                return False
            if trial(number, proposal).state == INTERRUPTED:
                return True
    except KeyboardInterrupt:  # between two trainings
        return True
    return False


def _trial(number: int, proposal: Proposal, source: SourceFile, wanted: Wanted, objective: str, above: Path) -> Trial:
    """Train once with proposed values, and tell the sampler what came of it."""
    chosen = Chosen(source.text, proposal.value)
    folder, workspace = above / f"trial-{number:03}", Workspace()
    stem = Path(source.file).stem
    state, value, verdict, cause = FAILED, None, "", ""
    try:
        prepared = prepare(source.file, wanted, choose=chosen.choose, name=f"{stem}-search")
    except SourceError as error:  # values that do not fit each other
        place = error.problems[0]
        cause = f"line {place.span.line}: {place.message}"
    except DataUnfit as error:
        if number == 1:  # as it will be in every trial
            raise
        cause = str(error)
    else:
        # All trials have the same data, and each has its own program, by whose name its run is known.
        script = workspace.path(f"{stem}-trial-{number:03}.py")
        write_whole(script, prepared.script.read_bytes())
        arguments = [str(Path(each).absolute()) if each.endswith(".npz") else each for each in prepared.arguments]
        outcome = trained(script, arguments, folder, prepared.watched)
        state, value, cause = _judged(outcome, objective)
        verdict = outcome.verdict
    proposal.tell(value if state == DONE else None)
    return Trial(number, chosen.values, state, value, verdict, cause, folder, chosen.source())


def _judged(outcome: Outcome, objective: str) -> tuple[str, float | None, str]:
    """Return the state of a trial, its objective, and its first cause or why it failed."""
    value = outcome.numbers.get(objective)
    if outcome.interrupted:
        return INTERRUPTED, value, "Ctrl-C"
    if outcome.status != 0:
        ended = f"signal {-outcome.status}" if outcome.status < 0 else f"exit status {outcome.status}"
        return FAILED, value, f"crashed with {ended}: {outcome.said}" if outcome.said else f"crashed with {ended}"
    if value is None:
        return FAILED, None, f"the training gave no {objective}"
    if not finite(value):
        return PRUNED, value, outcome.cause or f"{objective} is {value}"
    if outcome.verdict == "failing":
        return PRUNED, value, outcome.cause
    return DONE, value, outcome.cause


def _visit(source: SourceFile, wanted: Wanted, proposal: Proposal) -> None:
    with suppress(CheckFailed):  # values that do not fit each other are a trial that fails
        checked(source, wanted.network, choose=Chosen(source.text, proposal.value).choose)


def _numbers(plan: Plan) -> tuple[str, ...]:
    """Return the names of the numbers that a training gives after each epoch, the usual objective first."""
    from neural.pytorch.metrics_code import metric_functions  # noqa: PLC0415 (beside the code that it is about)

    metrics = tuple(metric_functions(plan))
    if plan.training["validation_split"]:
        return ("val_loss", *(f"val_{name}" for name in metrics), "loss")
    return ("loss", *metrics)


def _known(what: str, name: Any, known: tuple[str, ...]) -> str:
    if name not in known:
        near = nearest(str(name), known)
        raise NeuralError(
            f"there is no {what} {str(name)!r}: give one of {', '.join(known)}"
            + (f"; did you mean {near}?" if near else "")
        )
    return str(name)


def _line(trial: Trial, count: int, objective: str) -> str:
    values = ", ".join(f"{label}={value}" for label, value in trial.values.items())
    got = f"{objective} {trial.objective:.4g}" if trial.objective is not None else ""
    got = got if trial.state == DONE else ", ".join(filter(None, (trial.state, got)))
    return f"trial {trial.number} of {count}: {values}: {got}" + (f" ({trial.cause})" if trial.cause else "")
