"""A command of ``neural`` that runs as a child of a notebook: its arguments in, what it has printed out."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from pathlib import Path

COMMAND = (sys.executable, "-m", "neural")
"""The command line of ``neural``, without a command."""
_CHECK_S = 0.1
_END_S = 8.0
_LIVING: set[Child] = set()


class Child:
    """A child in a folder; what it prints goes into the file ``log``, so that it never waits for a reader."""

    def __init__(self, args: Sequence[str], folder: Path, log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(  # noqa: S603 (our own command)
                [*COMMAND, *args],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=sys.platform != "win32",  # interrupting a cell does not end it
            )
        self.pid = self._process.pid
        _LIVING.add(self)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        """Return everything that the child has printed so far."""
        with contextlib.suppress(OSError):
            return self.log.read_text(encoding="utf-8", errors="replace")
        return ""

    def wait_for(self, words: re.Pattern[str], seconds: float) -> re.Match[str] | None:
        """Return the first match in what the child prints; None once it has ended, or the time is over."""
        until = time.monotonic() + seconds
        while True:
            running = self.running  # before its output is read: it may print and end in between
            match = words.search(self.said())
            if match is not None or not running or time.monotonic() > until:
                return match
            time.sleep(_CHECK_S)

    def end(self) -> None:
        """Terminate the child, or kill it after some seconds. Its dashboard and tunnel end with it."""
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _LIVING.discard(self)


def _end_all() -> None:
    for child in list(_LIVING):
        with contextlib.suppress(Exception):
            child.end()


atexit.register(_end_all)


def last_words(text: str, lines: int = 5) -> str:
    """Return the last lines of what a child has printed, for an error message."""
    kept: list[Any] = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(kept[-lines:])
