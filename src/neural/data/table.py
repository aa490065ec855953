"""Tables: `.csv`, `.tsv` and `.parquet`, a row for each sample, read by pyarrow."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from neural.data.input_names import keyed
from neural.data.memory import within_memory
from neural.data.samples import Found, counted
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
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_WORDS = {"string": "words", "large_string": "words", "null": "nothing"}
"""What columns of types of pyarrow hold."""


@dataclass(frozen=True)
class _Table:
    """Hold a table with the place of its rows in the file."""

    path: Path
    columns: Any
    above: int | None = None
    """The number of lines above the first row, None if the file has no lines."""

    def place(self, row: int) -> str:
        """Return where a row stands, counted from 0, in words."""
        if self.above is None:
            return f"row {row + 1}"
        with self.path.open("rb") as file:  # empty lines are no rows
            filled = (number for number, line in enumerate(file, 1) if line.strip(b"\r\n"))
            return f"line {next(islice(filled, row + self.above, None), row + self.above + 1)} of the file"


def opened(path: Path, plan: Plan) -> Found:
    """Return the columns of a table; those of several inputs begin with the names of these."""
    notes: list[str] = []
    read = _read(path, notes)
    table = read.columns
    names = [str(name) for name in table.column_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataUnfit(f"{path} has two columns {twice!r}: rename one of them")
    names = [name for name in names if not _is_index(name, table.column(name), notes)]
    if len(names) < 2 or not table.num_rows:
        has = f"{counted(len(names), 'column')} and {counted(table.num_rows, 'row')}"
        raise DataUnfit(f"{path} has {has}: there must be features and targets")
    target = _target(names, notes)
    targets, classes = _targets(read, target, table.column(target))
    if classes:
        shown = ", ".join(f"{name} {number}" for number, name in enumerate(classes[:_SHOWN]))
        notes.append(f"classes by number: {shown}{', ...' if len(classes) > _SHOWN else ''}")
    features = [name for name in names if name != target]
    within_memory(table.num_rows * len(features) * 8, f"{table.num_rows:,} rows of {path}", _FEWER)
    columns = {name: _numbers(read, name, table.column(name)) for name in features}
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


def _read(path: Path, notes: list[str]) -> _Table:
    try:
        import pyarrow as pa  # noqa: PLC0415 (of the extra)
        from pyarrow import csv, parquet  # noqa: PLC0415
    except ImportError:
        raise MissingPackage("pyarrow") from None
    try:
        within_memory(path.stat().st_size, str(path), _FEWER)
        with path.open("rb") as file:
            if path.suffix.lower() == ".parquet":
                return _Table(path, parquet.read_table(file))
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            encoding = _encoding(file, notes)
            options = csv.ReadOptions(encoding=encoding)
            table = csv.read_csv(file, options, csv.ParseOptions(delimiter=separator))
            other = next((each for each in _SEPARATORS if each in table.column_names[0]), None)
            if table.num_columns == 1 and other is not None:
                notes.append(f"the columns are separated by {_SEPARATORS[other]}")
                file.seek(0)
                separator = other
                table = csv.read_csv(file, options, csv.ParseOptions(delimiter=separator))
            if not _is_sample(table, notes):
                return _Table(path, table, 1)
            file.seek(0)
            options = csv.ReadOptions(encoding=encoding, autogenerate_column_names=True)
            return _Table(path, csv.read_csv(file, options, csv.ParseOptions(delimiter=separator)), 0)
    except OSError as error:
        raise DataUnfit(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise DataUnfit(f"{path} needs more memory than there is: {_FEWER}") from None
    except (pa.ArrowException, ValueError) as error:
        raise DataUnfit(f"{path} cannot be read: {_one_line(error)}") from None


def _encoding(file: BinaryIO, notes: list[str]) -> str:
    """Return how the characters are written: Latin-1 can be read from any bytes, so it is what is no UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for block in iter(lambda: file.read(1 << 20), b""):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        notes.append("the file is no UTF-8, and was read as Latin-1")
        return "latin-1"
    finally:
        file.seek(0)
    return "utf8"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]} ..."


# ---------------------------------------------------------------- the first row


def _is_sample(table: Any, notes: list[str]) -> bool:
    """Return True if the first row, which was read as names, is a sample.

    It is one if each of its cells could stand in its column: a number where there are numbers, and no word that is the
    name of targets. Two kinds of names look so, too: pandas's 0, 1, 2, ... and years beside a word. They are samples
    only if the columns have such cells: all of the first, one of the second.
    """
    names = [str(name) for name in table.column_names]
    pairs = list(zip(names, table.columns, strict=True))
    numbers = [name for name in names if _NUMBER.fullmatch(name)]
    words = [name.strip().lower() for name in names if not _NUMBER.fullmatch(name)]
    named = len(words) > len(numbers) or any(name in {"", *TARGETS} for name in words)
    if named or not all(_could_stand(*pair) for pair in pairs):
        return False
    usual = [_is_usual(*pair) for pair in pairs]
    counts = numbers == [str(place) for place in range(len(numbers))]
    whole = not any("." in name for name in numbers)
    if (counts and not all(usual)) or (words and whole and not any(usual)):
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        notes.append(f"the first row ({shown}) was taken as names: if it is a sample, write names above it")
        return False
    has = "numbers where its columns have numbers" if words else "numbers and no names"
    notes.append(f"the first row has {has}: it is a sample, and columns are f0, f1, ...")
    return True


def _could_stand(name: str, column: Any) -> bool:
    """Return True if a cell of the first row has the kind of its column: a number, or a word."""
    kind = str(column.type)
    if kind in {"bool", "null"}:
        return kind == "null" or name.strip().lower() in {"true", "false"}
    return bool(_NUMBER.fullmatch(name)) == (kind not in {"string", "large_string"})


def _is_usual(name: str, column: Any) -> bool:
    """Return True if a cell is one of its column's words, or a whole number within its column's."""
    values = column.drop_null().to_numpy()
    if values.dtype.kind in "iu":
        return bool(len(values)) and bool(values.min() <= float(name) <= values.max())
    return values.dtype.kind != "f" and name in values.tolist()


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


def _numbers(table: _Table, name: str, column: Any) -> Array:
    _complete(table, name, column)
    values: Array = column.to_numpy()
    if values.dtype.kind not in "buif":
        raise DataUnfit(
            f"{table.path}: the column {name!r} holds {_held(column)}, and features are numbers: encode it, or leave "
            "it out"
        )
    return values.astype(np.float64)


def _held(column: Any) -> str:
    kind = str(column.type)
    if kind.startswith(("date", "time")):
        return "dates or times"
    return _WORDS.get(kind, f"values of the type {kind}")


def _complete(table: _Table, name: str, column: Any) -> None:
    if column.null_count:
        raise _missing(table, name, column.null_count, int(column.is_null().to_numpy().argmax()))


def _missing(table: _Table, name: str, count: int, first: int) -> DataUnfit:
    lacks = f"{table.path}: the column {name!r} has"
    if count == 1:
        return DataUnfit(f"{lacks} no value in {table.place(first)}: fill it, or leave this row out")
    where = f"the first in {table.place(first)}"
    return DataUnfit(f"{lacks} {count:,} missing values, {where}: fill them, or leave these rows out")


def _targets(table: _Table, name: str, column: Any) -> tuple[Array, tuple[str, ...]]:
    """Return the targets, and the names of classes if they are words."""
    _complete(table, name, column)
    values = column.to_numpy()
    if values.dtype.kind in "buif":
        return values, ()
    if any(isinstance(value, (list, dict, np.ndarray)) for value in values[:1]):
        raise DataUnfit(f"{table.path}: the column {name!r} holds {_held(column)}, and targets are numbers or words")
    words = np.array([str(value).strip() for value in values])
    empty = words == ""
    if empty.any():
        raise _missing(table, name, int(empty.sum()), int(empty.argmax()))
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
