"""A command line with a launcher becomes the launcher's own, with workers under the tool."""

from __future__ import annotations

import sys

import pytest

from neuraldbg.errors import ConfigError
from neuraldbg.runner.launchers import handed_on, launcher_of, own_options

RUN = ["-m", "neuraldbg", "run"]


@pytest.mark.parametrize(
    ("command", "module", "launcher"),
    [
        (["train.py", "torchrun"], False, None),
        (["torchrun", "train.py"], False, ("torch.distributed.run", ("train.py",))),
        (["/usr/bin/torchrun", "train.py"], False, ("torch.distributed.run", ("train.py",))),
        (["torch.distributed.run", "train.py"], True, ("torch.distributed.run", ("train.py",))),
        (["torch.distributed.launch", "train.py"], True, ("torch.distributed.launch", ("train.py",))),
        (["torch.distributed.run", "train.py"], False, None),
        (["accelerate", "launch", "train.py"], False, ("accelerate.commands.launch", ("train.py",))),
        (["accelerate", "config"], False, None),
        (["accelerate.commands.launch", "train.py"], True, ("accelerate.commands.launch", ("train.py",))),
        (["accelerate.commands.accelerate_cli", "launch", "a.py"], True, ("accelerate.commands.launch", ("a.py",))),
        (["project.train"], True, None),
    ],
)
def test_launchers_are_known_by_their_names(command, module, launcher):
    assert launcher_of(command, module=module) == launcher


@pytest.mark.parametrize(
    ("args", "own", "inner"),
    [
        (["--nproc-per-node", "2", "train.py", "--lr", "1"], ["--nproc-per-node", "2"], ["train.py", "--lr", "1"]),
        (["--standalone", "-m", "pkg.train", "-m", "x"], ["--standalone"], ["-m", "pkg.train", "-m", "x"]),
        (["--run-path", "train.py"], [], ["train.py"]),
        (["train.py"], [], ["train.py"]),
    ],
)
def test_the_tool_comes_between_a_launcher_and_its_script(args, own, inner):
    made = handed_on("torch.distributed.run", args, ["-q", "-o", "runs/a"])
    assert made == [sys.executable, "-m", "torch.distributed.run", *own, *RUN, "-q", "-o", "runs/a", *inner]


def test_a_launcher_that_is_not_installed_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate.commands.launch", None)
    with pytest.raises(ConfigError, match="accelerate is not installed here"):
        handed_on("accelerate.commands.launch", ["train.py"], [])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["run", "-o", "run", "-m"], ["-o", "run"]),
        (["run", "-qm"], ["-q"]),
        (["run", "-vmq", "--json", "-"], ["-vq", "--json", "-"]),
        (["run", "--overhead", "full", "--"], ["--overhead", "full"]),
    ],
)
def test_options_of_our_own_go_to_the_workers_without_the_flag_of_a_module(given, kept, monkeypatch):
    command = ["torch.distributed.run", "train.py"]
    monkeypatch.setattr(sys, "argv", ["neuraldbg", *given, *command])
    assert own_options(command) == kept
