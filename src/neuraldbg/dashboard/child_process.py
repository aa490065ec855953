"""The dashboard beside a training: a separate process, which can neither slow down nor fail the watched program.

``neuraldbg run`` holds a ``Beside``. It imports only the standard library, since the program's own imports come first:
the port is bound and the address is known before the dashboard is loaded, and an early browser waits. ``main`` runs in
the other process: it ends when ``Beside.end`` is called, or when the training's process is gone for any reason.
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
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from neuraldbg.dashboard import HOST
from neuraldbg.dashboard.port import address, at_tab, listen, opening

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.dashboard.tunnel import Wanted

PACKAGE = Path(__file__).resolve().parents[1]
# The folder in which python was started must not be on the path: a `random.py` beside a script is the script's.
_START = (
    f"import sys; sys.path[0:1] = [{str(PACKAGE.parent)!r}]; from neuraldbg.dashboard.child_process import main; main()"
)
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NICE = 10
_PARENT_S = 0.5
"""Seconds between two checks of the process whether the training still runs."""
_TOLD = 70
"""Exit status of a dashboard that has printed itself why it ended."""
_GONE_S = 5.0


class Beside:
    """A dashboard in a process beside this one, for a run folder that may not exist yet."""

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        tunnel: Wanted | None = None,
        *,
        theme: str | None = None,
        tab: str | None = None,
    ) -> None:
        """Bind the port and start the process, which opens the tunnel, too. Raises ConfigError if the port is not
        available.
        """
        self.folder = folder
        listening, self.said = listen(HOST, port)
        """Sentences about the port."""
        # The training connects to the second socket, once it begins: see ``control/page_link.py``.
        with listening, socket.create_server((HOST, 0), backlog=8) as awaiting:
            token, secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
            self.url = at_tab(opening(address(listening, HOST), token), tab)
            self.port = int(listening.getsockname()[1])
            self.training = (HOST, int(awaiting.getsockname()[1]), secret)
            """Host, port and secret by which a session connects to the dashboard."""
            asked: dict[str, Any] = {"folder": str(folder), "token": token, "secret": secret, "theme": theme}
            if tunnel is not None and tunnel.kind != "ssh":
                asked["tunnel"] = [tunnel.kind, tunnel.ttl_s]
            self._process = _started({"socket": listening, "awaiting": awaiting}, asked)

    def wait(self) -> None:
        """Wait until the process has ended, or end it on Ctrl-C."""
        try:
            self._process.wait()
        except KeyboardInterrupt:
            self.end()

    def end(self) -> None:
        """Terminate the process, or kill it after five seconds."""
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
        """Sentence that says why the dashboard ended. None while it runs, or if it has printed the reason itself."""
        status = self._process.poll()
        if status is None or status == _TOLD:
            return None
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return (
            f"the dashboard ended early {how}; the training went on without it. "
            f"Open it again with: neuraldbg dashboard {shlex.quote(str(self.folder))}"
        )


def _started(sockets: Mapping[str, socket.socket], asked: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    shared = sys.platform == "win32"
    process = subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,  # others could see the token in a command line or an environment
        stdout=subprocess.DEVNULL,
        env=os.environ | dict.fromkeys(_ONE_THREAD, "1"),
        pass_fds=() if shared else tuple(one.fileno() for one in sockets.values()),
        # A session of its own, since Ctrl-C is for the training.
        start_new_session=not shared,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    passed: dict[str, str | int] = {name: one.fileno() for name, one in sockets.items()}
    if sys.platform == "win32":
        passed = {name: base64.b64encode(one.share(process.pid)).decode() for name, one in sockets.items()}
    assert process.stdin is not None
    process.stdin.write(json.dumps({**asked, **passed, "parent": os.getpid()}).encode() + b"\n")
    process.stdin.flush()
    if not shared:
        process.stdin.close()
    return process


# ---------------------------------------------------------------- in the other process


def main() -> None:
    """Serve the dashboard of the folder that is named on standard input."""
    terminal, sys.stderr = sys.stderr, Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (to the end)
    asked = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with, args=(asked["parent"],), daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_NICE)
    try:
        _serve(asked, terminal)
    except Exception as error:  # noqa: BLE001 (one line, among the output of somebody's training)
        _tell(terminal, f"there is no dashboard: {_words(error)}")
        os._exit(_TOLD)
    os._exit(0)


def _serve(asked: Mapping[str, Any], terminal: TextIO | None) -> None:
    from neuraldbg.dashboard.run_feed import RunFeed  # noqa: PLC0415 (see the module's docstring)
    from neuraldbg.dashboard.server import page_server  # noqa: PLC0415
    from neuraldbg.dashboard.settings import load_settings  # noqa: PLC0415
    from neuraldbg.dashboard.training_link import TrainingLink  # noqa: PLC0415

    settings = load_settings(theme=asked["theme"])
    feed = RunFeed(Path(asked["folder"]), pace_s=settings.refresh_rate / 2, begins=True)
    training = TrainingLink(_listening(asked["awaiting"]), asked["secret"], settings.lease, feed.key_of)
    server = page_server(feed, settings, _listening(asked["socket"]), token=asked["token"], training=training)
    feed.start()
    training.start()
    if "tunnel" in asked:
        from neuraldbg.dashboard.tunnel import Wanted  # noqa: PLC0415

        server.tunnel(Wanted(*asked["tunnel"]), lambda sentence: _tell(terminal, sentence)).start()
    server.serve()


def _listening(passed: Any) -> socket.socket:
    if sys.platform == "win32":
        return socket.fromshare(base64.b64decode(passed))
    return socket.socket(fileno=passed)


def _end_with(parent: int) -> None:
    """End this process when the training's process ends."""
    if sys.platform == "win32":  # the parent's id stays the same there, but the pipe is closed with the parent
        sys.stdin.buffer.read()
    else:
        while os.getppid() == parent:
            time.sleep(_PARENT_S)
    os._exit(0)


def _words(error: Exception) -> str:
    from neuraldbg.errors import NeuralDbgError  # noqa: PLC0415

    return str(error) if isinstance(error, NeuralDbgError) else f"{type(error).__name__}: {error}"


def _tell(terminal: TextIO | None, sentence: str) -> None:
    if terminal is not None:
        dumb = os.environ.get("TERM") in ("dumb", "unknown")
        wipe = "\r\x1b[2K" if terminal.isatty() and not dumb else ""  # the status line of the run may stand there
        with suppress(OSError, ValueError):
            terminal.write(f"{wipe}neuraldbg: {sentence}\n")
            terminal.flush()
