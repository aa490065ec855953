"""A web server on the loopback that answers alerts in ways that a test chooses, and remembers what it was sent."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Hook:
    """A webhook: the answers that are still to be given (the last one stays), and the alerts that came."""

    def __init__(self, *answers: int | str) -> None:
        self.answers = list(answers) or [200]
        self.got: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.hangs = threading.Event()
        """Set at the end of the test: what hangs goes on."""
        self.url = ""

    def answer(self) -> int | str:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def served(*answers: int | str) -> Iterator[Hook]:
    """Serve a webhook. Answers: a status, "hang", "drop" (close at once), or "307 ADDRESS" for a redirect."""
    hook = Hook(*answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.requests.append(("POST", self.path, dict(self.headers)))
            answer = hook.answer()
            if answer == "hang":
                hook.hangs.wait(60)
                return
            if answer == "drop":
                return
            if isinstance(answer, str):
                status, _, where = answer.partition(" ")
                self.send_response(int(status))
                self.send_header("Location", where)
                self.end_headers()
                return
            if answer < 300:
                hook.got.append(json.loads(body))
            self.send_response(answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            hook.requests.append(("GET", self.path, dict(self.headers)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="webhook", daemon=True)
    thread.start()
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/alerts"
    try:
        yield hook
    finally:
        hook.hangs.set()
        server.shutdown()
        server.server_close()
        thread.join()
