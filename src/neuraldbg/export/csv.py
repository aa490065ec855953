"""CSV: a folder of tables for a data frame or a spreadsheet, with a file that says what their columns mean.

A cell is empty where nothing was measured; ``NaN``, ``inf`` and ``-inf`` are measured values. Text that a spreadsheet
would take for a formula (it begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return) gets an apostrophe in
front, and so does text that begins with an apostrophe: to have the name as it was, drop one.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.export.exporter import Exporter
from neuraldbg.export.numbers import PLAIN, texts
from neuraldbg.export.tables import Words, about, tables
from neuraldbg.nouns.csv import harmless

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.export.exporter import Selection
    from neuraldbg.export.tables import Table, Values
    from neuraldbg.nouns import Diagnosis, RunRecord


def write(run: RunRecord, diagnosis: Diagnosis, selection: Selection, path: Path) -> None:
    """Write a file for each table, and ``about.json``, into a folder."""
    told = about(run, diagnosis)
    told["tables"] = {}
    for table in tables(run, diagnosis, selection):
        write_table(table, path / f"{table.name}.csv")
        told["tables"][table.name] = {
            one.name: {"type": one.type, "unit": one.unit, "meaning": one.meaning} for one in table.columns
        }
    text = json.dumps(told, allow_nan=False, indent=1)
    (path / "about.json").write_text(text + "\n", encoding="utf-8")


def write_table(table: Table, path: Path) -> None:
    """Write one table as a file."""
    with path.open("w", encoding="utf-8", newline="") as opened:
        out = csv.writer(opened, lineterminator="\n")
        out.writerow([one.name for one in table.columns])
        for chunk in table.chunks():
            out.writerows(zip(*map(_cells, chunk), strict=True))


def _cells(values: Values) -> list[str]:
    if isinstance(values, Words):
        words = np.array([harmless(word) for word in values.words] or [""], object)
        cells: list[str] = words[values.codes].tolist()
        return cells
    mask = np.ma.getmaskarray(values)
    if mask.all():
        return [""] * len(mask)
    data = values.data
    found = texts(data, PLAIN) if data.dtype.kind == "f" else list(map(str, data.tolist()))
    for at in np.flatnonzero(mask).tolist():
        found[at] = ""
    return found


EXPORTER = Exporter(
    "csv",
    target="run-csv",
    write=write,
    selects=True,
    files=("*.csv", "about.json"),
)
