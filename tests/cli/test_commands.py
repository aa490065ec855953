"""The commands that read: explain, plot, causes, doctor; the group around them; and what none of them imports."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neuraldbg.cli import COMMANDS, main
from neuraldbg.explain import diagnose
from neuraldbg.explain.causes import CAUSES
from neuraldbg.nouns import RunRecord
from neuraldbg.record import follow
from neuraldbg.saved import Run


def test_run_load_is_a_record_with_a_front_door(folder):
    run = Run.load(folder)
    assert isinstance(run, RunRecord)
    assert run.steps == 60
    assert run.info.script == "train.py"
    assert run.diagnose().to_json() == diagnose(run).to_json() == Run.load(str(folder.parent)).diagnose().to_json()


def test_explain(folder, tmp_path, capsys):
    diagnosis = Run.load(folder).diagnose()
    assert main(["explain", str(folder), "--json", str(tmp_path / "d.json")]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(("✗ FAILING", "! SUSPECT", "? INCONCLUSIVE", "x FAILING"))
    assert "train.py" in out
    assert json.loads((tmp_path / "d.json").read_text()) == diagnosis.to_dict()
    for path in (folder, folder.parent, folder / "rank0.ndbg"):
        assert main(["explain", str(path)]) == 0
        assert capsys.readouterr().out == out


def test_explain_says_of_a_run_without_an_end_whether_it_goes_on(tmp_path, capsys, monkeypatch):
    source = (
        "import torch\nfrom neuraldbg import NeuralDbg\nmodel = torch.nn.Linear(4, 1)\n"
        "opt = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        f"with NeuralDbg(model, out={str(tmp_path / 'run')!r}):\n"
        "    while True:\n        opt.zero_grad()\n        model(torch.randn(8, 4)).square().mean().backward()\n"
        "        opt.step()\n        print(1, flush=True)\n"
    )
    monkeypatch.setattr(follow, "SILENT_S", 0.2)

    def said():
        assert main(["explain", str(tmp_path / "run")]) == 0
        return " ".join(capsys.readouterr().out.split())

    child = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    with child:
        for _ in range(300):
            child.stdout.readline()
        going = said()
        child.kill()
        child.stdout.read()
    assert "The run is still going on: this is its state now." in going
    assert "killed" not in going
    time.sleep(0.3)
    killed = said()
    assert "The run was killed: its file has no end, and no process writes to it." in killed
    assert "goes on" not in killed


def test_explain_json_to_standard_output_is_the_json_alone(folder, capsys):
    assert main(["explain", "--json", "-", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "neuraldbg.diagnosis/1"


@pytest.mark.parametrize(("verdict", "status"), [("healthy", 0), ("suspect", 0), ("failing", 3)])
def test_explain_fail_on(folder, monkeypatch, verdict, status):
    found = diagnose(Run.load(folder))
    monkeypatch.setattr(Run, "diagnose", lambda _: type(found)(verdict, "x"))
    assert main(["explain", str(folder), "--fail-on", "failing"]) == status


def test_plot(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plot", str(folder)]) == 0
    assert capsys.readouterr().out == "wrote crash.png\n"
    assert (tmp_path / "crash.png").read_bytes().startswith(b"\x89PNG")
    assert main(["plot", str(folder), "-o", "a.svg"]) == 0
    assert main(["plot", str(folder), "-o", "a.jpg"]) == 2
    assert "must end in .png, .svg, .pdf" in capsys.readouterr().err


def test_plot_without_matplotlib(folder, monkeypatch, capsys):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["plot", str(folder)]) == 2
    assert (
        capsys.readouterr().err
        == "neuraldbg: drawing a run needs an optional package: in your clone of NeuralDBG, pip install '.[plot]'\n"
    )


@pytest.mark.parametrize("command", ["explain", "plot"])
def test_no_run_there(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "nothing")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("neuraldbg: there is no run at ")
    assert "Traceback" not in err
    (tmp_path / "a.ndbg").write_text("not a run file, whatever its name says" * 9)
    assert main([command, str(tmp_path / "a.ndbg")]) == 2


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_the_list_of_causes_fits_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["causes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert {line.split()[-1] for line in lines if line.startswith("  ")} >= {one.id for one in CAUSES}


def test_causes_lists_what_is_registered(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")  # narrower, and the longest titles take two lines
    assert main(["causes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {tuple(re.split(r"  +", line.strip())) for line in lines if line.startswith("  ")}
    assert listed == {(cause.title, cause.id) for cause in CAUSES}
    assert [line for line in lines if not line.startswith(" ")][:-1] == sorted({c.category for c in CAUSES})
    assert lines[-1] == f"{len(CAUSES)} causes; `neuraldbg causes ID` shows one's page."


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_every_page_is_shown_whole(cause, capsys):
    assert main(["causes", cause.id]) == 0
    out = capsys.readouterr().out
    head = f"{cause.title} · {cause.id} · {cause.category}"
    assert out.replace("`", "").split() == [*head.replace("`", "").split(), *cause.page.replace("`", "").split()]
    assert max(map(len, out.splitlines())) <= 88


def test_unknown_cause(capsys):
    assert main(["causes", "lr_to_high"]) == 2
    assert "Did you mean: lr_too_high" in capsys.readouterr().err


def test_group_help_names_every_command_and_mistakes_get_an_answer(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.split("Commands:\n")[1].splitlines() if line.startswith("  ")][:-1] == list(
        COMMANDS
    )
    assert COMMANDS[:3] == ("run", "debug", "explain"), "in the order of use"
    for args, hint in (
        (["explian", "x"], "Did you mean `neuraldbg explain`?"),
        (["train.py"], "Did you mean `neuraldbg run train.py`?"),
        (["--nonsense"], "No such option"),
    ):
        assert main(args) == 2
        assert hint in capsys.readouterr().err
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("neuraldbg ")


@pytest.mark.parametrize("command", ["run", "debug"])
def test_help_has_examples_first_and_each_option_below_one_title(command, capsys):
    import importlib

    known = importlib.import_module(f"neuraldbg.cli.{command}").COMMAND
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    titles = [title for title, _ in known.groups]
    places = [out.index(f"\n{title}:\n") for title in ("Examples", *titles, "Other options")]
    assert places == sorted(places)
    tables = out[places[1] :]
    for parameter in known.params:
        for spelled in parameter.opts if parameter.name != "command" else ():
            assert len(re.findall(rf"^  (?:-.*, )?{spelled}(?![\w-])", tables, re.MULTILINE)) == 1, spelled


def test_every_file_of_a_command_is_registered():
    folder = Path(sys.modules[main.__module__].__file__).parent
    found = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if getattr(node, "name", "") == "COMMAND":
                found.add(file.stem)
    assert found == set(COMMANDS)


def before_others(place):
    """What ``PYTHONPATH`` is, so that the modules of the folder come before all others."""
    return f"{place.path}{os.pathsep}{place.env()['PYTHONPATH']}"


def test_doctor(place):
    done = place.python("-m", "neuraldbg", "doctor")
    assert done.status == 0, done.err
    told = {line[:17].strip(): line[17:] for line in done.out.splitlines()}
    assert told["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert set(told) >= {"neuraldbg", "numpy", "torch", "statistics", "extra plot", "run folder"}
    place.write("torch.py", "raise OSError('libcuda is broken')")
    done = place.python("-m", "neuraldbg", "doctor", PYTHONPATH=before_others(place))
    assert done.status == 1
    assert "cannot be imported: OSError: libcuda is broken" in done.out


@pytest.mark.parametrize(
    "args", [["--help"], ["run", "--help"], ["causes"], ["causes", "lr_too_high"], ["explain", "."]]
)
def test_none_of_these_imports_torch(place, folder, args):
    place.write("torch.py", "raise SystemExit('torch was imported')")
    args = [str(folder) if arg == "." else arg for arg in args]
    done = place.python("-m", "neuraldbg", *args, PYTHONPATH=before_others(place))
    assert (done.status, done.err) == (0, "")


def test_help_imports_nothing_heavy(place):
    for name in ("numpy", "rich", "pydantic", "matplotlib"):
        place.write(f"{name}.py", f"raise SystemExit('{name} was imported')")
    done = place.python("-m", "neuraldbg", "--help", PYTHONPATH=before_others(place))
    assert (done.status, done.err) == (0, "")


def test_a_closed_pipe_is_no_traceback(place, folder):
    shell = f"{sys.executable} -m neuraldbg explain {folder} | true"
    done = place.python("-c", f"import subprocess, sys; sys.exit(subprocess.run({shell!r}, shell=True).returncode)")
    assert "Traceback" not in done.err
