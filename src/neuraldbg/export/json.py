"""JSON: the whole record and its diagnosis as one strict document, which ``Run.load`` reads back.

    {"schema": "neuraldbg.run/1", "run": {...}, "recorded": 45, "diagnosis": {...},
     "layout": {"layers": [...], "sites": [...], "edges": [...], "called": [...]},
     "facts": [...], "events": [...], "bins": ["-Infinity", -4294967296.0, ...],
     "histograms": [{"step": 0, "sites": [[0, 58, 3, 17, 40, ...], ...]}, ...],
     "stats": ["total", "count", ...], "scalars": ["loss", ...],
     "steps": [
      {"step": 0, "width": 1, "stream": 0, "time": 0.61, "applied": true, "scalars": {"loss": 2.31, ...},
       "sites": [[0, 4096, 4096, 0, 0.013, ...], ...]},
      ...]}

``recorded`` counts the optimizer steps of the run. An element of ``steps`` stands for ``width`` steps from ``step`` on.
An element of its ``sites`` is the place of a site in ``layout.sites``, and then its statistics in the order of
``stats``; where the width is more than 1 they are means (of ``nonfinite`` the sum), and ``low`` and ``high`` hold the
extremes in the same way. Sites that were not read are left out, scalars that were not measured are, too. ``time`` is
in seconds since ``run.started``, a Unix time. Each element of ``steps`` is a line, so that it can be read in passing.
Bin i of a histogram is from ``bins[i]`` to ``bins[i + 1]``. Its site is given as the place of the site, the first bin
that is not empty, and how many elements that were read are in this bin and those that follow.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.export.exporter import Exporter
from neuraldbg.export.numbers import JSON, texts
from neuraldbg.export.tables import measured
from neuraldbg.nouns import EDGES, RUN_SCHEMA, STATS, column, jsonable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from neuraldbg.export.exporter import Selection
    from neuraldbg.nouns import Diagnosis, History, RunRecord, Slab


def write(run: RunRecord, diagnosis: Diagnosis, selection: Selection, path: Path) -> None:
    """Write the document, a step at a time."""
    del selection  # it holds the whole run
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for number, (key, value) in enumerate(_head(run, diagnosis).items()):
            out.write(f"{',' if number else '{'}\n{_dumps(key)}: {_dumps(value)}")
        out.write(',\n"steps": [')
        for number, line in enumerate(_lines(run.history)):
            out.write(f"{',' if number else ''}\n{line}")
        out.write("\n]}\n")


def _head(run: RunRecord, diagnosis: Diagnosis) -> dict[str, Any]:
    layout = run.layout
    parts = {"layers": layout.layers, "sites": layout.sites, "edges": layout.edges, "called": layout.called}
    return {
        "schema": RUN_SCHEMA,
        "run": run.info,
        "recorded": run.steps,
        "diagnosis": diagnosis.to_dict(),
        "layout": parts,
        "facts": [{"step": fact.step, "key": str.__str__(fact.key), "value": fact.value} for fact in run.facts],
        "events": run.events,
        "bins": EDGES.tolist(),
        "histograms": [{"step": each.step, "sites": each.to_lists()} for each in run.histograms],
        "stats": STATS,
        "scalars": list(run.history.scalars),
    }


def _dumps(value: Any) -> str:
    return json.dumps(jsonable(value), allow_nan=False, separators=(",", ":"))


def _lines(history: History) -> Iterator[str]:
    """Yield the element of each row of time, with its table if it has one."""
    known = {name: measured(history, name) for name in history.scalars}
    done = 0
    for slab in history.slabs():
        for row, table in zip(slab.rows.tolist(), _tables(history, slab), strict=True):
            yield from (_line(history, before, known) for before in range(done, row))
            yield _line(history, row, known, table)
            done = row + 1
    yield from (_line(history, row, known) for row in range(done, len(history)))


def _line(history: History, row: int, known: Mapping[str, Any], table: str = "") -> str:
    body = {
        "step": int(history.steps[row]),
        "width": int(history.width[row]),
        "stream": int(history.stream[row]),
        "time": float(history.time[row]),
        "applied": bool(history.applied[row]),
        "scalars": {name: float(values[row]) for name, values in history.scalars.items() if known[name][row]},
    }
    return f"{_dumps(body)[:-1]}{table}}}"


def _tables(history: History, slab: Slab) -> list[str]:
    """Return the text of the tables of each row, for its element."""
    seen = slab.high[:, :, column("count")] > 0
    mean = _arrays(slab.mean, seen)
    thinned = history.width[slab.rows] > 1
    if not thinned.any():
        return [f',"sites":[{sites}]' for sites in mean]
    low, high = _arrays(slab.low, seen & thinned[:, None]), _arrays(slab.high, seen & thinned[:, None])
    return [
        f',"sites":[{sites}]' + (f',"low":[{least}],"high":[{most}]' if wide else "")
        for sites, least, most, wide in zip(mean, low, high, thinned.tolist(), strict=True)
    ]


def _arrays(tables: Any, seen: Any) -> list[str]:
    """Convert tables (R, S, K) and masks (R, S) to R texts, each with an array for every site that was read."""
    at, site = np.nonzero(seen)
    columns = [list(map(str, site.tolist())), *(texts(tables[at, site, k], JSON) for k in range(len(STATS)))]
    found = ["[" + ",".join(numbers) + "]" for numbers in zip(*columns, strict=True)]
    ends = np.searchsorted(at, np.arange(len(tables) + 1)).tolist()
    return [",".join(found[first:last]) for first, last in pairwise(ends)]


EXPORTER = Exporter("json", target="run.json", write=write)
