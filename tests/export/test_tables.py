"""CSV and Parquet: every number of the record, read back by Python's csv and by pyarrow."""

from __future__ import annotations

import csv
import json
import math
import sys
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.export import record_oracle, recorded_runs

from neuraldbg.errors import MissingExtra
from neuraldbg.export import Selection, export, parquet
from neuraldbg.nouns import SCALARS, STATS, Site, column
from neuraldbg.nouns.csv import harmless


@pytest.fixture(scope="module")
def sheets(run, diagnosis, tmp_path_factory):
    """The CSV files, each as its rows."""
    folder = export(run, diagnosis, tmp_path_factory.mktemp("csv") / "out", "csv")
    found = {}
    for path in folder.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as opened:
            found[path.stem] = list(csv.DictReader(opened))
    found["about"] = json.loads((folder / "about.json").read_text())
    return found


@pytest.fixture(scope="module")
def arrow(run, diagnosis, tmp_path_factory):
    """The Parquet files."""
    folder = export(run, diagnosis, tmp_path_factory.mktemp("parquet") / "out", "parquet")
    return {path.stem: pq.ParquetFile(path) for path in folder.glob("*.parquet")}


def place(row):
    return int(row["step"]), int(row["width"]), int(row["stream"]), float(row["time_s"])


def test_csv_has_each_number_of_each_site_that_was_read(run, sheets):
    history, wanted = run.history, record_oracle.seen(run)
    assert len(sheets["sites"]) == len(wanted)
    for row, (at, site) in zip(sheets["sites"], wanted, strict=True):
        where, width = run.layout.sites[site], int(history.width[at])
        assert place(row) == (history.steps[at], width, history.stream[at], history.time[at])
        assert (row["kind"], int(row["call"]), row["name"]) == (where.kind, where.call, where.name)
        assert row["layer"] == ("'" if where.module.startswith("=") else "") + where.module
        for k, stat in enumerate(STATS):
            assert record_oracle.same(np.float32(row[stat]), history.mean[at, site, k])
            for end, table in (("low", history.low), ("high", history.high)):
                cell = row[f"{stat}_{end}"]
                assert cell == "" if width == 1 else record_oracle.same(np.float32(cell), table[at, site, k])


def test_csv_is_read_by_numpy(run, diagnosis, tmp_path):
    folder = export(run, diagnosis, tmp_path / "out", "csv", Selection(stats=("rms",)))
    found = np.genfromtxt(folder / "steps.csv", delimiter=",", names=True)
    own = [row for row in range(len(run.history)) if record_oracle.scalars(run, row)]
    np.testing.assert_array_equal(found["loss"], run.history.scalars["loss"][own])
    np.testing.assert_array_equal(found["width"], run.history.width[own])


def test_csv_tells_what_was_not_measured_from_what_was_nan(run, sheets):
    own = [row for row in range(len(run.history)) if record_oracle.scalars(run, row)]
    assert len(sheets["steps"]) == len(own)
    blank = 0
    for row, at in zip(sheets["steps"], own, strict=True):
        wanted = record_oracle.scalars(run, at)
        for name in run.history.scalars:
            blank += row[name] == ""
            assert (row[name] != "") == (name in wanted)
            assert row[name] == "" or record_oracle.same(float(row[name]), wanted[name])
        assert row["applied"] == str(bool(run.history.applied[at]))
    assert blank
    assert sheets["steps"][-1]["loss"] == "NaN"


def test_csv_events_layers_and_what_columns_mean(run, diagnosis, sheets):
    assert [row["kind"] for row in sheets["events"]] == [event.kind for event in diagnosis.events]
    assert [int(row["first_step"]) for row in sheets["events"]] == [event.first_step for event in diagnosis.events]
    assert all(isinstance(json.loads(row["details"]), dict) for row in sheets["events"])
    assert {row["layer"].lstrip("'") for row in sheets["layers"]} == set(run.layout.by_path)
    about = sheets["about"]
    assert (about["schema"], about["verdict"]) == ("neuraldbg.tables/1", diagnosis.verdict)
    for name, columns in about["tables"].items():
        assert list(columns) == list(sheets[name][0])
    assert about["tables"]["steps"]["duration"] == {"type": "float", "unit": "s", "meaning": SCALARS["duration"]}


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1"])
def test_no_spreadsheet_runs_a_name(text):
    assert harmless(text) == f"'{text}"
    assert harmless(text)[1:] == text
    assert harmless(f"a{text}") == f"a{text}"


def test_names_in_csv_are_those_of_the_program(sheets):
    found = {row["layer"] for row in sheets["layers"]}
    assert {"'=1+1", *recorded_runs.NAMES[1:]} <= found


def test_parquet_has_the_same_with_types(run, arrow):
    history, wanted = run.history, np.array(record_oracle.seen(run))
    at, site = wanted.T
    table = arrow["sites"].read()
    assert {str(field.type) for field in table.schema if field.name in STATS} == {"float"}
    for name, values in (("step", history.steps), ("width", history.width), ("time_s", history.time)):
        np.testing.assert_array_equal(table[name].to_numpy(), values[at])
    sites = [run.layout.sites[one] for one in site]
    for name, part in (("kind", "kind"), ("layer", "module"), ("name", "name"), ("call", "call")):
        assert table[name].to_pylist() == [getattr(one, part) for one in sites]
    single = history.width[at] == 1
    for k, stat in enumerate(STATS):
        np.testing.assert_array_equal(table[stat].to_numpy(), history.mean[at, site, k])
        for end, values in (("low", history.low), ("high", history.high)):
            cells = table[f"{stat}_{end}"]
            assert cells.is_null().to_pylist() == single.tolist()
            np.testing.assert_array_equal(cells.drop_null().to_numpy(), values[at, site, k][~single])


def test_parquet_scalars_null_and_nan_are_two_things(run, arrow):
    table = arrow["steps"].read()
    own = [row for row in range(len(run.history)) if record_oracle.scalars(run, row)]
    assert table.num_rows == len(own)
    for name in run.history.scalars:
        for cell, at in zip(table[name].to_pylist(), own, strict=True):
            wanted = record_oracle.scalars(run, at)
            assert cell is None if name not in wanted else record_oracle.same(cell, wanted[name])
    assert math.isnan(table["loss"][-1].as_py())


def test_histograms_have_each_bin_of_the_record(run, sheets, arrow):
    wanted = list(record_oracle.bins(run))
    assert len({step for step, *_ in wanted}) == len(run.histograms) > 3
    table = arrow["histograms"].read().to_pylist()
    assert len(table) == len(sheets["histograms"]) == len(wanted)
    for typed, row, (step, site, *ends, count) in zip(table, sheets["histograms"], wanted, strict=True):
        where = run.layout.sites[site]
        assert (typed["step"], typed["kind"], typed["layer"]) == (step, where.kind, where.module)
        assert ([typed["lower"], typed["upper"]], typed["count"]) == (ends, count)
        assert [float(row["lower"]), float(row["upper"]), int(row["count"])] == [*ends, count]


def test_parquet_says_what_it_is_about(run, diagnosis, arrow):
    for name, file in arrow.items():
        told = {key.decode(): value.decode() for key, value in file.schema_arrow.metadata.items()}
        assert told["neuraldbg.schema"] == "neuraldbg.tables/1"
        assert told["neuraldbg.summary"] == diagnosis.summary
        assert json.loads(told["neuraldbg.run"])["started"] == run.info.started
        assert all(field.metadata[b"meaning"] for field in file.schema_arrow), name
    assert arrow["steps"].schema_arrow.field("duration").metadata[b"unit"] == b"s"


def test_parquet_is_written_in_row_groups(run, diagnosis, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP", 500)
    file = pq.ParquetFile(export(run, diagnosis, tmp_path / "out", "parquet") / "sites.parquet")
    assert file.num_row_groups > 3
    assert file.read()["step"].to_pylist() == [int(run.history.steps[at]) for at, _ in record_oracle.seen(run)]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_selection_is_what_is_written(run, diagnosis, tmp_path, form):
    folder = export(run, diagnosis, tmp_path / "out", form, Selection(("=1+1",), ("rms", "max")))
    if form == "parquet":
        rows = pq.read_table(folder / "sites.parquet").to_pylist()
    else:
        with (folder / "sites.csv").open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
    assert {row["layer"].lstrip("'") for row in rows} == {"=1+1"}
    assert [name.partition("_")[0] for name in rows[0]][8:] == ["rms", "max", "rms", "rms", "max", "max"]
    assert len(rows) == sum(run.layout.sites[site].module == "=1+1" for _, site in record_oracle.seen(run))


def test_a_run_without_thinned_steps_has_no_columns_for_them(short, tmp_path):
    folder = short.export(tmp_path / "out", "csv")
    head = (folder / "sites.csv").read_text().partition("\n")[0].split(",")
    assert head[8:] == list(STATS)


@pytest.mark.parametrize("form", ["csv", "parquet", "json", "perfetto", "tensorboard"])
def test_text_that_is_no_unicode_is_written_as_escapes(short, diagnosis, tmp_path, form):
    sites = (Site("activation", "a\ud800"), *short.layout.sites[1:])
    strange = replace(short, layout=replace(short.layout, sites=sites))
    said = replace(diagnosis, summary="a layer a\ud800")
    assert export(strange, said, tmp_path / "out", form).exists()


def test_without_pyarrow(run, diagnosis, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[export\]'"):
        export(run, diagnosis, tmp_path / "out", "parquet")
    assert list(tmp_path.iterdir()) == []


def test_slabs_are_the_tables_of_the_record(run):
    history, found = run.history, []
    for slab in history.slabs():
        found += slab.rows.tolist()
        for part, whole in ((slab.mean, history.mean), (slab.low, history.low), (slab.high, history.high)):
            np.testing.assert_array_equal(part, whole[slab.rows])
    assert found == np.flatnonzero(history.read).tolist()
    plain = [slab.rows for slab in replace(history).slabs()]
    assert np.concatenate(plain).tolist() == found
    assert column("count") == record_oracle.COUNT
