"""A tunnel to the dashboard from outside: a kind in, an address that was tried without the token out.

The dashboard's own process opens it, never the training's. Its program is held by a process of its own
(``tunnel_process.py``), which ends with the dashboard. While the tunnel is open its host name is allowed; a request
without the token must be refused through it before its address is printed.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from neuraldbg.dashboard import HOST
from neuraldbg.dashboard.port import opening
from neuraldbg.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.dashboard.guard import Hosts

TTL_S = 8 * 3600.0
"""Seconds after which a tunnel is closed unless another time is given."""
OPEN_S = 30.0
"""Seconds in which the program must print an address, and then again in which the address must lead here."""
_TRY_S, _PAUSE_S, _END_S = 10.0, 0.5, 6.0
_REFUSED = (401, 403)
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_PATHS = ("/", "/_dash-layout")
"""Paths that are tried: the page, and the data of it."""
_ROOT = Path(__file__).resolve().parents[2]
_START = f"import sys; sys.path[0:1] = [{str(_ROOT)!r}]; from neuraldbg.dashboard.tunnel_process import main; main()"


@dataclass(frozen=True)
class Wanted:
    """The kind of a tunnel and the seconds after which it is closed, as the command line gives them."""

    kind: str
    ttl_s: float = TTL_S

    def check(self) -> None:
        """Look for the program, before anything is run. Raises ConfigError and MissingExtra."""
        if self.kind == "ngrok" and find_spec("pyngrok") is None:
            raise MissingExtra("--tunnel ngrok", "tunnel")
        if self.kind == "cloudflared" and shutil.which("cloudflared") is None:
            raise ConfigError(
                "--tunnel cloudflared: there is no program cloudflared on PATH, and nothing is downloaded here; "
                "install it, or use --tunnel alone, which prints the ssh command to type"
            )


def ssh_line(port: int, host: str = HOST) -> str:
    """Return the command that leads a port of another machine here, with the user and name of this one."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run a user without a name
        user = "USER"
    return f"ssh -L {port}:{_bracketed(host)}:{port} {user}@{socket.gethostname() or 'THIS_MACHINE'}"


def ssh_sentence(port: int, host: str = HOST) -> str:
    """Return the sentence that tells how to open the page on another machine."""
    return f"from another machine, type there: {ssh_line(port, host)}  and open the address above"


def spelled(seconds: float) -> str:
    """Write a time as ``--tunnel-ttl`` takes it: ``8h``, ``30m``, ``45s``."""
    for unit, name in ((3600, "h"), (60, "m")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds // unit:.0f}{name}"
    return f"{seconds:g}s"


class Tunnel:
    """A tunnel to a server that is about to serve. ``say`` prints a sentence, ``hosts`` is the server's."""

    def __init__(self, wanted: Wanted, target: str, token: str, hosts: Hosts, say: Callable[[str], None]) -> None:
        self._wanted, self._target, self._token, self._hosts, self._say = wanted, target, token, hosts, say
        self._closing = threading.Event()
        self._lines: queue.Queue[dict[str, str]] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._live, name="neuraldbg-tunnel", daemon=True)

    def start(self) -> None:
        """Open the tunnel, and close it after its time, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Close the tunnel, and wait until it is closed."""
        self._closing.set()
        self._lines.put({"closed": ""})
        if self._thread.is_alive():
            self._thread.join(OPEN_S)

    def _live(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001 (one line; nobody would see the traceback of this thread)
            self._say(f"there is no tunnel: {type(error).__name__}: {error}")
        finally:
            self._end()

    def _open(self) -> None:
        began = time.monotonic()
        self._process = _started(self._wanted.kind, self._target)
        threading.Thread(target=self._read, args=(self._process,), name="neuraldbg-tunnel-reads", daemon=True).start()
        line = self._next(OPEN_S)
        root = line.get("address", "")
        problem = line.get("problem") or ("" if line else f"{self._wanted.kind} printed no address within {OPEN_S:g} s")
        if not problem and root:
            name, problem = _host_of(root)
        if problem:
            self._say(f"there is no tunnel: {problem}")
        if problem or not root:
            return
        # The host is allowed from here on: a request under a foreign name would be refused in any case.
        with self._hosts.also(name):
            problem = self._tried(root)
            if self._closing.is_set():
                return
            if problem:
                self._say(f"there is no tunnel: {problem}; it was closed")
                return
            closes = spelled(self._wanted.ttl_s)
            self._say(
                f"the tunnel is at {opening(root + '/', self._token)}\n"
                f"  Whoever has this address can read the run until the tunnel closes, in {closes}."
            )
            line = self._next(max(0.0, self._wanted.ttl_s - (time.monotonic() - began)))
        self._end()
        if line.get("problem"):
            self._say(f"the tunnel is closed: {line['problem']}; the dashboard goes on without it")
        elif not line:
            self._say(f"the tunnel was closed after {spelled(self._wanted.ttl_s)}; the dashboard goes on without it")

    def _next(self, seconds: float) -> dict[str, str]:
        """Return what the program says next; nothing if the time is over."""
        try:
            return self._lines.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return {}

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with suppress(OSError, ValueError), process.stdout:
            for line in process.stdout:
                told = json.loads(line)
                if isinstance(told, dict):
                    self._lines.put(told)
        self._lines.put({"problem": f"the process that held {self._wanted.kind} ended"})

    def _tried(self, root: str) -> str:
        """Return "" if requests without the token are refused through the tunnel, else a sentence."""
        until, last = time.monotonic() + OPEN_S, ""
        waiting = list(_PATHS)
        while waiting and not self._closing.is_set():
            status, last = _status(root, waiting[0])
            if status in _REFUSED:
                waiting.pop(0)
                continue
            if 200 <= status < 400:
                return f"a request without the token was answered through {root} (status {status})"
            if not self._lines.empty():
                return self._lines.get_nowait().get("problem") or "it was closed"
            if time.monotonic() > until:
                return f"{root} does not lead to the dashboard after {OPEN_S:g} s ({last})"
            self._closing.wait(_PAUSE_S)  # a new name takes seconds to be known
        return ""

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        # Also what the process has left behind, if it was killed itself: it leads a group of its own.
        with suppress(OSError):
            if sys.platform == "win32":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _started(kind: str, target: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-c", _START, kind, target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=sys.platform != "win32",  # a Ctrl-C is for us
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def _host_of(root: str) -> tuple[str, str]:
    """Return the host name of an address, and "" or a sentence that says why the address is refused."""
    try:
        place = urlsplit(root)
        name, _ = (place.hostname or "").lower(), place.port
    except ValueError:
        return "", "its program printed an address that is none"
    if place.scheme not in {"http", "https"} or not _NAME.fullmatch(name):
        return "", "its program printed an address that is none"
    if place.scheme == "http" and not _is_loopback(name):
        return "", f"{root} is not encrypted"
    return name, ""


def _is_loopback(name: str) -> bool:
    try:
        return all(one[4][0] in {"127.0.0.1", "::1"} for one in socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


def _status(root: str, path: str) -> tuple[int, str]:
    """Return the status of a request without a token or a cookie; 0 and the reason if there is no answer."""
    place = urlsplit(root)
    make = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = make(place.netloc, timeout=_TRY_S)  # follows no redirection, and sends nothing of a session
    try:
        connection.request("GET", path, headers={"User-Agent": "neuraldbg", "ngrok-skip-browser-warning": "1"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        return 0, f"{type(error).__name__}: {error}"[:200]
    finally:
        connection.close()
    return status, f"status {status}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
