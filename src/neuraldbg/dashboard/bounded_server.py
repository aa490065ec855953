"""A threaded WSGI server with a limit on the number of connections, and on the time of each.

A connection takes a thread and a descriptor of this process. If all places are taken, the connection that has waited
longest without sending its request is closed; if all are being answered, the next one waits in the backlog of the
socket, and gets status 503 if that takes too long. No action of a client writes to the terminal.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from neuraldbg.dashboard.guard import ARRIVED

if TYPE_CHECKING:
    from neuraldbg.dashboard.guard import Environ

PLACES = 64
"""Connections at once at most. A browser keeps six."""
REQUEST_S, ANSWER_S = 10.0, 120.0
"""Seconds that a request may take to arrive, and that a connection with a request may be open."""
QUIET_S = 0.5
"""Seconds without a request after which a connection is closed in favour of another."""
PATIENCE_S = 15.0
"""Seconds that the next connection waits for a place."""
_TICK_S = 0.05
_PIECE = 1 << 16
_AWAY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 43\r\n"
    b"Retry-After: 2\r\nConnection: close\r\n\r\nThe dashboard is busy: try it again soon.  \n"
)


class BoundedServer(ThreadedWSGIServer):
    """Serves a WSGI application on a listening socket, which it takes over."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, app: Any, most: int) -> None:
        host, port = listening.getsockname()[:2]
        self._places = threading.Condition()
        self._open: dict[int, _Connection] = {}
        """Open connections by the id of their socket, the oldest first."""
        self.most = most
        """Bytes of a request's body at most."""
        self.ending = False
        super().__init__(host, port, app, _Handler, fd=listening.fileno())
        listening.close()  # the server has a descriptor of its own

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own once there is a place for it, or with status 503."""
        if not self._place(request):
            with suppress(OSError):
                request.setblocking(False)
                request.send(_AWAY)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def _place(self, request: socket.socket) -> bool:
        """Take a place, waiting up to PATIENCE_S. Return False if there was none."""
        until = time.monotonic() + PATIENCE_S
        with self._places:
            while len(self._open) >= PLACES:
                if self.ending or time.monotonic() > until:
                    return False
                self._end_late(QUIET_S, 1)
                self._end_late(REQUEST_S)
                self._places.wait(_TICK_S)
            self._open[id(request)] = _Connection(request, time.monotonic())
        return True

    def arrived(self, request: socket.socket) -> None:
        """Note that the request of a connection has arrived, and is being answered."""
        with self._places:
            connection = self._open.get(id(request))
            if connection is not None:
                connection.arrived = True

    def close_request(self, request: Any) -> None:
        """Release the place of a connection, and close it."""
        with self._places:
            self._open.pop(id(request), None)
            self._places.notify_all()
        super().close_request(request)

    def service_actions(self) -> None:
        """Close connections that have been open for too long. Called several times a second."""
        with self._places:
            self._end_late(REQUEST_S)

    def _end_late(self, request_s: float, most: int = PLACES) -> None:
        """Shut down up to ``most`` late connections, the oldest first; their threads then end."""
        now = time.monotonic()
        for connection in list(self._open.values()):
            late = ANSWER_S if connection.arrived else request_s
            if now - connection.began > late and not connection.ended:
                connection.ended = True
                with suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RDWR)
                most -= 1
            if not most:
                return

    def get_request(self) -> Any:
        """Accept a connection. If that fails, as without a free descriptor, pause before the error is raised."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_TICK_S)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a failed connection, also one for which no thread could be started."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 (the name is werkzeug's)
        """Write nothing: requests contain the token, and the terminal may be that of a training."""


class _Connection:
    """An open connection: its socket, its start by the monotonic clock, and its state."""

    def __init__(self, opened: socket.socket, began: float) -> None:
        self.socket, self.began = opened, began
        self.arrived = self.ended = False


class _Handler(WSGIRequestHandler):
    """Handles requests without logging, without naming the server software, and with a timeout."""

    timeout = REQUEST_S
    server: BoundedServer
    server_version = "neuraldbg"

    def version_string(self) -> str:
        return "neuraldbg"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 (the name is werkzeug's)
        pass

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def run_wsgi(self) -> None:
        """Answer a request whose head was read, with status 400 if its address is invalid."""
        # werkzeug reads up to 10 MB beyond the request into memory, to throw them away.
        self.rfile = _Body(self.rfile, self.server.most)  # type: ignore[assignment]
        try:
            self.make_environ()
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        super().run_wsgi()

    def make_environ(self) -> Environ:
        environ = super().make_environ()
        environ[ARRIVED] = lambda: self.server.arrived(self.connection)
        return environ

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse an invalid HTTP request with a line of plain text, which repeats no text of the client."""
        del message, explain
        said = f"{code} {HTTPStatus(code).phrase}\n".encode()
        self.close_connection = True
        self.request_version = self.request_version or "HTTP/1.1"  # empty before the first line was read
        if self.request_version == "HTTP/0.9":
            self.request_version = "HTTP/1.1"
        self.send_response_only(code, HTTPStatus(code).phrase)
        for name, value in (("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(said))),
                            ("X-Content-Type-Options", "nosniff"), ("Connection", "close")):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)


class _Body:
    """The body of a request, read in pieces, up to the limit of a request."""

    def __init__(self, file: Any, most: int) -> None:
        self._file, self._left = file, most + _PIECE

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes; b"" at the end, at the limit, and if the client is gone."""
        size = min(size if size >= 0 else self._left, self._left, _PIECE)
        try:
            data: bytes = self._file.read1(size) if size else b""
        except OSError:  # the client is gone; after an exception werkzeug would leave its selector open
            data = b""
        self._left -= len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
