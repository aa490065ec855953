"""An address that each alert is posted to: an Alert in, one HTTP request with its JSON out, repeated if that failed."""

from __future__ import annotations

import base64
import contextlib
import encodings.idna  # noqa: F401 (looked up by the socket: the program may have a module of such a name)
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from neuraldbg import clocks
from neuraldbg.alerts.sink import NotDelivered

if TYPE_CHECKING:
    from neuraldbg.nouns.alert import Alert

TIMEOUT_S = 5.0
"""Seconds that the server may stay silent."""
PAUSES_S = (1.0, 3.0)
"""Seconds before the second and the third request for an alert, which is the last. After an alert that could not be
delivered there is only one."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which another request may succeed."""


class Webhook:
    """Posts each alert to an address, as JSON. A redirect is followed within its host, and nowhere else."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._url, self._headers = _apart(url)
        self._timeout_s, self._pauses_s = timeout_s, pauses_s
        self._opener = urllib.request.build_opener(_SameHost)
        self._alert: Alert | None = None
        self._tries = 0
        self._due = 0.0
        self._failed = False
        """True if the last alert could not be delivered."""

    @property
    def name(self) -> str:
        """The sink as a sentence names it: the rest of the address may be secret."""
        return f"the webhook at {_host(self._url)}"

    @property
    def busy(self) -> bool:
        """True while an alert waits for its next request."""
        return self._alert is not None

    def put(self, alert: Alert) -> None:
        """Post an alert."""
        self._alert, self._tries, self._due = alert, 0, 0.0
        self.turn(None)

    def turn(self, left_s: float | None) -> None:
        """Post the alert again if it is time to; at the end of the session at once, and for the last time."""
        ending = left_s is not None
        if self._alert is None or (clocks.monotonic() < self._due and not ending):
            return
        self._tries += 1
        problem, again = self._post(self._alert, min(self._timeout_s, max(left_s or self._timeout_s, 0.1)))
        if problem and again and not ending and not self._failed and self._tries <= len(self._pauses_s):
            self._due = clocks.monotonic() + self._pauses_s[self._tries - 1]
            return
        self._alert, self._failed = None, bool(problem)
        if problem:
            raise NotDelivered(problem)

    def abandon(self) -> None:
        """Give up the alert that waits for its next request."""
        self._alert = None

    def _post(self, alert: Alert, timeout_s: float) -> tuple[str, bool]:
        """Post an alert once. Return what went wrong, "" if nothing did, and True if another try may succeed."""
        request = urllib.request.Request(self._url, alert.to_json().encode(), self._headers, method="POST")  # noqa: S310 (checked)
        try:
            with contextlib.closing(self._opener.open(request, timeout=timeout_s)):
                return "", False
        except _Elsewhere as error:
            return str(error), False
        except urllib.error.HTTPError as error:
            error.close()
            return f"it answered with status {error.code}", error.code in _AGAIN
        except TimeoutError:
            return f"it did not answer within {timeout_s:g} s", True
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                return f"it did not answer within {timeout_s:g} s", True
            return _reason(error.reason), True
        except (OSError, HTTPException, ValueError) as error:
            return _reason(error), True


class _Elsewhere(Exception):
    """Raised for a redirect that is not followed."""


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirect with the same POST, if it stays on its host: an alert is for nobody else."""

    max_redirections = 3

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the request that follows a redirect."""
        del fp, msg, headers
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if old.hostname != new.hostname or (old.scheme, new.scheme) == ("https", "http") or code == 303:
            where = "to another page" if code == 303 else f"to {new.scheme}://{new.hostname}"
            raise _Elsewhere(f"it redirects {where}, which is not followed: give the address that takes alerts")
        return urllib.request.Request(newurl, req.data, req.headers, method="POST")  # noqa: S310 (as the first)

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302


def _apart(url: str) -> tuple[str, dict[str, str]]:
    """Return an address without the name and password in it, and the headers of a request, which have them."""
    headers = {"Content-Type": "application/json", "User-Agent": "neuraldbg"}
    parts = urlsplit(url)
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return url, headers


def _host(url: str) -> str:
    """Return scheme, host and port of an address, without names, passwords and paths, which may be secret."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def _reason(error: object) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
