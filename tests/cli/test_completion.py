"""What a shell is told: commands, options, runs, layers, causes; asked as bash asks, by click's own protocol."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from neuraldbg.cli import COMMANDS, main
from neuraldbg.cli.completers import COMPLETERS
from neuraldbg.cli.completion import INSTALL
from neuraldbg.explain.causes import CAUSES
from neuraldbg.nouns import KINDS, STATS
from neuraldbg.saved import Run
from neuraldbg.show.views import VIEWS


@pytest.fixture
def told(monkeypatch, capsys):
    """Return a function that completes the last word of a command line."""

    def ask(line: str) -> list[str]:
        words = line.split()
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - (not line.endswith(" "))))
        monkeypatch.setenv("_NEURALDBG_COMPLETE", "bash_complete")
        with pytest.raises(SystemExit) as ended:
            main([])
        assert ended.value.code == 0
        return [answer.partition(",")[2] for answer in capsys.readouterr().out.splitlines() if answer]

    return ask


def test_commands_and_options(told):
    assert told("neuraldbg ") == list(COMMANDS)
    assert told("neuraldbg ex") == ["explain", "export"]
    assert told("neuraldbg run --fail") == ["--fail-on"]
    assert told("neuraldbg run --fail-on ") == ["failing", "suspect"]
    assert told("neuraldbg run tra") == ["tra"], "the shell completes files"


def test_runs_the_newest_first(told, folder, monkeypatch):
    home = folder.parents[1]
    monkeypatch.chdir(home)
    for number, name in enumerate(("old", "new")):
        copied = shutil.copytree(folder, home / "neuraldbg-runs" / name)
        subprocess.run(["touch", "-d", f"2026-01-0{1 + number}", str(copied)], check=True)
    for command in ("explain", "plot", "report", "export", "dashboard", "compare"):
        assert told(f"neuraldbg {command} ")[:2] == ["neuraldbg-runs/new", "neuraldbg-runs/old"]
    assert told("neuraldbg explain runs/") == ["runs/one"]
    assert told("neuraldbg compare runs/one runs/o") == ["runs/one"]
    assert told("neuraldbg explain runs/one/") == ["runs/one/rank0.ndbg"]
    assert told("neuraldbg explain nowhere/") == []


def test_what_a_run_holds(told, folder):
    layers = [layer.path for layer in Run.load(folder).layout.layers]
    assert told(f"neuraldbg plot {folder} --layer ") == [path for path in layers if path]
    assert told(f"neuraldbg plot {folder.parent / 'gone'} --layer ") == []
    assert told(f"neuraldbg plot {folder} --stat ") == ["norm", *STATS]
    assert told(f"neuraldbg export {folder} --stat r") == [name for name in STATS if name.startswith("r")]
    assert told(f"neuraldbg plot {folder} --kind ") == list(KINDS)
    assert set(told(f"neuraldbg plot {folder} --view ")) == {"crash", *(view.name for view in VIEWS)}


def test_causes(told):
    assert told("neuraldbg causes ") == sorted(cause.id for cause in CAUSES)
    assert told("neuraldbg causes lr_too") == ["lr_too_high", "lr_too_low"]


def test_every_completer_is_of_an_argument_that_exists():
    from importlib import import_module

    names = {param.name for name in COMMANDS for param in import_module(f"neuraldbg.cli.{name}").COMMAND.params}
    assert set(COMPLETERS) <= names


@pytest.mark.parametrize("shell", sorted(INSTALL))
def test_the_script_says_how_to_install_it_and_runs(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"neuraldbg completion {shell}" in "\n".join(script.splitlines()[:5])
    assert f"_NEURALDBG_COMPLETE={shell}_complete" in script
    assert script.startswith("#compdef neuraldbg\n" if shell == "zsh" else "# ")
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_an_unknown_shell(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
