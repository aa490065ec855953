"""A process that has torch loaded and forks a child for each program: a few hundredths of a second instead of seconds.

``python -m tests.guest.server bare`` or ``watched``, and names of modules to import. It reads one request a line (JSON)
from standard input, and writes one reply a line when that program has ended. The child becomes an ordinary python
process: its interpreter is taken down in the ordinary way, so that a crash at exit is seen, and what it leaves behind
is written by the last of all exit handlers (``digest.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.guest import digest

POLL_S = 0.005


def main() -> int:
    """Serve until standard input is closed; in a child, run its program and return its exit status."""
    digest.install()  # before anything else registers an exit handler, so that ours comes last
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from tests.guest import child

    mode = sys.argv[1]
    child.preload(*sys.argv[2:], watched=mode == "watched")
    requests = os.dup(0)
    replies = os.dup(1)
    with Path(os.devnull).open("r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    request = _serve(requests, replies)
    if request is None:
        return 0
    os.close(requests)
    os.close(replies)
    status = child.become(request)
    digest.ends(status)
    return status


def _serve(requests: int, replies: int) -> dict[str, Any] | None:
    """Fork for every request. None at the end; a request where this is the child that has to answer it."""
    waiting = b""
    running: dict[int, tuple[dict[str, Any], float]] = {}
    _say(replies, {"ready": True})
    while True:
        ready, _, _ = select.select([requests], [], [], POLL_S if running else None)
        if ready:
            data = os.read(requests, 1 << 16)
            if not data:
                for pid in running:
                    _kill(pid)
                return None
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = os.fork()
                if not pid:
                    os.setpgid(0, 0)
                    return request
                running[pid] = request, time.monotonic()
        for pid, (request, began) in list(running.items()):
            seconds = time.monotonic() - began
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if not ended and seconds > request["timeout"]:
                if request.get("trace"):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGABRT)
                    time.sleep(0.2)
                _kill(pid)
                _, _, usage = os.wait4(pid, 0)
                status = None
            elif not ended:
                continue
            else:
                _kill(pid)  # what the program has left running
            del running[pid]
            cpu = usage.ru_utime + usage.ru_stime
            _say(replies, {"id": request["id"], "status": status, "seconds": seconds, "cpu": cpu})


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _say(replies: int, reply: dict[str, Any]) -> None:
    os.write(replies, json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
