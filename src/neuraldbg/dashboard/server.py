"""The server of the dashboard's page: a Dash app and a listening socket in, requests answered until ``stop``."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from neuraldbg.dashboard import HOST
from neuraldbg.dashboard.guard import MOST, Guard, Hosts, policy
from neuraldbg.dashboard.port import address, opening
from neuraldbg.dashboard.training_link import TRAINING, is_request
from neuraldbg.errors import MissingExtra

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from dash import Dash

    from neuraldbg.dashboard.feed import Feed
    from neuraldbg.dashboard.guard import Proxy
    from neuraldbg.dashboard.settings import DashboardSettings
    from neuraldbg.dashboard.training_link import TrainingLink
    from neuraldbg.dashboard.tunnel import Tunnel, Wanted


def page_server(
    feed: Feed,
    settings: DashboardSettings,
    listening: socket.socket,
    *,
    host: str = HOST,
    expose: bool = False,
    token: str | None = None,
    training: TrainingLink | None = None,
    proxy: Proxy | None = None,
) -> Server:
    """Return a server of the page over a feed; with ``training`` the page can stop that one, with ``proxy`` it is also
    found through that. Raises MissingExtra if dash is not installed.
    """
    from neuraldbg.dashboard.page.app import make_app  # noqa: PLC0415 (needs what comes with dash)

    app = make_app(feed, settings, training, proxy.path if proxy is not None else "/")
    return Server(app, listening, host=host, expose=expose, token=token, proxy=proxy)


class Server:
    """A threaded WSGI server behind a Guard. The caller must call ``serve`` or ``close``.

    ``token`` is the secret of the address; if it is None, a random one is generated.
    """

    def __init__(
        self,
        app: Dash,
        listening: socket.socket,
        *,
        host: str = HOST,
        expose: bool = False,
        token: str | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        self._token = token or secrets.token_urlsafe(32)
        self._root = address(listening, host)
        hashes = app.csp_hashes()
        app.server.config["PROPAGATE_EXCEPTIONS"] = True  # to the guard: flask would write a traceback to the terminal
        self._hosts = Hosts(host, exposed=expose)
        self._guard = Guard(app.server, self._token, self._hosts, policy(hashes), _asked(app), proxy)
        self._wsgi = _server(listening, self._guard)

    @property
    def url(self) -> str:
        """URL of the page, with the token."""
        return opening(self._root, self._token)

    @property
    def port(self) -> int:
        """Port that the server listens on."""
        return urlsplit(self._root).port or 0

    def ticket(self) -> str:
        """Return a URL that opens the page once."""
        return opening(self._root, self._guard.ticket())

    def tunnel(self, wanted: Wanted, say: Callable[[str], None]) -> Tunnel:
        """Return a tunnel to this server, to be started by the caller; ``say`` prints a sentence about it."""
        from neuraldbg.dashboard.tunnel import Tunnel  # noqa: PLC0415 (only where it is asked for)

        place = urlsplit(self._root)
        return Tunnel(wanted, place.netloc, self._token, self._hosts, say)

    def serve(self) -> None:
        """Answer requests until ``stop`` is called, or Ctrl-C."""
        self._wsgi.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """Make ``serve`` return. Call this from another thread."""
        self._wsgi.ending = True
        self._wsgi.shutdown()

    def close(self) -> None:
        """Close the socket of a server that is not serving."""
        self._wsgi.server_close()


def _server(listening: socket.socket, app: Any) -> Any:
    try:
        from neuraldbg.dashboard.bounded_server import BoundedServer  # noqa: PLC0415 (needs what comes with dash)
    except ImportError:
        raise MissingExtra("the dashboard", "dashboard") from None
    return BoundedServer(listening, app, MOST)


def _asked(app: Dash) -> Callable[[str, Any], bool]:
    """Return a predicate for path and body of a POST: True if it is a valid request for one of the page's callbacks, or
    for the training.
    """

    def asked(path: str, body: Any) -> bool:
        if path == TRAINING:
            return is_request(body)
        if not isinstance(body, dict) or not isinstance(body.get("output"), str):
            return False
        known = app.callback_map.get(body["output"])
        if known is None or known.get("callback") is None:
            return False
        changed, outputs = body.get("changedPropIds"), body.get("outputs")
        return (
            isinstance(changed, list)
            and all(isinstance(name, str) for name in changed)
            and _same(body.get("inputs"), known["inputs"])
            and _same(body.get("state", []), known["state"])
            and all(map(_is_named, outputs if isinstance(outputs, list) else [outputs]))
        )

    return asked


def _same(given: Any, wanted: list[dict[str, Any]]) -> bool:
    """Return True if the values of a request are the inputs of a callback, in their order."""
    if not isinstance(given, list) or len(given) != len(wanted):
        return False
    return all(
        _is_named(one)
        and isinstance(one, list) == own["id"].startswith("{")  # a pattern matches any number of components
        and (isinstance(one, list) or all(one[key] == own[key] for key in ("id", "property")))
        for one, own in zip(given, wanted, strict=True)
    )


def _is_named(one: Any) -> bool:
    """Return True for the property of a component, or a list of such, of any length."""
    if isinstance(one, list):
        return all(isinstance(each, dict) and _is_named(each) for each in one)
    if not isinstance(one, dict) or not isinstance(one.get("property"), str):
        return False
    name = one.get("id")
    return isinstance(name, str) or (isinstance(name, dict) and all(isinstance(part, str) for part in name.values()))
