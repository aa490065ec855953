"""How each command ends: 0 done, 1 the script failed or something is missing, 2 wrong use, 3 by --fail-on; colours."""

from __future__ import annotations

import os
import re
import signal
import sys

import pytest

from neuraldbg.cli import COMMANDS, main
from neuraldbg.cli.command import FAILED, OK, USAGE, VERDICT
from neuraldbg.cli.group import _OTHER_WORDS

WRONG = {
    "causes": (["lr_to_high"], "Did you mean: lr_too_high"),
    "compare": (["nothing", "here"], "no run"),
    "completion": ([], "Missing argument"),
    "dashboard": (["nothing"], "no run"),
    "debug": (["--break-on", "nothing", "train.py"], "no kind of event"),
    "doctor": (["--train"], "SCRIPT"),
    "explain": (["nothing"], "no run"),
    "export": (["nothing"], "no run"),
    "plot": (["nothing"], "no run"),
    "profile": (["nothing"], "no run"),
    "report": (["nothing"], "no run"),
    "run": (["nothing.py"], "there is no script"),
}
"""A wrong use of each command, and what is said of it."""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_status_0_with_examples_that_can_be_parsed(command, capsys):
    assert main([command, "--help"]) == OK
    out, err = capsys.readouterr()
    assert err == ""
    examples = re.findall(r"^  neuraldbg (.*)\n      \S", out.partition("\nExamples:\n")[2], re.MULTILINE)
    assert examples, "each command shows how it is used"
    from importlib import import_module

    import click

    known = import_module(f"neuraldbg.cli.{command}").COMMAND
    for line in examples:
        first, *args = line.partition(" > ")[0].split()
        assert first == command
        # The parser alone: names of runs in examples need not exist.
        values, rest, _ = known.make_parser(click.Context(known, **known.context_settings)).parse_args(args=args)
        assert values
        assert not rest


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_use_is_status_2_in_one_sentence(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args, said = WRONG[command]
    assert main([command, *args]) == USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err
    assert main([command, "--no-such-option"]) == USAGE
    assert "No such option" in capsys.readouterr().err


def test_nothing_asked_is_answered_in_a_few_lines(capsys):
    assert main([]) == OK
    out, err = capsys.readouterr()
    assert err == ""
    assert len(out.splitlines()) <= 9
    assert max(map(len, out.splitlines())) < 90
    for command in ("run", "explain", "report", "dashboard", "compare"):
        assert re.search(rf"\b{command} [A-Zt]", out)


@pytest.mark.parametrize("word", [*sorted(_OTHER_WORDS), "dashbord", "exprot", "runn"])
def test_a_word_of_another_tool_gets_a_suggestion(word, capsys):
    assert main([word]) == USAGE
    meant = re.findall(r"`neuraldbg (-*\w+)`", capsys.readouterr().err)
    assert meant
    assert set(meant) <= {*COMMANDS, "--help", "--version"}


def test_a_run_without_a_command_and_a_word_that_is_near_nothing(capsys, folder):
    assert main([str(folder)]) == USAGE
    assert f"Did you mean `neuraldbg explain {folder}`?" in capsys.readouterr().err
    assert main(["xyzzy"]) == USAGE
    assert f"The commands are: {', '.join(COMMANDS)}." in capsys.readouterr().err


def test_reading_commands_end_well_or_by_the_verdict(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = str(folder)
    for args, status in (
        (["explain", run], OK),
        (["explain", run, "--fail-on", "failing"], VERDICT),
        (["explain", run, "--json", str(tmp_path / "gone" / "d.json")], USAGE),
        (["compare", run, run], OK),
        (["compare", run, run, "--fail-on", "divergence"], OK),
        (["compare", run, run, "-o", "gone/c.png"], USAGE),
        (["report", run, "-o", "r.html"], OK),
        (["report", run, "-o", "gone/r.html"], USAGE),
        (["export", run, "--format", "csv", "-o", "tables"], OK),
        (["plot", run, "--terminal"], OK),
        (["plot", run, "--view", "nothing"], USAGE),
        (["causes", "dead_relu"], OK),
        (["--version"], OK),
    ):
        assert main(args) == status, args
    capsys.readouterr()


PROGRAMS = {
    "done": ("", 0),
    "raised": ("raise ValueError('x')", 1),
    "exit 7": ("sys.exit(7)", 7),
    "exit with words": ("sys.exit('no data')", 1),
    "_exit": ("os._exit(9)", 9),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    "interrupted": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    "unreadable": ("x = (", 1),
}
"""Kinds of ends of a program, each with the status that python gives it."""


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_ends_with_the_status_that_python_gives_it(place, kind):
    source, status = PROGRAMS[kind]
    place.write("t.py", f"import os, signal, sys, time\n{source}\n")
    assert place.python("t.py").status == status
    assert place.python("-m", "neuraldbg", "run", "-q", "t.py").status == status
    assert place.tool("-q", "--fail-on", "suspect", "t.py").status == status


def test_fail_on_is_status_3_only_of_a_program_that_ended_well(place):
    place.write("t.py", "import builtins, sys\nbuiltins.verdict = 'failing'\nsys.exit(int(sys.argv[1]))\n")
    assert place.tool("-q", "--fail-on", "failing", "t.py", "0").status == VERDICT
    assert place.tool("-q", "--fail-on", "failing", "t.py", "1").status == FAILED
    assert place.tool("-q", "--fail-on", "failing", "t.py", "4").status == 4


@pytest.mark.parametrize(
    ("env", "ansi", "colour"),
    [({}, False, False), ({"FORCE_COLOR": "1"}, True, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
     ({"NO_COLOR": "1"}, False, False)],
)  # fmt: skip
def test_what_is_piped_has_no_colours_unless_they_are_asked_for(place, folder, env, ansi, colour):
    place.write("t.py", "import builtins\nbuiltins.verdict = 'failing'\n")
    explained = place.python("-m", "neuraldbg", "explain", str(folder), **env)
    listed = place.python("-m", "neuraldbg", "causes", **env)
    ran = place.tool("t.py", **env)
    for text in (explained.out, listed.out, ran.err):
        assert ("\x1b[" in text) is ansi
        assert bool(re.search(r"\x1b\[[\d;]*3[1-6]m", text)) is colour


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
def test_a_terminal_has_colours_and_none_with_no_color(place, folder):
    import subprocess

    for env, colour in (({}, True), ({"NO_COLOR": "1"}, False)):
        master, slave = os.openpty()
        command = [sys.executable, "-m", "neuraldbg", "explain", str(folder)]
        subprocess.run(command, env=place.env(TERM="xterm", **env), stdout=slave, check=True)
        os.close(slave)
        text = os.read(master, 4096).decode(errors="replace")
        os.close(master)
        assert bool(re.search(r"\x1b\[[\d;]*3[1-6]m", text)) is colour
