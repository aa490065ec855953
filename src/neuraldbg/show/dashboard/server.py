"""Serves the dashboard's page: a Dash app and a listening socket in, requests answered until it is told to stop."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from neuraldbg.errors import MissingExtra
from neuraldbg.show.dashboard import HOST
from neuraldbg.show.dashboard.guard import Guard, Hosts, policy
from neuraldbg.show.dashboard.port import address, opening

if TYPE_CHECKING:
    import socket

    from dash import Dash


class Server:
    """A threaded WSGI server behind a Guard. Whoever makes one serves it, or closes it.

    ``token`` is the secret of the address; without it a new one is drawn.
    """

    def __init__(
        self, app: Dash, listening: socket.socket, *, host: str = HOST, expose: bool = False, token: str | None = None
    ) -> None:
        self._token = token or secrets.token_urlsafe(32)
        self._root = address(listening, host)
        hashes = app.csp_hashes()
        self._guard = Guard(app.server, self._token, Hosts(host, exposed=expose), policy(hashes))
        self._wsgi = _server(listening, self._guard)

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return opening(self._root, self._token)

    def ticket(self) -> str:
        """Return an address that opens the page once."""
        return opening(self._root, self._guard.ticket())

    def serve(self) -> None:
        """Answer requests until ``stop`` is called, or Ctrl-C."""
        self._wsgi.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """Make ``serve`` return; to be called from another thread."""
        self._wsgi.shutdown()

    def close(self) -> None:
        """Give the port back, of a server that is not serving."""
        self._wsgi.server_close()


def _server(listening: socket.socket, app: Any) -> Any:
    try:
        from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler  # noqa: PLC0415 (comes with dash)
    except ImportError:
        raise MissingExtra("the dashboard", "dashboard") from None

    class Quiet(WSGIRequestHandler):
        """Logs nothing, since requests carry the token; says nothing of what serves; and waits for nobody forever."""

        timeout = 30
        server_version = "neuraldbg"

        def version_string(self) -> str:
            return "neuraldbg"

        def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 (the name is werkzeug's)
            pass

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    host, port = listening.getsockname()[:2]
    served = ThreadedWSGIServer(host, port, app, Quiet, fd=listening.fileno())
    listening.close()  # the server has a descriptor of its own
    return served
