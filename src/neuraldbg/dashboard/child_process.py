"""The dashboard beside a training: a process of its own, which can neither slow nor fail the program that is watched.

``Beside`` is what ``neuraldbg run`` holds. It imports nothing but the standard library, since the program's own
imports come first: the port is taken and the address is known before anything of the dashboard has been loaded, and a
browser that comes early waits. ``main`` is what the other process does: it ends when it is told to, or when the
training's process is gone, however that went.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from neuraldbg.dashboard import HOST
from neuraldbg.dashboard.port import address, listen, opening

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = Path(__file__).resolve().parents[1]
# Where python was started must not lend it modules: a `random.py` beside a script is the script's.
_START = (
    f"import sys; sys.path[0:1] = [{str(PACKAGE.parent)!r}]; from neuraldbg.dashboard.child_process import main; main()"
)
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NICE = 10
_PARENT_S = 0.5
"""How often the process looks whether the training is still there."""
_TOLD = 70
"""The exit status of a dashboard that has said itself why it ended."""
_GONE_S = 5.0


class Beside:
    """A dashboard that runs beside this process, of a run folder that may not be there yet."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        """ConfigError where the port cannot be had."""
        self.folder = folder
        listening, self.said = listen(HOST, port)
        """What is to be said about the port."""
        with listening:
            token = secrets.token_urlsafe(32)
            self.url = opening(address(listening, HOST), token)
            self._process = _started(listening, {"folder": str(folder), "token": token})

    def wait(self) -> None:
        """Return when the user ends it with Ctrl-C, or when it has ended."""
        try:
            self._process.wait()
        except KeyboardInterrupt:
            self.end()

    def end(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(_GONE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            if self._process.stdin is not None:
                self._process.stdin.close()

    @property
    def problem(self) -> str | None:
        """Return why there is no dashboard any more; None while there is one, or when it has told that itself."""
        status = self._process.poll()
        if status is None or status == _TOLD:
            return None
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return (
            f"the dashboard ended early {how}; the training went on without it. "
            f"Open it again with: neuraldbg dashboard {shlex.quote(str(self.folder))}"
        )


def _started(listening: socket.socket, asked: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    shared = sys.platform == "win32"
    process = subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,  # the token is for nobody who can see command lines or environments
        stdout=subprocess.DEVNULL,
        env=os.environ | dict.fromkeys(_ONE_THREAD, "1"),
        pass_fds=() if shared else (listening.fileno(),),
        # Ctrl-C is for the training.
        start_new_session=not shared,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    passed: str | int = listening.fileno()
    if sys.platform == "win32":
        passed = base64.b64encode(listening.share(process.pid)).decode()
    assert process.stdin is not None
    process.stdin.write(json.dumps({**asked, "socket": passed, "parent": os.getpid()}).encode() + b"\n")
    process.stdin.flush()
    if not shared:
        process.stdin.close()
    return process


# ---------------------------------------------------------------- in the other process


def main() -> None:
    """Serve the dashboard of the folder that standard input names."""
    terminal, sys.stderr = sys.stderr, Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (to the end)
    asked = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with, args=(asked["parent"],), daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_NICE)
    try:
        _serve(asked)
    except Exception as error:  # noqa: BLE001 (one line, among the output of somebody's training)
        _tell(terminal, error)
        os._exit(_TOLD)
    os._exit(0)


def _serve(asked: Mapping[str, Any]) -> None:
    from neuraldbg.dashboard.run_feed import RunFeed  # noqa: PLC0415 (see the module's docstring)
    from neuraldbg.dashboard.server import page_server  # noqa: PLC0415
    from neuraldbg.dashboard.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    feed = RunFeed(Path(asked["folder"]), pace_s=settings.refresh_rate / 2, begins=True)
    server = page_server(feed, settings, _listening(asked["socket"]), token=asked["token"])
    feed.start()
    server.serve()


def _listening(passed: Any) -> socket.socket:
    if sys.platform == "win32":
        return socket.fromshare(base64.b64decode(passed))
    return socket.socket(fileno=passed)


def _end_with(parent: int) -> None:
    """End when the training's process does."""
    if sys.platform == "win32":  # a process keeps its parent's number there; but nobody else holds the pipe
        sys.stdin.buffer.read()
    else:
        while os.getppid() == parent:
            time.sleep(_PARENT_S)
    os._exit(0)


def _tell(terminal: TextIO | None, error: Exception) -> None:
    from neuraldbg.errors import NeuralDbgError  # noqa: PLC0415

    what = str(error) if isinstance(error, NeuralDbgError) else f"{type(error).__name__}: {error}"
    if terminal is not None:
        wipe = "\r\x1b[2K" if terminal.isatty() else ""  # the status line of the run may stand there
        terminal.write(f"{wipe}neuraldbg: there is no dashboard: {what}\n")
        terminal.flush()
