"""The access control of the dashboard: a WSGI application in, one that answers only its owner's browser out.

A run is private, and any page that a browser has open can send requests to this machine. So a request must, in this
order: name a host that is ours (another name may lead here by DNS rebinding), contain the secret (the token of the
printed address once, then a cookie that other sites cannot send), and, if it is a POST, come from our own page. Any
other request gets one sentence.
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import json
import secrets
import socket
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from neuraldbg.dashboard.port import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Headers = list[tuple[str, str]]
    Environ = dict[str, Any]
    StartResponse = Callable[..., Callable[[bytes], object]]
    Application = Callable[[Environ, StartResponse], Iterable[bytes]]

MOST = 4 << 20
"""Bytes of a request at most: the page sends its state."""
DEPTH = 50
"""Nested lists and objects of a request at most."""
PROXY = "HTTP_X_NEURALDBG_PROXY"
"""Key in the WSGI environment of the header by which a proxy shows that it is ours."""
ARRIVED = "neuraldbg.arrived"
"""Key in the WSGI environment of a function to call when a request has arrived as a whole."""
_PAGE, ANSWER = str(Path(__file__).parent / "page"), "answer"
"""Folder and name of the function that builds answers."""
_LIBRARIES = "/_dash-component-suites/"
_ALWAYS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def policy(script_hashes: Sequence[str] = ()) -> str:
    """Return the Content-Security-Policy: no foreign source, and only inline scripts with one of the hashes."""
    rules = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", *script_hashes]),
        # plotly.js and cytoscape.js write rules into <style> elements of their own, and plotly sets `style` of SVG
        # text as an attribute: without this, figures lose their layout. Styles cannot run anything.
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",  # "download as png" goes through both
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


class Hosts:
    """The host names under which this server answers."""

    def __init__(self, host: str, *, exposed: bool) -> None:
        self._exposed = exposed
        self._names = {"localhost", host.lower()}
        self._tunnels: list[str] = []
        if exposed:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    @contextmanager
    def also(self, name: str) -> Iterator[None]:
        """Allow one more host name within this context: that of a tunnel while it is open."""
        self._tunnels.append(name)
        try:
            yield
        finally:
            self._tunnels.remove(name)

    def __contains__(self, header: object) -> bool:
        """Return True if a ``Host`` header names this server. Any port is accepted: a tunnel has another one."""
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        if name in self._names or name in self._tunnels:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # DNS rebinding needs a name: a page with a numeric address as its host comes from that machine itself.
        return address.is_loopback or self._exposed


@dataclass(frozen=True)
class Proxy:
    """A proxy on this machine that lets only its own users through, such as that of a Jupyter server."""

    path: str
    """Path under which its users find the page, with a slash at both ends."""
    secret: str
    """Value of the header ``PROXY`` that the proxy alone adds to a request."""

    def sent(self, environ: Environ) -> bool:
        """Return True if a request has come through the proxy."""
        return secrets.compare_digest(environ.get(PROXY, "").encode(), self.secret.encode())


class Guard:
    """A WSGI application that checks requests before it passes them to another."""

    def __init__(
        self,
        app: Application,
        token: str,
        hosts: Hosts,
        content_policy: str,
        asked: Callable[[str, Any], bool],
        proxy: Proxy | None = None,
    ) -> None:
        """Guard ``app``. ``asked`` returns True if the JSON of a POST to a path is a request that the application can
        answer.
        """
        self._app = app
        self._asked = asked
        self._hosts = hosts
        self._proxy = proxy
        self._tokens = [token.encode()]
        self._tickets: set[bytes] = set()
        self._pass = secrets.token_urlsafe(32)
        # Cookies are shared by all ports of a host: each dashboard has a cookie name of its own.
        self._cookie = f"neuraldbg-{hashlib.sha256(token.encode()).hexdigest()[:12]}"
        self._headers = (("Content-Security-Policy", content_policy), *_ALWAYS)

    def ticket(self) -> str:
        """Return a token that is valid once: other users can see command lines, such as that of a browser."""
        made = secrets.token_urlsafe(32)
        self._tickets.add(made.encode())
        return made

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Refuse a request, exchange its token for the cookie, or pass it to the application."""
        # In the order of the module's docstring: host, token or cookie, then origin and body.
        refusal = self._refusal(environ)
        if refusal is not None:
            return self._say(start_response, *refusal)
        given = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)).get(TOKEN)
        if given is not None:
            return self._exchange(environ, start_response, given.encode())
        if not self._known(environ):
            return self._say(
                start_response,
                HTTPStatus.FORBIDDEN,
                "This dashboard opens with the address that was printed when it was started: it carries a token.",
            )
        if environ["REQUEST_METHOD"] == "POST":
            refusal = self._refusal_of_post(environ)
            if refusal is not None:
                return self._say(start_response, *refusal)
        environ.get(ARRIVED, _nothing)()
        try:
            return self._app(environ, self._dressed(environ, start_response))
        except Exception as error:  # noqa: BLE001 (of the page, or of dash: shown in the browser; the terminal is not ours)
            return self._say(start_response, *_failed(environ, error))

    def _refusal_of_post(self, environ: Environ) -> tuple[HTTPStatus, str] | None:
        """Return status and sentence of a refusal; None for a valid POST, whose body is read and put back."""
        try:
            own = _own_origin(environ)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, "The Origin of this request is none."
        if not own:
            return HTTPStatus.FORBIDDEN, "This request comes from another page."
        body = _body(environ)
        if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != "application/json":
            return HTTPStatus.BAD_REQUEST, "The body of a request must be JSON, with that content type."
        try:
            question = json.loads(body)
        except (ValueError, RecursionError):
            return HTTPStatus.BAD_REQUEST, "The body of this request is no JSON, or not all of it arrived."
        if _deeper(question, DEPTH) or not self._asked(environ.get("PATH_INFO", ""), question):
            return HTTPStatus.BAD_REQUEST, "The body of this request is not one that this page sends."
        environ["wsgi.input"] = io.BytesIO(body)
        return None

    def _refusal(self, environ: Environ) -> tuple[HTTPStatus, str] | None:
        # A browser that was led here by another name does not know the proxy's secret.
        if environ.get("HTTP_HOST") not in self._hosts and not self._proxied(environ):
            return HTTPStatus.FORBIDDEN, "This dashboard is not served under this host name."
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD", "POST"}:
            return HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and POST."
        length = environ.get("CONTENT_LENGTH") or "0"
        # At most 11 digits are converted: a very long number would take long.
        plain = length.isascii() and length.isdecimal() and len(length) < 12
        if not plain or int(length) > MOST or "HTTP_TRANSFER_ENCODING" in environ:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large, or does not say how large it is."
        return None

    def _proxied(self, environ: Environ) -> bool:
        return self._proxy is not None and self._proxy.sent(environ)

    def _known(self, environ: Environ) -> bool:
        if self._proxied(environ):  # the proxy has asked its user for a password or a token of its own
            return True
        try:
            cookies = SimpleCookie(environ.get("HTTP_COOKIE", ""))
        except CookieError:
            return False
        shown = cookies[self._cookie].value if self._cookie in cookies else ""
        return secrets.compare_digest(shown.encode(), self._pass.encode())

    def _exchange(self, environ: Environ, start_response: StartResponse, given: bytes) -> Iterable[bytes]:
        """Set the cookie for a valid token, and redirect to the address without it, which keeps the page's state."""
        right = [secrets.compare_digest(given, token) for token in (*self._tokens, *self._tickets)]
        self._tickets.discard(given)
        if not any(right):
            return self._say(
                start_response,
                HTTPStatus.FORBIDDEN,
                "The token of this address is wrong, or of a dashboard that has ended.",
            )
        rest = [(k, v) for k, v in parse_qsl(environ["QUERY_STRING"], keep_blank_values=True) if k != TOKEN]
        # Always to the root: a path of the address could lead to another server (`//example.org`).
        headers = [
            ("Location", f"/?{urlencode(rest)}" if rest else "/"),
            ("Set-Cookie", f"{self._cookie}={self._pass}; Path=/; HttpOnly; SameSite=Strict"),
        ]
        return self._say(start_response, HTTPStatus.SEE_OTHER, "", headers)

    def _say(
        self, start_response: StartResponse, status: HTTPStatus, sentence: str, more: Headers | None = None
    ) -> Iterable[bytes]:
        body = f"{sentence}\n".encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            *self._headers,
            *(more or []),
        ]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _dressed(self, environ: Environ, start_response: StartResponse) -> StartResponse:
        # Dash's own libraries have their version in their name and hold no data: a reload may use the cache.
        library = environ.get("PATH_INFO", "").startswith(_LIBRARIES)
        own = {name.lower() for name, _ in self._headers} | ({"cache-control"} if not library else set())

        def start(status: str, headers: Headers, exc_info: Any = None) -> Callable[[bytes], object]:
            kept = [(name, value) for name, value in headers if name.lower() not in own]
            if not library:
                kept.append(("Cache-Control", "no-store"))
            return start_response(status, [*kept, *self._headers], exc_info)

        return start


def _own_origin(environ: Environ) -> bool:
    """Return True if a POST comes from a page of this server. Browsers always send an Origin with a POST. Raises
    ValueError for an invalid one.
    """
    given = environ.get("HTTP_ORIGIN", "")
    if not given.isprintable():
        raise ValueError(given)
    origin = urlsplit(given)
    _ = origin.port  # ValueError for a number that no port has
    return origin.scheme in {"http", "https"} and origin.netloc == environ.get("HTTP_HOST")


def _body(environ: Environ) -> bytes:
    """Read the body of a request up to its Content-Length; b"" if the client ends or waits too long before that."""
    left, parts = int(environ.get("CONTENT_LENGTH") or 0), []
    with suppress(OSError):
        while left and (part := environ["wsgi.input"].read(left)):
            parts.append(part)
            left -= len(part)
    return b"" if left else b"".join(parts)


def _deeper(value: Any, most: int) -> bool:
    """Return True for a value with more than ``most`` levels of nested lists and objects."""
    level = [value]
    while level and most >= 0:
        level = [item for each in level if isinstance(each, (list, dict))
                 for item in (each.values() if isinstance(each, dict) else each)]  # fmt: skip
        most -= 1
    return bool(level)


def _failed(environ: Environ, error: Exception) -> tuple[HTTPStatus, str]:
    """Return status and sentence for a request at which the application failed."""
    if environ.get("PATH_INFO", "").startswith(_LIBRARIES):  # dash raises if there is no such file
        return HTTPStatus.NOT_FOUND, "There is no such file."
    if environ["REQUEST_METHOD"] == "POST" and not _ours(error):
        return HTTPStatus.BAD_REQUEST, "The body of this request does not fit the question that it names."
    said = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace").decode()[:300]
    return HTTPStatus.INTERNAL_SERVER_ERROR, f"An internal error of NeuralDBG: {' '.join(said.split())}"


def _ours(error: Exception) -> bool:
    """Return True for an error of our own function, False if dash failed to parse the request."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(code.co_filename.startswith(_PAGE) and code.co_name == ANSWER for code in frames)


def _nothing() -> None:
    """Do nothing: the default for a server that does not set ARRIVED."""
