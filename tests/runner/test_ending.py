"""How a program ends: nothing of it is asked twice, and no time of it runs while we work behind its end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from neuraldbg.program_timers import time_stopped
from neuraldbg.raised import words_of

if TYPE_CHECKING:
    from pathlib import Path

asked: list[str] = []


class Speaks(ValueError):
    def __str__(self) -> str:
        asked.append("str")
        return "in my own words"


class Part:
    def __repr__(self) -> str:
        asked.append("repr")
        return "a part"

    __str__ = __repr__


class Silent(ValueError):
    """Says what its arguments say."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no number"), "ValueError: no number"),
        (Silent("no number"), f"{__name__}.Silent: no number"),
        (KeyError("key"), "KeyError: 'key'"),
        (SystemExit(3), "SystemExit: 3"),
        (SystemExit(Part()), "SystemExit: <Part>"),
        (RuntimeError("at", Part()), "RuntimeError: at, <Part>"),
        (Speaks("one"), f"{__name__}.Speaks: one"),
        (Speaks(), f"{__name__}.Speaks"),
        (subprocess.CalledProcessError(2, "ls"), "subprocess.CalledProcessError: Command 'ls' returned"),
    ],
)
def test_an_exception_is_told_without_a_method_of_the_programs(error: BaseException, words: str) -> None:
    asked.clear()

    assert words_of(error).startswith(words)
    assert asked == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_timers_stand_still_and_go_on() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 10.0)
        with time_stopped():
            time.sleep(0.15)
            assert rung == []
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        left, every = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left <= 0.05
        assert every == 10.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_an_alarm_of_ours_is_left() -> None:
    """``_signals.limit`` ends a process that does not come to its end after SIGTERM: by the same timer."""
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        signal.setitimer(signal.ITIMER_REAL, 50.0)
        with time_stopped():
            signal.alarm(100)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupt_leaves_the_excepthook_and_ends_by_the_signal(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import atexit, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.excepthook = mine = lambda *_: print('mine')\n"
        "atexit.register(lambda: print('at exit', sys.excepthook is mine))\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )

    def run(*command: str) -> Any:
        return subprocess.run([*command, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)

    bare = run(sys.executable)
    watched = run(sys.executable, "-m", "neuraldbg", "run", "-q", "-o", "run")

    assert (watched.stdout, watched.returncode) == (bare.stdout, bare.returncode)
    assert bare.stdout == "mine\nat exit True\n"
    assert bare.returncode == -signal.SIGINT
