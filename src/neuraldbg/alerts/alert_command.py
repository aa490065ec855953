"""A command that is run with each alert: an Alert in, a process with it on its standard input and in its environment.

No shell is used, so that nothing in an alert, such as the name of a layer, can become a command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from neuraldbg import clocks
from neuraldbg.alerts.sink import NotDelivered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neuraldbg.nouns.alert import Alert

LIMIT_S = 30.0
"""Seconds that a command may take before it is killed."""
PREFIX = "NEURALDBG_ALERT_"
_WORDS = 200
"""Characters of a command's error message that are repeated."""


def variables(alert: Alert) -> dict[str, str]:
    """Return the environment variables of an alert: NEURALDBG_ALERT_SEVERITY, _RULE, _TEXT, _STEP, _LAYER, ..."""
    names = ("severity", "rule", "text", "step", "layer", "value", "subject", "held_back", "rank", "run", "script")
    told = {name: getattr(alert, name) for name in names}
    return {f"{PREFIX}{name.upper()}": _text(value) for name, value in told.items()}


class AlertCommand:
    """Runs a command for each alert, one at a time, in a process group of its own; its output goes nowhere."""

    def __init__(self, command: Sequence[str], limit_s: float = LIMIT_S) -> None:
        self._command, self._limit_s = tuple(command), limit_s
        self._process: Any = None
        self._until = 0.0
        self._said: IO[bytes] | None = None

    @property
    def name(self) -> str:
        """The sink as a sentence names it."""
        return f"the command {Path(self._command[0]).name!r}"

    @property
    def busy(self) -> bool:
        """True while the command runs."""
        return self._process is not None

    def put(self, alert: Alert) -> None:
        """Start the command."""
        environment = {**os.environ, **variables(alert)}
        try:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 (open until the command has ended)
            self._process = _started(self._command, alert.to_json().encode() + b"\n", environment, self._said)
        except (OSError, ValueError) as error:
            self._close()
            raise NotDelivered(str(error)) from None
        self._until = clocks.monotonic() + self._limit_s

    def turn(self, left_s: float | None) -> None:  # noqa: ARG002 (the contract of a sink)
        """See whether the command has ended; kill it if it takes too long."""
        if self._process is None:
            return
        status = self._process.poll()
        if status is None and clocks.monotonic() > self._until:
            self.abandon()
            raise NotDelivered(f"it did not end within {self._limit_s:g} s and was killed")
        if status is None:
            return
        self._process, words = None, self._words()
        self._close()
        if status:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise NotDelivered(f"it {how}{f': {words}' if words else ''}")

    def abandon(self) -> None:
        """Kill the command and what it has started."""
        if self._process is not None:
            self._process.kill()
        self._process = None
        self._close()

    def _words(self) -> str:
        """Return the last line that the command has written to its standard error."""
        if self._said is None:
            return ""
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - 4 * _WORDS))
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:_WORDS] if lines else ""

    def _close(self) -> None:
        if self._said is not None:
            self._said.close()
            self._said = None


class _Spawned:
    """A process that ``posix_spawn`` has started. Python's ``subprocess`` would pass on the signal mask of our thread,
    which blocks all signals: no SIGTERM could end the command.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], given: int, said: int) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._pid = os.posix_spawn(
                command[0],
                list(command),
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, given, 0),
                    (os.POSIX_SPAWN_DUP2, nothing, 1),
                    (os.POSIX_SPAWN_DUP2, said, 2),
                ],
                setpgroup=0,  # Ctrl-C is for the training
                setsigmask=(),
                setsigdef=[getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)],
            )
        finally:
            os.close(nothing)

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # the program has waited for all its children
            return 0
        return os.waitstatus_to_exitcode(status) if pid else None

    def kill(self) -> None:
        """Kill the process with its group, and take its exit status."""
        with contextlib.suppress(OSError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(self._pid, 0)


def _started(command: Sequence[str], given: bytes, environment: Mapping[str, str], said: IO[bytes]) -> Any:
    """Start a command that finds ``given`` on its standard input, and writes its errors to ``said``."""
    if sys.platform == "win32":
        process = subprocess.Popen(  # noqa: S603 (the user's command, without a shell)
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, env=dict(environment)
        )
        with contextlib.suppress(OSError):
            process.communicate(given, timeout=0)
        return process
    with tempfile.TemporaryFile() as file:  # a pipe holds as much as it likes; a file is there as a whole
        file.write(given)
        file.seek(0)
        return _Spawned(command, environment, file.fileno(), said.fileno())


def _text(value: object) -> str:
    """Return a value as an environment variable may have it: text without NUL."""
    return "" if value is None else str(value).replace("\0", "")
