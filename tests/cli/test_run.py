"""What ``neuraldbg run`` adds to a program: the diagnosis, the run folder, the JSON, and the exit status."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from neuraldbg.cli.run import free_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runner.both_ways import Place

VERDICT = "import builtins, sys\nbuiltins.verdict = sys.argv[1]\n"


def test_diagnosis_goes_to_standard_error_and_the_output_stays_the_scripts(place: Place) -> None:
    place.write("train.py", "print('hello')")
    done = place.tool("-o", "out/here", "train.py", "--lr", "1")
    assert (done.status, done.out) == (0, "hello\n")
    assert "HEALTHY" in done.err
    assert "Saved in out/here" in done.err
    told = json.loads((place.path / "out/here/told.json").read_text())
    assert told["argv"] == ["train.py", "--lr", "1"]
    assert told["outcome"] == {"kind": "completed", "message": "", "where": "", "text": ""}


def test_traceback_comes_before_the_diagnosis_and_names_the_users_line(place: Place) -> None:
    place.write("train.py", "import json\n\njson.loads('nonsense')\n")
    done = place.tool("-o", "run", "train.py")
    assert done.status == 1
    assert done.err.index("JSONDecodeError") < done.err.index("This run ended as raised")
    outcome = json.loads((place.path / "run/told.json").read_text())["outcome"]
    assert outcome["where"] == "train.py:3"
    assert outcome["message"] == "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"


def test_default_folder(place: Place) -> None:
    place.write("sub/train.py", "import os; os.chdir('/')")
    done = place.tool("sub/train.py")
    (folder,) = (place.path / "neuraldbg-runs").iterdir()
    assert folder.name.startswith("train-20")
    assert f"Saved in neuraldbg-runs/{folder.name}" in done.err


@pytest.mark.parametrize("out", ["notes.txt", "notes.txt/run"])
def test_a_file_in_place_of_the_folder_is_told_before_the_training(place: Place, out: str) -> None:
    place.write("notes.txt", "mine")
    place.write("train.py", "print('trained for hours')")
    done = place.tool("-o", out, "train.py")
    assert (done.status, done.out) == (2, "")
    assert done.err == f"neuraldbg: --out {out}: {place.path / 'notes.txt'} is a file; name a folder for the run\n"


def test_free_folder_is_unique(tmp_path: Path) -> None:
    now = time.strptime("2026-01-02 03:04:05", "%Y-%m-%d %H:%M:%S")
    names = []
    for _ in range(3):
        folder = free_folder(tmp_path, "train", now)
        folder.mkdir()
        names.append(folder.name)
    assert names == ["train-20260102-030405", "train-20260102-030405-2", "train-20260102-030405-3"]


@pytest.mark.parametrize(
    ("verdict", "limit", "status"),
    [
        ("healthy", "suspect", 0),
        ("inconclusive", "suspect", 0),
        ("suspect", "suspect", 3),
        ("suspect", "failing", 0),
        ("failing", "failing", 3),
        ("failing", "suspect", 3),
    ],
)
def test_fail_on(place: Place, verdict: str, limit: str, status: int) -> None:
    place.write("t.py", VERDICT)
    assert place.tool("-o", "run", "--fail-on", limit, "t.py", verdict).status == status


def test_the_scripts_own_failure_wins_over_fail_on(place: Place) -> None:
    place.write("t.py", VERDICT + "sys.exit(5)")
    assert place.tool("--fail-on", "suspect", "t.py", "failing").status == 5


def test_json_file_and_standard_output(place: Place) -> None:
    place.write("t.py", "import os\nprint('mine')\nos.chdir('/')")
    assert place.tool("-q", "--json", "d.json", "t.py").err == ""
    assert json.loads((place.path / "d.json").read_text())["schema"] == "neuraldbg.diagnosis/1"
    done = place.tool("--json", "-", "t.py")
    first, _, rest = done.out.partition("\n")
    assert (first, json.loads(rest)["verdict"]) == ("mine", "healthy")


def test_json_that_cannot_be_written_is_said_before_the_run(place: Place) -> None:
    place.write("t.py", "print('never')")
    done = place.tool("--json", "no/such/d.json", "t.py")
    assert (done.status, done.out) == (2, "")
    assert "there is no folder" in done.err


def test_unwritable_folder_is_a_warning(place: Place) -> None:
    place.write("t.py", "print('on')")
    done = place.tool("-o", "x" * 300, "t.py")
    assert (done.status, done.out) == (0, "on\n")
    assert "neuraldbg: the run was not saved: " in done.err
    assert "HEALTHY" in done.err


def test_session_that_cannot_start_leaves_the_program_alone(place: Place) -> None:
    place.write("torch.py", "x = 1")
    place.write("t.py", "import builtins\nbuiltins.start_fails = True\nimport torch\nprint(torch.x)")
    done = place.tool("t.py")
    assert (done.status, done.out) == (0, "1\n")
    assert "watching could not start" in done.err
    assert "RuntimeError: no good" in done.err
    assert place.tool("--fail-on", "failing", "t.py").status == 1


def test_session_starts_right_after_torch_is_imported(place: Place) -> None:
    place.write("torch.py", "import builtins\nassert not hasattr(builtins, 'session')\nx = 1")
    place.write(
        "t.py",
        "import builtins, sys, importlib\nfinders = len(sys.meta_path)\nimport torch\n"
        "print(builtins.session.script, torch.x, torch.__spec__.name, torch.__file__[-8:])\n"
        "print(finders - len(sys.meta_path), vars(torch.__loader__).keys() & {'exec_module'})\n",
    )
    done = place.tool("-q", "t.py")
    assert (done.status, done.out) == (0, "t.py 1 torch torch.py\n1 set()\n"), done.err


def test_failing_import_of_torch_reads_as_in_python(place: Place) -> None:
    place.write("torch.py", "raise ImportError('libsomething.so is missing')")
    place.write("t.py", "def f():\n    import torch\nf()\n")
    place.same("t.py")


def test_closed_and_replaced_streams(place: Place) -> None:
    place.write("t.py", "import sys\nsys.stderr.close()\nsys.stdout.close()")
    assert place.tool("-o", "run", "t.py").status == 0
    place.write("u.py", "import sys, io\nsys.stderr = io.StringIO()")
    assert "HEALTHY" in place.tool("-o", "run2", "u.py").err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian.py"], "there is no script 'trian.py'. Did you mean 'train.py'?"),
        (["train"], "there is no script 'train'. Did you mean 'train.py'?"),
        (["no/t.py"], "There is no folder 'no' either."),
        (["empty"], "'empty' is a folder without a __main__.py"),
        (["-m", "surely_not_there"], "there is no module 'surely_not_there'"),
        (["-m", "pkg.nothing"], "there is no module 'pkg.nothing'"),
        (["-m", "pkg"], "'pkg' is a package without a __main__.py"),
        (["--nonsense", "train.py"], "No such option"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use(place: Place, args: list[str], message: str) -> None:
    place.write("train.py", "print('never')")
    place.write("pkg/__init__.py", "")
    (place.path / "empty").mkdir()
    done = place.tool(*args)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_program_without_torch_is_told_in_one_line_and_loads_nothing_more(place: Place) -> None:
    listed = "import atexit, sys\natexit.register(lambda: print([n for n in ('torch', 'numpy') if n in sys.modules]))\n"
    place.write("tidy.py", listed)
    said = (
        "neuraldbg: tidy.py ended without importing torch: nothing was watched, and nothing is saved. "
        "If it trains in another process, put `neuraldbg run` before that one's script.\n"
    )
    done = place.python("-m", "neuraldbg", "run", "--fail-on", "suspect", "tidy.py")
    assert (done.status, done.out, done.err) == (0, "[]\n", said)
    assert not (place.path / "neuraldbg-runs").exists()
    done = place.python("-m", "neuraldbg", "run", "-q", "--json", "told.json", "tidy.py")
    assert (done.status, done.err) == (0, "")
    told = json.loads((place.path / "told.json").read_text())
    assert told["verdict"] == "inconclusive"
    assert told["summary"].startswith("tidy.py ended without importing torch")


def test_an_error_before_torch_is_the_programs_own(place: Place) -> None:
    place.write("wrong.py", "import sys\nsys.exit(7)\n")
    done = place.python("-m", "neuraldbg", "run", "--fail-on", "suspect", "wrong.py")
    assert done.status == 7
    assert done.err.startswith("neuraldbg: wrong.py ended without importing torch")
