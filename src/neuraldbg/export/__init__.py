"""The export of a run and its diagnosis to files that other tools read, one module for each format.

- ``exporter.py``: the contract of an exporter, and the selection of sites and statistics
- ``atomic_write.py``: files that appear whole or not at all
- ``csv.py``, ``parquet.py``, ``tables.py``: tables for a data frame
- ``json.py``, ``session.py``: the whole record as one document
- ``perfetto.py``, ``spans.py``: a trace over time
- ``tensorboard.py``: a log folder for TensorBoard
- ``crash.py``: the crash dump of the flight recorder
- ``numbers.py``: numbers as text
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError
from neuraldbg.export.atomic_write import replacing
from neuraldbg.export.crash import EXPORTER as CRASH
from neuraldbg.export.csv import EXPORTER as CSV
from neuraldbg.export.exporter import Exporter, Selection
from neuraldbg.export.json import EXPORTER as JSON
from neuraldbg.export.parquet import EXPORTER as PARQUET
from neuraldbg.export.perfetto import EXPORTER as PERFETTO
from neuraldbg.export.session import EXPORTER as SESSION
from neuraldbg.export.tensorboard import EXPORTER as TENSORBOARD

if TYPE_CHECKING:
    import os

    from neuraldbg.nouns import Diagnosis, RunRecord

__all__ = ["EXPORTERS", "Exporter", "Selection", "export", "exporter"]

EXPORTERS = (CRASH, CSV, JSON, PARQUET, PERFETTO, SESSION, TENSORBOARD)
"""All exporters, sorted by name."""


def exporter(name: str) -> Exporter:
    """Return the exporter of a format. An unknown name raises ConfigError."""
    for member in EXPORTERS:
        if member.name == name:
            return member
    raise ConfigError(f"there is no format {name!r}: choose one of {', '.join(member.name for member in EXPORTERS)}")


def export(
    run: RunRecord,
    diagnosis: Diagnosis,
    path: str | os.PathLike[str],
    name: str = "json",
    selection: Selection | None = None,
    *,
    force: bool = False,
) -> Path:
    """Write a run in a format and return the path. An existing export is replaced only with ``force``.

    An invalid path, format or selection raises ConfigError, a missing package MissingExtra, a failed write
    ExportFailed. In all of these cases nothing is left behind.
    """
    member, selection, target = exporter(name), selection or Selection(), Path(path)
    if not member.selects and (selection.layers or selection.stats):
        choosing = ", ".join(one.name for one in EXPORTERS if one.selects)
        raise ConfigError(f"{member.name} holds the whole run and takes no layer or statistic: {choosing} do")
    selection.rows(run)
    selection.columns()
    with replacing(target, member.files, force=force) as partial:
        member.write(run, diagnosis, selection, partial)
    return target
