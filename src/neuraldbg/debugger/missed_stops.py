"""The stops that nobody can answer: each one's numbers are recorded in place of a prompt, and the training goes on."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuraldbg.debugger.frames import user_frame
from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST = 1_000
"""Stops that are recorded at most: one at each layer of each step would fill the disk."""
_TOLD = 3
"""Stops of one breakpoint that are reported one by one."""
_LOG = logging.getLogger("neuraldbg")


class MissedStops:
    """Reports and records the stops of a session that nobody could answer.

    ``file`` returns the run file, None in memory: beside ``rank0.ndbg`` they are written to ``stops.jsonl``, one JSON
    object for each, beside ``rank3.ndbg`` to ``stops-rank3.jsonl``. ``statistics`` returns those of the first tensor of
    a value, {} without one.
    """

    def __init__(self, file: Callable[[], Path | None], statistics: Callable[[Any], Mapping[str, float]]) -> None:
        self._file, self._statistics = file, statistics
        self._counts: dict[str, int] = {}
        self._recorded = 0

    def ignores(self, breakpoint_name: str) -> bool:
        """Return True if no further stop of a breakpoint is recorded or reported."""
        return self._recorded >= MOST and self._counts.get(breakpoint_name, 0) >= _TOLD

    def add(
        self,
        title: str,
        where: str,
        reason: str,
        names: Mapping[str, Any],
        scalars: Mapping[str, float],
        breakpoint_name: str,
    ) -> dict[str, dict[str, float]]:
        """Record a stop with the numbers of its tensors, and say that it was none. Return the numbers by the names of
        the tensors.
        """
        count = self._counts[breakpoint_name] = self._counts.get(breakpoint_name, 0) + 1
        numbers: dict[str, dict[str, float]] = {}
        for name in ("inputs", "output", "grad"):
            if names[name] is not None and (found := self._statistics(names[name])):
                numbers[name] = dict(found)
        frame = user_frame()
        row = {
            "stop": title,
            "at": where,
            "reason": reason,
            "step": names["step"],
            "layer": names["layer_name"],
            "line": f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else None,
            "loss": names["loss"],
            "statistics": numbers,
            "scalars": dict(scalars),
        }
        file = self._write(row)
        if count > _TOLD:
            return numbers
        told = "".join(f" {name}: {', '.join(filter(None, in_words(found)))}." for name, found in numbers.items())
        saved = f" Recorded in {file}." if file else ""
        last = " Further stops of it are not reported." if count == _TOLD else ""
        _LOG.warning(
            "neuraldbg: '%s' does not stop at %s: %s. The training goes on.%s%s%s",
            title,
            where,
            reason,
            told,
            saved,
            last,
        )
        return numbers

    def _write(self, row: Mapping[str, Any]) -> str:
        """Append a stop to the file. Return its path; "" if it was not written."""
        run = self._file()
        self._recorded += 1
        if run is None or self._recorded > MOST:
            return ""
        path = run.with_name("stops.jsonl" if run.stem == "rank0" else f"stops-{run.stem}.jsonl")
        with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(jsonable(row), allow_nan=False) + "\n")
            return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
        return ""


def in_words(numbers: Mapping[str, float]) -> tuple[str, str]:
    """Write the statistics of a tensor in words: how many values it has and how many of them are not finite; the
    moments of those that are, "" if none is.
    """
    total, bad = int(numbers["total"]), int(numbers["nonfinite"])
    counts = f"{total:,} values, {bad:,} NaN or infinite, {int(numbers['zeros']):,} zero"
    told = ("mean", "std", "rms", "min", "max", "absmax", "norm")
    return counts, "  ".join(f"{one} {numbers[one]:.4g}" for one in told) if total > bad else ""
