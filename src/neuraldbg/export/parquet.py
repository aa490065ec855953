"""Parquet: the tables of the CSV export as typed columns, in row groups, each file with what it is about.

A value is null where nothing was measured, which is not the same as NaN. Needs pyarrow, of the extra ``export``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.errors import MissingExtra
from neuraldbg.export.exporter import Exporter
from neuraldbg.export.tables import Words, about, tables, utf8

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from neuraldbg.export.exporter import Selection
    from neuraldbg.export.tables import Table, Values
    from neuraldbg.nouns import Diagnosis, RunRecord

GROUP = 1 << 16
"""Approximate number of rows of a row group."""


def write(run: RunRecord, diagnosis: Diagnosis, selection: Selection, path: Path) -> None:
    """Write a file for each table into a folder."""
    try:
        import pyarrow as pa  # noqa: PLC0415 (an extra)
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("the parquet format", "export") from None

    told = {f"neuraldbg.{name}": _text(value) for name, value in about(run, diagnosis).items()}
    for table in tables(run, diagnosis, selection):
        schema = _schema(pa, table, told)
        with pq.ParquetWriter(path / f"{table.name}.parquet", schema, compression="zstd") as out:
            waiting: list[Any] = []
            for chunk in table.chunks():
                arrays = [_array(pa, values) for values in chunk]
                waiting.append(pa.Table.from_arrays(arrays, schema=schema))
                if sum(map(len, waiting)) >= GROUP:
                    out.write_table(_joined(pa, waiting))
                    waiting.clear()
            if waiting:
                out.write_table(_joined(pa, waiting))


def _text(value: Any) -> str:
    return utf8(value) if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _schema(pa: Any, table: Table, told: Mapping[str, str]) -> Any:
    types = {
        "int": pa.int64(),
        "float": pa.float64(),
        "float32": pa.float32(),
        "bool": pa.bool_(),
        "text": pa.dictionary(pa.int32(), pa.string()),
    }
    fields = [
        pa.field(
            one.name, types[one.type], metadata={"meaning": one.meaning, **({"unit": one.unit} if one.unit else {})}
        )
        for one in table.columns
    ]
    return pa.schema(fields, metadata=told)


def _array(pa: Any, values: Values) -> Any:
    if isinstance(values, Words):
        return pa.DictionaryArray.from_arrays(values.codes, pa.array(values.words, pa.string()))
    return pa.array(values.data, mask=np.ma.getmaskarray(values))


def _joined(pa: Any, parts: list[Any]) -> Any:
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()


EXPORTER = Exporter(
    "parquet",
    target="run-parquet",
    write=write,
    selects=True,
    files=("*.parquet",),
)
