"""The folder `.neural`: what a cleaning removes, and what it leaves."""

import json
from pathlib import Path

import pytest

from neural.errors import FileUnreadable
from neural.workspace import Workspace


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_cleaning_removes_what_was_written_and_no_more(here):
    workspace = Workspace()
    workspace.path("a.py").write_text("ours")
    workspace.path("runs").mkdir()
    (here / ".neural/runs/x").write_text("ours, too")
    (here / ".neural/theirs.txt").write_text("put there by hand")
    for name in ("same.html", "changed.html", "gone.html"):
        (here / name).write_text("picture")
        workspace.made(name)
    (here / "changed.html").write_text("picture, with words of mine")
    (here / "gone.html").unlink()
    (here / "other.html").write_text("picture")

    removal = Workspace().clean()

    names = [path.name for path in removal.gone]
    assert sorted(names) == ["a.py", "runs", "same.html"]
    assert [path.name for path in removal.kept] == ["changed.html"]
    left = sorted(str(path.relative_to(here)) for path in here.rglob("*") if path.is_file())
    assert left == [".neural/theirs.txt", "changed.html", "other.html"]


def test_a_folder_of_ours_alone_is_gone_and_git_never_saw_it(here):
    path = Workspace().path("a.py")
    path.write_text("ours")
    assert (here / ".neural/.gitignore").read_text() == "*\n"
    Workspace().clean()
    assert not list(here.iterdir())
    assert Workspace().clean() == ((), ())


@pytest.mark.parametrize("listed", ["", "[1]", '{"inside": 3}', "{", '{"inside": ["../x"], "elsewhere": {}}'])
def test_a_list_that_is_not_ours_removes_nothing(here, listed):
    (here / "x").write_text("theirs")
    (here / ".neural").mkdir()
    (here / ".neural/made.json").write_text(listed)
    Workspace().clean()
    assert (here / "x").read_text() == "theirs"


def test_a_link_is_removed_and_not_what_it_leads_to(here):
    (here / "kept").mkdir()
    (here / "kept/file").write_text("theirs")
    Workspace().path("data").symlink_to(here / "kept")
    Workspace().clean()
    assert (here / "kept/file").exists()
    assert not (here / ".neural").exists()


def test_a_folder_that_cannot_be_made_is_said(here):
    (here / ".neural").write_text("a file")
    with pytest.raises(FileUnreadable, match=r"the folder \.neural cannot be written"):
        Workspace().path("a.py")


def test_the_list_is_readable(here):
    Workspace().path("b.py")
    Workspace().path("a.py")
    assert json.loads(Path(".neural/made.json").read_text())["inside"] == ["a.py", "b.py"]
