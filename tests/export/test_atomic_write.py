"""What is written appears whole or not at all, and replaces nothing unasked."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from neuraldbg.errors import ConfigError, ExportFailed, NeuralDbgError, UnknownLayer
from neuraldbg.export import EXPORTERS, Selection, export
from neuraldbg.nouns import RunRecord

FORMS = [member.name for member in EXPORTERS]


@pytest.fixture(scope="module")
def diagnosis(short):
    return short.diagnose()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_replaced_unasked(short, diagnosis, tmp_path, form):
    target = export(short, diagnosis, tmp_path / "out", form)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="--force"):
        export(RunRecord(), diagnosis, target, form)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    export(RunRecord(), diagnosis, target, form, force=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} != before
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("form", FORMS)
def test_missing_folders_are_made(short, diagnosis, tmp_path, form):
    target = export(short, diagnosis, tmp_path / "new" / "folder" / "out", form)
    assert target.exists()
    assert names(tmp_path / "new" / "folder") == ["out"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("late", [False, True])
def test_a_failure_leaves_what_was_there(short, diagnosis, tmp_path, monkeypatch, form, late):
    """A full disk, at the first byte of a member and after its last."""
    target = export(short, diagnosis, tmp_path / "out", form)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    member = next(one for one in EXPORTERS if one.name == form)

    def fail(run, diagnosis, selection, path):
        if late:
            member.write(run, diagnosis, selection, path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    changed = tuple(replace(one, write=fail) for one in EXPORTERS)
    monkeypatch.setattr("neuraldbg.export.EXPORTERS", changed)
    with pytest.raises(ExportFailed, match="No space left on device") as caught:
        export(short, diagnosis, target, form, force=True)
    assert isinstance(caught.value, NeuralDbgError)
    with pytest.raises(ExportFailed):
        export(short, diagnosis, tmp_path / "new" / "folder" / "other", form)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert names(tmp_path) == ["out"]


def test_ctrl_c_leaves_nothing(short, diagnosis, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("neuraldbg.export.csv.write_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export(short, diagnosis, tmp_path / "out", "csv")
    assert names(tmp_path) == []


def test_a_folder_that_holds_something_else_is_never_replaced(short, diagnosis, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for force in (False, True):
        with pytest.raises(ConfigError, match=r"holds something else \('thesis.tex'\)"):
            export(short, diagnosis, tmp_path, "csv", force=force)
    assert names(tmp_path) == ["thesis.tex"]


def test_a_run_file_is_never_replaced(short, diagnosis, tmp_path):
    file = tmp_path / "rank0.ndbg"
    file.write_text("a run")
    with pytest.raises(ConfigError, match="is a run file"):
        export(short, diagnosis, file, "json", force=True)
    assert file.read_text() == "a run"


def test_places_that_cannot_be(short, diagnosis, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path, form, said in (
        (tmp_path / "file" / "out.json", "json", "file is not a folder"),
        (tmp_path / "folder", "json", "is not a file"),
        (tmp_path / "file", "csv", "is not a folder"),
        (tmp_path / "out", "excel", "no format 'excel': choose one of crash, csv"),
    ):
        with pytest.raises(ConfigError, match=said):
            export(short, diagnosis, path, form, force=True)
    with pytest.raises(ConfigError, match="not a name"):
        export(short, diagnosis, "", "json")
    assert names(tmp_path) == ["file", "folder"]


def test_choices_that_cannot_be(short, diagnosis, tmp_path):
    with pytest.raises(UnknownLayer):
        export(short, diagnosis, tmp_path / "out", "csv", Selection(("nowhere",)))
    with pytest.raises(ConfigError, match="no statistic 'average'"):
        export(short, diagnosis, tmp_path / "out", "csv", Selection(stats=("average",)))
    with pytest.raises(ConfigError, match="csv, parquet, perfetto, tensorboard do"):
        export(short, diagnosis, tmp_path / "out", "json", Selection(stats=("rms",)))
    assert names(tmp_path) == []


def test_formats_are_sorted_and_their_folders_hold_what_they_say(short, diagnosis, tmp_path):
    assert sorted(FORMS) == FORMS
    for member in EXPORTERS:
        target = export(short, diagnosis, tmp_path / member.target, member.name)
        assert target.is_dir() == bool(member.files)
