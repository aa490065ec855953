"""Tables: `.csv` and `.parquet`, a row for each sample, read by pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neural.data.samples import Found
from neural.errors import DataUnfit, MissingPackage

if TYPE_CHECKING:
    from pathlib import Path

    from neural.plan import Plan

KINDS = (".csv", ".parquet")
TARGETS = ("y", "target", "targets", "label", "labels", "class")
"""Names of the column of targets, in any case; without one of them it is the last column."""
_SHOWN = 8


def opened(path: Path, plan: Plan) -> Found:
    """Return the columns of a table; those of several inputs begin with the names of these."""
    table = _read(path)
    names = list(table.column_names)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataUnfit(f"{path} has two columns {twice!r}: rename one of them")
    if len(names) < 2 or not table.num_rows:
        raise DataUnfit(
            f"{path} has {len(names)} columns and {table.num_rows} rows: there must be features and targets"
        )
    target = next((name for name in names if name.strip().lower() in TARGETS), names[-1])
    features = [name for name in names if name != target]
    targets, classes = _targets(path, target, table.column(target))
    notes = [f"the targets are the column {target!r}"]
    if classes:
        shown = ", ".join(f"{name} {number}" for number, name in enumerate(classes[:_SHOWN]))
        notes.append(f"classes by number: {shown}{', ...' if len(classes) > _SHOWN else ''}")
    columns = {name: _numbers(path, name, table.column(name)) for name in features}
    return Found(_by_input(path, columns, plan), targets, str(path), classes=classes, notes=tuple(notes))


def _read(path: Path) -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 (of the extra)
        from pyarrow import csv, parquet  # noqa: PLC0415
    except ImportError:
        raise MissingPackage("pyarrow") from None
    try:
        with path.open("rb") as file:
            return csv.read_csv(file) if path.suffix.lower() == ".csv" else parquet.read_table(file)
    except OSError as error:
        raise DataUnfit(f"{path} cannot be read: {error.strerror or error}") from None
    except (pa.ArrowException, ValueError) as error:
        raise DataUnfit(f"{path} cannot be read: {error}") from None


def _numbers(path: Path, name: str, column: Any) -> np.ndarray[Any, Any]:
    _complete(path, name, column)
    values: np.ndarray[Any, Any] = column.to_numpy()
    if values.dtype.kind not in "buif":
        raise DataUnfit(
            f"{path}: the column {name!r} holds {column.type}, and features are numbers: encode it, or leave it out"
        )
    return values.astype(np.float64)


def _complete(path: Path, name: str, column: Any) -> None:
    if column.null_count:
        row = column.is_null().to_numpy().argmax()
        raise DataUnfit(
            f"{path}: the column {name!r} has {column.null_count} missing values, the first in row {row + 1}: fill "
            "them, or leave these rows out"
        )


def _targets(path: Path, name: str, column: Any) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """Return the targets, and the names of classes if they are words."""
    _complete(path, name, column)
    values = column.to_numpy(zero_copy_only=False) if not hasattr(column, "chunks") else column.to_numpy()
    if values.dtype.kind in "buif":
        return values, ()
    words = np.array([str(value) for value in values])
    classes, numbers = np.unique(words, return_inverse=True)
    return numbers, tuple(classes.tolist())


def _by_input(path: Path, columns: dict[str, np.ndarray[Any, Any]], plan: Plan) -> dict[str, np.ndarray[Any, Any]]:
    if len(plan.inputs) == 1:
        return {"x": np.stack(list(columns.values()), axis=1)}
    found = {}
    for each in plan.inputs:
        own = [values for name, values in columns.items() if name == each.name or name.startswith(f"{each.name}_")]
        if not own:
            raise DataUnfit(f"{path} has no column for the input {each.name}: its columns begin with {each.name}_")
        found[each.name] = np.stack(own, axis=1)
    return found
