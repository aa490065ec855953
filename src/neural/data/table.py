"""Tables: `.csv`, `.tsv` and `.parquet`, a row for each sample, read by pyarrow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from neural.data.input_names import keyed
from neural.data.memory import within_memory
from neural.data.samples import Found
from neural.errors import DataUnfit, MissingPackage

if TYPE_CHECKING:
    from pathlib import Path

    from neural.data.samples import Array
    from neural.plan import Plan

KINDS = (".csv", ".tsv", ".parquet")
TARGETS = ("y", "target", "targets", "label", "labels", "class")
"""Names of the column of targets, in any case, the first of them first; without any it is the last column."""
_SEPARATORS = {";": "semicolons", "\t": "tabs"}
_INDEX = re.compile(r"|Unnamed: 0|__index_level_\d+__")
"""Names that pandas gives to the numbers of rows."""
_SHOWN = 8
_SCALES = 1000
"""How many times the smallest deviation, and the smallest largest value, the others may be."""
_FEWER = "give a file with fewer rows, or a .npz file"


def opened(path: Path, plan: Plan) -> Found:
    """Return the columns of a table; those of several inputs begin with the names of these."""
    notes: list[str] = []
    table = _read(path, notes)
    names = [str(name) for name in table.column_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataUnfit(f"{path} has two columns {twice!r}: rename one of them")
    names = [name for name in names if not _is_index(name, table.column(name), notes)]
    if len(names) < 2 or not table.num_rows:
        raise DataUnfit(
            f"{path} has {len(names)} columns and {table.num_rows} rows: there must be features and targets"
        )
    target = _target(names, notes)
    targets, classes = _targets(path, target, table.column(target))
    if classes:
        shown = ", ".join(f"{name} {number}" for number, name in enumerate(classes[:_SHOWN]))
        notes.append(f"classes by number: {shown}{', ...' if len(classes) > _SHOWN else ''}")
    features = [name for name in names if name != target]
    within_memory(table.num_rows * len(features) * 8, f"{table.num_rows:,} rows of {path}", _FEWER)
    columns = {name: _numbers(path, name, table.column(name)) for name in features}
    inputs = _by_input(path, columns, plan, notes)
    return Found(inputs, targets, str(path), classes=classes, notes=tuple(notes))


def _target(names: list[str], notes: list[str]) -> str:
    known = {name.strip().lower(): name for name in reversed(names)}
    named = [known[name] for name in TARGETS if name in known]
    if named:
        notes.append(f"the targets are the column {named[0]!r}")
        notes += [f"the column {other!r} is a feature, although its name is one of targets" for other in named[1:]]
        return named[0]
    notes.append(f"the targets are the column {names[-1]!r}, the last one: none is called y, target, label or class")
    return names[-1]


# ---------------------------------------------------------------- reading


def _read(path: Path, notes: list[str]) -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 (of the extra)
        from pyarrow import csv, parquet  # noqa: PLC0415
    except ImportError:
        raise MissingPackage("pyarrow") from None
    try:
        within_memory(path.stat().st_size, str(path), _FEWER)
        with path.open("rb") as file:
            if path.suffix.lower() == ".parquet":
                return parquet.read_table(file)
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            table = csv.read_csv(file, parse_options=csv.ParseOptions(delimiter=separator))
            other = next((each for each in _SEPARATORS if each in table.column_names[0]), None)
            if table.num_columns == 1 and other is not None:
                notes.append(f"the columns are separated by {_SEPARATORS[other]}")
                file.seek(0)
                separator = other
                table = csv.read_csv(file, parse_options=csv.ParseOptions(delimiter=separator))
            if _are_values(table.column_names):
                notes.append("the first row has numbers and no names: it is a sample, and columns are f0, f1, ...")
                file.seek(0)
                options = csv.ReadOptions(autogenerate_column_names=True)
                table = csv.read_csv(file, options, csv.ParseOptions(delimiter=separator))
            return table
    except OSError as error:
        raise DataUnfit(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise DataUnfit(f"{path} needs more memory than there is: {_FEWER}") from None
    except (pa.ArrowException, ValueError) as error:
        raise DataUnfit(f"{path} cannot be read: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _are_values(names: list[str]) -> bool:
    """Return True for a first row of numbers, but for its last value: 0, 1, 2, ... and years can be names, too."""
    numbers = [name for name in names if re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", name)]
    if len(numbers) == len(names):
        return names != [str(place) for place in range(len(names))]
    return len(numbers) >= max(len(names) - 1, 1) and any("." in name for name in numbers)


def _is_index(name: str, column: Any, notes: list[str]) -> bool:
    """Return True for a column of the numbers of rows, as pandas writes them."""
    if not _INDEX.fullmatch(name.strip()) or column.null_count:
        return False
    values = column.to_numpy()
    if values.dtype.kind not in "iu" or (name.startswith(("Unnamed", "__")) is False and name.strip()):
        return False
    if (np.diff(values.astype(np.int64)) != 1).any():
        return False
    notes.append(f"the column {name!r} counts the rows, and is left out")
    return True


# ---------------------------------------------------------------- columns


def _numbers(path: Path, name: str, column: Any) -> Array:
    _complete(path, name, column)
    values: Array = column.to_numpy()
    if values.dtype.kind not in "buif":
        raise DataUnfit(
            f"{path}: the column {name!r} holds {column.type}, and features are numbers: encode it, or leave it out"
        )
    return values.astype(np.float64)


def _complete(path: Path, name: str, column: Any) -> None:
    if column.null_count:
        raise _missing(path, name, column.null_count, int(column.is_null().to_numpy().argmax()))


def _missing(path: Path, name: str, count: int, first: int) -> DataUnfit:
    return DataUnfit(
        f"{path}: the column {name!r} has {count} missing values, the first in row {first + 1}: fill them, or leave "
        "these rows out"
    )


def _targets(path: Path, name: str, column: Any) -> tuple[Array, tuple[str, ...]]:
    """Return the targets, and the names of classes if they are words."""
    _complete(path, name, column)
    values = column.to_numpy()
    if values.dtype.kind in "buif":
        return values, ()
    if any(isinstance(value, (list, dict, np.ndarray)) for value in values[:1]):
        raise DataUnfit(f"{path}: the column {name!r} holds {column.type}, and targets are numbers or words")
    words = np.array([str(value).strip() for value in values])
    empty = words == ""
    if empty.any():
        raise _missing(path, name, int(empty.sum()), int(empty.argmax()))
    classes, numbers = np.unique(words, return_inverse=True)
    return numbers, tuple(classes.tolist())


def _notice_scales(columns: dict[str, Array], plan: Plan, notes: list[str]) -> None:
    """Notice columns of very different scales: the largest of them then decide alone for long."""
    if any(each.ids for each in plan.inputs):
        return
    finite = [values for values in columns.values() if np.isfinite(values).all() and values.std() > 0]
    deviations, largest = ([float(of(values)) for values in finite] for of in (np.std, lambda one: np.abs(one).max()))
    if len(finite) > 1 and min(max(each) / min(each) for each in (deviations, largest)) >= _SCALES:
        notes.append(
            f"the columns' standard deviations range from {min(deviations):.1g} to {max(deviations):.1g}, and stay as "
            "they are: bring each to a mean of 0 and a deviation of 1"
        )


def _by_input(path: Path, columns: dict[str, Array], plan: Plan, notes: list[str]) -> dict[str, Array]:
    _notice_scales(columns, plan, notes)
    if len(plan.inputs) == 1:
        return {"x": np.stack(list(columns.values()), axis=1)}
    names = {each.name for each in plan.inputs}
    owner = {}
    for column in columns:  # of `a` and `a_b`, the longer name has `a_b_1`
        fitting = [name for name in names if column == name or column.startswith(f"{name}_")]
        owner[column] = max(fitting, key=len, default="")
    found = {}
    for key, each in keyed(plan):
        own = [values for column, values in columns.items() if owner[column] == each.name]
        if not own:
            has = ", ".join(list(columns)[:_SHOWN])
            raise DataUnfit(
                f"{path} has no column for the input {each.name}: its columns begin with {each.name}_, and there are "
                f"{has}"
            )
        found[key] = np.stack(own, axis=1)
    unused = [column for column in columns if not owner[column]]
    if unused:
        notes.append(f"columns of no input are left out: {', '.join(unused[:_SHOWN])}")
    return found
