"""``neuraldbg report``: where it writes, in which format, and what it says when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from neuraldbg.cli import main
from neuraldbg.errors import ConfigError
from neuraldbg.saved import Run


def test_markdown_to_a_file_to_standard_output_and_from_python(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(folder), "-o", "a.md"]) == 0
    size = (tmp_path / "a.md").stat().st_size
    assert capsys.readouterr().out == f"wrote a.md ({size / 1000:,.0f} kB)\n"
    assert main(["report", str(folder), "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("wrote report.md (")
    assert main(["report", str(folder), "-o", "-", "--format", "md"]) == 0
    said = capsys.readouterr().out
    Run.load(folder).report("b.md")
    assert (
        said == (tmp_path / "a.md").read_text(encoding="utf-8") == (tmp_path / "report.md").read_text(encoding="utf-8")
    )
    assert said == (tmp_path / "b.md").read_text(encoding="utf-8")
    assert said.startswith(f"# {Run.load(folder).diagnose().verdict.upper()}: ")


def test_html_is_what_is_written_where_nothing_is_asked(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("wrote report.html (")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-o", "report.pdf"], "its name must end in .html or .md"),
        (["-o", "no/where/report.html"], "there is no folder no/where; create it first"),
        (["--format", "docx"], "'docx' is not one of 'html', 'md'"),
    ],
)
def test_what_cannot_be_done(folder, tmp_path, capsys, monkeypatch, args, said):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(folder), *args]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.glob("*.*")) == []


def test_a_place_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "a.md").mkdir()
    with pytest.raises(ConfigError, match="cannot write"):
        Run.load(folder).report(tmp_path / "a.md")


def test_standard_output_gets_the_bytes_of_a_file_whatever_its_encoding(folder, tmp_path):
    Run.load(folder).report(tmp_path / "a.md")
    command = (sys.executable, "-m", "neuraldbg", "report", str(folder), "--format", "md", "-o", "-")
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    assert done.stdout == (tmp_path / "a.md").read_bytes()
    assert not done.stdout.isascii()
