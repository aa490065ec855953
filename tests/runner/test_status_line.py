"""The status line: on a terminal only, never in what the program prints."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.runner.both_ways import DRIVER

from neuraldbg.nouns import Event, Step
from neuraldbg.runner.status_line import StatusLine

pty = pytest.importorskip("pty")
STEP = np.zeros((0, 12))
WIPE = "\r\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def step(index, loss=None):
    return Step(index, 0, 0.0, STEP, {} if loss is None else {"loss": loss})


@pytest.fixture
def line():
    now = [0.0]
    terminal = Terminal()
    status = StatusLine(terminal, lambda: now[0])
    status.now = now
    return status


def test_what_it_says(line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    line(step(0, 2.5), ())
    line.now[0] = 2.0
    line(step(1000, float("nan")), (Event("exploding_gradients", "gradient_health", 990, 995, "fc\x1b1"),))
    first, second = line.stream.getvalue().split(WIPE)[1:]
    assert first == "neuraldbg: step 0 | loss 2.5 | no problem so far"
    assert second == "neuraldbg: step 1,000 | 500 steps/s | loss nan | exploding gradients in fc?1 at step 990"


def test_at_most_twice_a_second(line):
    for i in range(1000):
        line.now[0] = i * 0.01
        line(step(i), ())
    assert 18 <= line.stream.getvalue().count(WIPE) <= 21


def test_it_makes_room_and_waits_for_the_end_of_the_line(line, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", line.stream)
    line.listen()
    line(step(0), ())
    print("epoch 1: ", end="")  # noqa: T201 (what a script does)
    assert line.stream.getvalue().endswith(WIPE)
    drawn = line.stream.getvalue()
    line.now[0] = 1.0
    line(step(1), ())
    assert line.stream.getvalue() == drawn
    print("done")  # noqa: T201
    line(step(2), ())
    assert "step 2" in line.stream.getvalue()
    line.close()
    assert line.stream.getvalue().endswith(WIPE)
    assert sys.stdout.getvalue() == "epoch 1: done\n"
    assert "write" not in vars(sys.stdout)
    assert "write" not in vars(line.stream)
    line.now[0] = 9.0
    line(step(3), ())
    assert "step 3" not in line.stream.getvalue()


def test_a_terminal_that_goes_away_is_no_error(line):
    line.stream.close()
    line(step(0), ())
    line.close()


@pytest.mark.parametrize(("quiet", "terminal"), [(False, "xterm"), (True, "xterm"), (False, "dumb")])
def test_on_a_real_terminal(place, quiet, terminal):
    """Standard error is a terminal, standard output a file: the file holds the program's own bytes only."""
    place.write("torch.py", "")
    place.write(
        "t.py",
        "import builtins, sys, torch\nfrom neuraldbg.nouns import Step\nimport numpy as np\n"
        "said = builtins.session.on_step\n"
        "if said: said(Step(7, 0, 0.0, np.zeros((0, 12)), {'loss': 1.5}), ())\n"
        "print('out', sys.stderr.isatty()); print('err', file=sys.stderr)\n",
    )
    parent, child = pty.openpty()
    command = [sys.executable, str(DRIVER), "run", "-o", "run", *(["-q"] if quiet else []), "t.py"]
    done = subprocess.run(
        command, cwd=place.path, env=place.env(TERM=terminal), stdout=subprocess.PIPE, stderr=child, check=False
    )
    os.close(child)
    seen = os.read(parent, 100_000).decode()
    os.close(parent)
    assert (done.returncode, done.stdout) == (0, b"out True\n")
    if quiet:
        assert seen == "err\r\n"
    elif terminal == "dumb":
        assert seen.startswith("err\r\n")
        assert "\x1b" not in seen
        assert "HEALTHY" in seen
    else:
        assert seen.startswith(f"{WIPE}neuraldbg: step 7 | loss 1.5 | no problem so far{WIPE}err\r\n")
        assert "HEALTHY" in seen


def test_a_line_of_ours_stands_alone_and_the_status_comes_again_below_it(line):
    line(step(0, 2.5), ())
    line.say("neuraldbg: CRITICAL [nan] it is lost")
    line.now[0] = 2.0
    line(step(1, 2.5), ())
    shown = line.stream.getvalue()
    assert f"{WIPE}neuraldbg: CRITICAL [nan] it is lost\n{WIPE}neuraldbg: step 1" in shown
    line.close()


def test_a_line_of_ours_does_not_join_an_unfinished_line_of_the_program(line):
    line._wrap(line.stream)
    line.stream.write("epoch 1 ...")
    line.say("neuraldbg: CRITICAL [nan] it is lost")
    line.stream.write(" done\n")
    assert line.stream.getvalue() == "epoch 1 ...\nneuraldbg: CRITICAL [nan] it is lost\n done\n"
    line.close()
