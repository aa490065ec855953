"""The folder `.neural`: what a cleaning removes, and what it leaves."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.neural.sample_files import CNN

from neural.cli import main
from neural.errors import FileUnreadable
from neural.workspace import Workspace, write_whole


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


def listed(here, inside=(), elsewhere=()):
    (here / ".neural").mkdir(exist_ok=True)
    digests = {str(path): hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in elsewhere}
    (here / ".neural/made.json").write_text(json.dumps({"inside": list(inside), "elsewhere": digests}))


@pytest.mark.parametrize("name", ["..", "", ".", "../x", "/etc", "a/..", "x/../..", "\0", "n" * 5000])
def test_no_name_in_the_list_leads_out_of_the_folder_or_means_all_of_it(here, capsys, name):
    (here / "kept").write_text("theirs")
    listed(here, [name])
    (here / ".neural/kept").write_text("theirs, too")
    assert main(["clean", "--yes"]) == 0
    assert capsys.readouterr().out == "There is nothing to remove.\n"
    assert Workspace().clean() == ((), ())
    assert (here / "kept").exists()
    assert (here / ".neural/kept").exists()


def test_only_files_below_the_directory_are_removed_by_their_digest(tmp_path, monkeypatch, capsys):
    here = tmp_path / "project"
    (here / "sub").mkdir(parents=True)
    monkeypatch.chdir(here)
    (tmp_path / "outside").mkdir()
    (here / "link").symlink_to(tmp_path / "outside")
    outside = [tmp_path / "a.txt", tmp_path / "outside/b.txt"]
    for path in [*outside, here / "sub/ours.py", here / "target.py"]:
        path.write_text("text")
    (here / "alias.py").symlink_to(here / "target.py")
    paths = [outside[0], here / "sub/../../a.txt", here / "link/b.txt", here / "alias.py", here / "sub/ours.py"]
    listed(here, elsewhere=paths)
    assert main(["clean", "--yes"]) == 0
    told = capsys.readouterr().out
    assert told.count("is outside of this directory, and stays") == 3
    assert "alias.py was changed since it was written, and stays" in told
    assert "Removed: 1\n" in told
    assert all(path.exists() for path in [*outside, here / "alias.py", here / "target.py"])
    assert not (here / "sub/ours.py").exists()


def test_a_list_of_absurd_nesting_is_no_list(here):
    (here / ".neural").mkdir()
    (here / ".neural/made.json").write_text("[" * 100_000)
    assert main(["clean", "--yes"]) == 0


def test_a_folder_that_is_a_link_stays_with_all_behind_it(here, capsys):
    (here / "theirs").mkdir()
    (here / "theirs/x").write_text("text")
    (here / "theirs/made.json").write_text('{"inside": ["x"], "elsewhere": {}}')
    (here / ".neural").symlink_to("theirs")
    assert main(["clean", "--yes"]) == 0
    assert "is a link" in capsys.readouterr().out
    assert (here / "theirs/x").exists()


def test_a_file_of_the_user_in_the_folder_is_neither_written_over_nor_removed(here, capsys):
    (here / "cnn.neural").write_text(CNN)
    (here / ".neural").mkdir()
    (here / ".neural/cnn.py").write_text("mine")
    assert main(["run", "cnn.neural", "--dataset", "synthetic", "--epochs", "1"]) == 2
    assert ".neural/cnn.py is not from these commands" in capsys.readouterr().err
    assert main(["clean", "--yes"]) == 0
    assert (here / ".neural/cnn.py").read_text() == "mine"
    Workspace().path("a.py").symlink_to(here / "cnn.neural")
    with pytest.raises(FileUnreadable, match="is not from these commands"):
        Workspace().path("a.py")


@pytest.mark.parametrize("options", [[], ["-o", "a.py"]], ids=["default", "named"])
def test_a_link_to_nothing_is_not_written_through(here, options, capsys):
    (here / "a.neural").write_text(CNN)
    (here / "a.py").symlink_to(here / "victim")
    assert main(["compile", "a.neural", *options]) == 2
    assert "a.py" in capsys.readouterr().err
    assert not (here / "victim").exists()


def test_a_file_is_replaced_whole_with_its_mode_and_through_its_link(here):
    file, link = here / "file", here / "link"
    file.write_text("before")
    file.chmod(0o751)
    link.symlink_to("file")
    write_whole(link, "after")
    assert link.is_symlink()
    assert file.read_text() == "after"
    assert stat.S_IMODE(file.stat().st_mode) == 0o751
    write_whole(here / "new", b"new")
    (here / "usual").write_bytes(b"")
    assert (here / "new").stat().st_mode == (here / "usual").stat().st_mode
    assert sorted(path.name for path in here.iterdir()) == ["file", "link", "new", "usual"]


@pytest.mark.parametrize("command", [["fmt", "big.neural"], ["compile", "big.neural", "-o", "made.py"]])
def test_a_write_that_fails_leaves_the_file_as_it_was(here, command):
    (here / "big.neural").write_text(CNN.replace("\n  ", "\n       ") + "# a remark of mine\n" * 200)
    (here / "made.py").write_text("made before")
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    script = f"ulimit -f 1; exec {sys.executable} -m neural {' '.join(command)}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 2, done.stderr
    assert "could not be written: File too large" in done.stderr
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def test_commands_at_the_same_time_forget_none_of_their_files(here):
    script = """
import sys
from neural.workspace import Workspace
for number in range(40):
    Workspace().path(f"{sys.argv[1]}-{number}")
"""
    running = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(6)]
    assert [each.wait() for each in running] == [0] * 6
    assert len(json.loads(Path(".neural/made.json").read_text())["inside"]) == 240
