"""``neuraldbg export`` as a person types it."""

from __future__ import annotations

import json

import pytest

from neuraldbg.cli import main
from neuraldbg.cli.export import FORMATS, SELECTING
from neuraldbg.export import EXPORTERS
from neuraldbg.saved import Run


def test_the_help_names_every_format(capsys):
    assert tuple(member.name for member in EXPORTERS) == FORMATS
    assert main(["export", "--help"]) == 0
    said = capsys.readouterr().out
    assert f"[{'|'.join(FORMATS)}]" in said.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("choice", [("--layer", "conv1"), ("--stat", "rms")])
def test_the_help_says_which_formats_take_a_selection(folder, tmp_path, capsys, form, choice):
    assert main(["export", "--help"]) == 0
    assert " ".join(capsys.readouterr().out.split()).count(f"Only for {SELECTING}: the others hold the whole run.") == 2
    taken = main(["export", str(folder), "--format", form, *choice, "-o", str(tmp_path / "out")]) == 0
    assert taken is (form in SELECTING.split(", "))


@pytest.mark.parametrize("form", FORMATS)
def test_it_writes_where_it_says(folder, tmp_path, capsys, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    target = next(member.target for member in EXPORTERS if member.name == form)
    assert main(["export", str(folder), "--format", form]) == 0
    assert capsys.readouterr().out == f"wrote {target}\n"
    assert (tmp_path / target).exists()
    assert main(["export", str(folder), "--format", form]) == 2
    assert capsys.readouterr().err == f"neuraldbg: {target} is already there: --force replaces it\n"
    assert main(["export", str(folder), "--format", form, "--force", "-o", target]) == 0


def test_a_session_is_explained_like_its_run(folder, tmp_path, capsys):
    assert main(["export", str(folder), "--format", "session", "-o", str(tmp_path / "s.json")]) == 0
    capsys.readouterr()
    assert main(["explain", str(folder)]) == 0
    told = capsys.readouterr().out
    assert main(["explain", str(tmp_path / "s.json")]) == 0
    assert capsys.readouterr().out == told
    assert json.loads((tmp_path / "s.json").read_text())["schema"] == "neuraldbg.run/1"


@pytest.mark.parametrize("form", ["json", "session"])
def test_an_export_without_a_suffix_is_read_again(folder, tmp_path, capsys, form):
    written = tmp_path / "new" / "folder" / "exported"
    assert main(["export", str(folder), "--format", form, "-o", str(written)]) == 0
    capsys.readouterr()
    assert main(["explain", str(folder)]) == 0
    told = capsys.readouterr().out
    assert main(["explain", str(written)]) == 0
    assert capsys.readouterr().out == told
    assert Run.load(written).steps == Run.load(folder).steps


def test_a_text_that_is_no_run_is_refused(tmp_path, capsys):
    (tmp_path / "notes").write_text("learning rate: 0.1")
    assert main(["explain", str(tmp_path / "notes")]) == 2
    assert "is no NeuralDBG run file" in capsys.readouterr().err
    (tmp_path / "settings").write_text(' {"lr": 0.1}')
    assert main(["explain", str(tmp_path / "settings")]) == 2
    assert "is not an exported run" in capsys.readouterr().err


def test_choices(folder, tmp_path, capsys):
    out = str(tmp_path / "out")
    layer = Run.load(folder).layout.layers[0].path
    asked = ["export", str(folder), "--format", "csv", "-o", out, "--layer", layer, "--stat", "rms", "--stat", "max"]
    assert main(asked) == 0
    lines = (tmp_path / "out" / "sites.csv").read_text().splitlines()
    assert lines[0].endswith(",rms,max")
    assert {line.split(",")[5] for line in lines[1:]} == {layer}
    capsys.readouterr()
    assert main([*asked[:-1], "middle", "--force"]) == 2
    assert "there is no statistic 'middle'" in capsys.readouterr().err


def test_no_torch_and_no_extra_is_needed_for_text(place, folder):
    for name in ("torch", "pyarrow", "tensorboard"):
        place.write(f"{name}.py", f"raise SystemExit('{name} was imported')")
    for form in ("json", "csv", "perfetto", "crash", "session"):
        done = place.python("-m", "neuraldbg", "export", str(folder), "--format", form)
        assert (done.status, done.err) == (0, "")
