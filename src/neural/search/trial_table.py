"""A `Result` as text: the trials, the best values as they stand in the file, and where the runs are."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from neural.search.trial_result import DONE

if TYPE_CHECKING:
    from neural.search.trial_result import Result, Trial

LONGEST = 60
"""Characters of a cause in the table."""


def printed(result: Result) -> str:
    """Return the lines that a search prints at its end."""
    if not result.trials:
        return f"{result.file}: the search was interrupted before its first trial ended"
    labels = list(dict.fromkeys(label for trial in result.trials for label in trial.values))
    rows = [("trial", *labels, result.objective, "verdict", "first cause")]
    rows += [_row(trial, labels) for trial in result.trials]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_head(result), ""]
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row[:-2], widths, strict=False)]
        cells += [f"{row[-2]:<{widths[-2]}}", row[-1]]
        lines.append(("  " + "  ".join(cells)).rstrip())
    best = result.best
    if best is None:
        lines += ["", "  No trial came to a good end: see the first causes."]
    else:
        lines += ["", f"  best: trial {best.number}, {result.objective} {_number(best.objective)}; in the file:"]
        lines += [f"    {line}" for line in best.source.split("\n")]
    folder = shlex.quote(str(result.folder))
    return "\n".join([*lines, "", f"  runs: {result.folder}; compare them: neuraldbg dashboard {folder}"])


def _head(result: Result) -> str:
    count = len(result.trials)
    done = sum(trial.state == DONE for trial in result.trials)
    words = f"{count} trial" if count == 1 else f"{count} trials"
    aim = "the highest" if result.maximized else "the lowest"
    ended = ", interrupted" if result.interrupted else ""
    searched = f"{words} by {result.method} search for {aim} {result.objective}"
    return f"{result.file}: {searched}, {done} without a failure{ended}"


def _row(trial: Trial, labels: list[str]) -> tuple[str, ...]:
    values = [_number(trial.values[label]) if label in trial.values else "-" for label in labels]
    cause = trial.cause if len(trial.cause) <= LONGEST else trial.cause[: LONGEST - 3] + "..."
    verdict = trial.verdict or trial.state
    return (str(trial.number), *values, _number(trial.objective), verdict, cause)


def _number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
