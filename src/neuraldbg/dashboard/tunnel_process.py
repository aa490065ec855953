"""The process that holds a tunnel's program: a kind and a port in, lines of JSON out.

    {"address": "https://..."}    the tunnel is open
    {"problem": "..."}            it is not, or not any more; the process ends

It runs beside the dashboard and ends the tunnel's program when its standard input ends: that happens when the dashboard
closes it, and also when the dashboard is gone for any reason, killed ones included. It imports only the standard
library, and pyngrok for ``ngrok``. No token comes here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

_CHECK_S = 0.5
_END_S = 3.0
_KEPT = 16 * 1024
"""Bytes of the program's output that are searched at a time: more than its longest line."""
_ADDRESS = re.compile(rb"\|\s+(https?://[\w.:\[\]-]+)/?\s+\||(https://(?!api\.)[a-z0-9-]+\.trycloudflare\.com)\b")
"""cloudflared prints its address alone in a box; its other lines have links to its documentation."""


def main() -> None:
    """Hold the tunnel that the command line names: ``ngrok`` or ``cloudflared``, host and port."""
    kind, target = sys.argv[-2:]
    with contextlib.suppress(ValueError, AttributeError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        (_ngrok if kind == "ngrok" else _cloudflared)(target)
    except Exception as error:  # noqa: BLE001 (of the tunnel's own package: one line, where the dashboard prints it)
        _say("problem", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    os._exit(0)


def _say(name: str, value: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(json.dumps({name: value}) + "\n")
        sys.stdout.flush()


def _when_closed(end: Any) -> None:
    """Call ``end`` and end this process once the dashboard is gone or has closed our standard input."""

    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 1024):
                pass
        with contextlib.suppress(Exception):
            end()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


# ---------------------------------------------------------------- cloudflared


def _cloudflared(target: str) -> None:
    program = shutil.which("cloudflared")
    if program is None:
        _say("problem", "there is no program cloudflared on PATH")
        return
    process = subprocess.Popen(  # noqa: S603 (the program that the user has installed)
        [program, "tunnel", "--no-autoupdate", "--url", f"http://{target}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 (no thread runs yet)
    )
    _when_closed(lambda: _end(process))
    assert process.stdout is not None
    text, found = b"", False
    # The output is read to its end: a program whose pipe is full would stand still.
    while part := os.read(process.stdout.fileno(), 64 * 1024):
        text = (text + part)[-_KEPT:]
        if not found and (match := _ADDRESS.search(text)):
            found = True
            _say("address", (match[1] or match[2]).decode("ascii", "replace"))
    _end(process)
    _say("problem", f"cloudflared ended with status {process.returncode}{_last(text)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last(text: bytes) -> str:
    """Return the last line of some output in a form that a terminal can show."""
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    said = "".join(char for char in lines[-1] if char.isprintable())[:200] if lines else ""
    return f": {said}" if said else ""


def _die_with_parent() -> None:
    """Have Linux kill the new program when this process dies: nothing reads our standard input after a SIGKILL."""
    import ctypes  # noqa: PLC0415

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# ---------------------------------------------------------------- ngrok


def _ngrok(target: str) -> None:
    from pyngrok import conf, ngrok  # noqa: PLC0415 (of an extra)

    settings: Any = conf.get_default()
    program = _agent(str(settings.ngrok_path))
    if program is None:
        _say(
            "problem",
            "the program ngrok is not installed, and nothing is downloaded here: install it from ngrok.com, or say "
            "`ngrok update` in a shell where pyngrok may download it",
        )
        return
    settings.ngrok_path = program  # pyngrok downloads one only if there is no file at its path
    _when_closed(ngrok.kill)
    # A name of our own: a tunnel that the user's configuration names pyngrok-default may add headers to requests.
    opened = ngrok.connect(target, "http", name=f"neuraldbg-{target.rpartition(':')[2]}", bind_tls=True)
    _say("address", str(opened.public_url).rstrip("/"))
    held = ngrok.get_ngrok_process().proc
    while held.poll() is None:
        time.sleep(_CHECK_S)
    _say("problem", f"ngrok ended with status {held.poll()}")


def _agent(configured: str) -> str | None:
    """Return the path of ngrok's own program; None if there is none. pyngrok installs a script of the same name, which
    downloads the program when it is started.
    """
    if Path(configured).is_file():
        return configured
    folders = os.environ.get("PATH", "").split(os.pathsep)
    for found in filter(None, (shutil.which("ngrok", path=folder) for folder in folders if folder)):
        with contextlib.suppress(OSError), Path(found).open("rb") as file:
            head = file.read(2)
            # On Windows the script is in an .exe beside its python.
            if head != b"#!" and not (sys.platform == "win32" and "Scripts" in Path(found).parts):
                return found
    return None
