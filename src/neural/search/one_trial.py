"""One training as a program of its own under NeuralDBG: its command line enters, what came of it leaves.

A crash, a lack of memory or a kill ends that program, and not the search.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OUTPUT, HISTORY = "output.txt", "history.json"
PATIENCE_S = 30.0
"""Time after Ctrl-C in which a training may save its run."""


@dataclass(frozen=True)
class Outcome:
    """Hold what came of one training."""

    status: int
    """The exit status of the program, negative for a signal."""
    numbers: dict[str, float]
    """Losses and metrics of the last epoch, {} if no training came to its end."""
    verdict: str = ""
    cause: str = ""
    """The first cause of the diagnosis: its title."""
    said: str = ""
    """The last line that the program wrote."""
    interrupted: bool = False


def trained(script: Path, arguments: Sequence[str], folder: Path, watched: Sequence[str] = ()) -> Outcome:
    """Train by `neuraldbg run` in the folder of the run, so that files with a relative path lie there. `watched` are
    options of that command.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "neuraldbg", "run", "-q", "-o", str(folder.absolute()), *watched]
    command += [str(script.absolute())]
    command += [*arguments, "--history", str((folder / HISTORY).absolute())]
    interrupted = False
    with (folder / OUTPUT).open("wb") as output:
        program = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603 (our own)
        try:
            status = program.wait()
        except KeyboardInterrupt:
            interrupted = True
            status = _ended(program)
    verdict, cause = _diagnosis(folder)
    return Outcome(status, _numbers(folder), verdict, cause, _last_line(folder), interrupted)


def _ended(program: subprocess.Popen[bytes]) -> int:
    """Wait for a program that Ctrl-C reached as well, as it saves its run; end it if that takes too long."""
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        if os.name == "posix" and not _heard(program):
            program.send_signal(signal.SIGINT)
        return program.wait(PATIENCE_S)
    program.kill()
    return program.wait()


def _heard(program: subprocess.Popen[bytes]) -> bool:
    """Return True if the terminal sent the program its own interrupt: a second one would cut its saving short."""
    with suppress(OSError):
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgid(program.pid)
    return False


def _numbers(folder: Path) -> dict[str, float]:
    try:
        history: Any = json.loads((folder / HISTORY).read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in history[-1].items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return {}


def _diagnosis(folder: Path) -> tuple[str, str]:
    """Return the verdict and the first cause that NeuralDBG saved, "" if it saved none."""
    for file in sorted(folder.glob("*diagnosis.json")):
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
            told: Any = json.loads(file.read_text(encoding="utf-8"))
            causes = [each for each in told["hypotheses"] if each["cause"] != "unknown"]
            return str(told["verdict"]), str(causes[0].get("title") or causes[0]["cause"]) if causes else ""
    return "", ""


def _last_line(folder: Path) -> str:
    try:
        with (folder / OUTPUT).open("rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - 4000))
            lines = output.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(char if char.isprintable() else " " for char in said)[:200]
