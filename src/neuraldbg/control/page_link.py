"""The training's end of the connection to a dashboard: requests of its page in, the state of the training out.

A thread of its own answers them. It waits for the next request in ``recv``, so it costs nothing while no page asks. The
thread that trains never waits for the other process, but in ``hold``, and there only while a page is open.
"""

from __future__ import annotations

import hmac  # noqa: F401 (``Client`` imports it when it is called: by then the program's folder is on the path)
import json
import logging
import socket
from collections import deque
from multiprocessing.connection import Client
from typing import TYPE_CHECKING, Any, NamedTuple

from neuraldbg import clocks
from neuraldbg.unlisted_thread import UnlistedThread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection

_LOG = logging.getLogger("neuraldbg")
_POLL_S = 0.05
"""Seconds between two checks for an answer while the training is held."""
_SUSPENDED_S = 1.0
"""Seconds between two such checks after which the process is taken to have been suspended."""
LEAST_S, MOST_S = 1.0, 3600.0
"""Limits of a lease."""


class PageAddress(NamedTuple):
    """The place where the process of a dashboard waits for the training, and the secret that both know."""

    host: str
    port: int
    secret: str


class PageLink:
    """Answers the requests of a dashboard, and holds the training until its page says how to go on.

    ``answer`` returns the reply to a request; it is called in the thread of the link.
    """

    def __init__(self, address: PageAddress, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self._address, self._answer = PageAddress(*address), answer
        self._connection: Connection | None = None
        self._thread = UnlistedThread(self._serve, "neuraldbg-page-link")
        self._heard: float | None = None
        self.lease_s = 10.0
        """Seconds without a request of a page after which the training goes on by itself."""
        self._words: deque[str] = deque()
        self._closed = False

    def start(self) -> None:
        """Connect, in a thread: the dashboard may still be loading."""
        try:
            self._thread.start()
        except (RuntimeError, MemoryError):  # no thread can be started: the page shows the run, and cannot stop it
            _LOG.warning("neuraldbg: the dashboard cannot stop the training: no thread can be started.")

    def close(self) -> None:
        """Close the connection, and end the thread."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            try:
                # Closing it here would free a descriptor on which the thread waits.
                shared = socket.socket(fileno=connection.fileno())
                try:
                    shared.shutdown(socket.SHUT_RDWR)
                finally:
                    shared.detach()  # the descriptor is the connection's
            except (OSError, ValueError):  # closed by the thread meanwhile, or by the other end
                pass
            self._thread.ended_within(1.0)

    @property
    def watched(self) -> bool:
        """True while a page is open: the last request came within the lease, and the connection stands."""
        heard = self._heard
        return not self._closed and heard is not None and clocks.monotonic() - heard < self.lease_s

    def forget(self) -> None:
        """Forget words that came too late for the last ``hold``."""
        self._words.clear()

    def hold(self) -> str:
        """Wait for ``say``, and return its word; "" once no page is open any more."""
        polled = clocks.monotonic()
        while self.watched:
            if self._words:
                return self._words.popleft()
            clocks.sleep(_POLL_S)
            now, heard = clocks.monotonic(), self._heard
            if heard is not None and now - polled > _SUSPENDED_S:
                self._heard = heard + now - polled  # this process stood still (Ctrl-Z): it could hear of no page
            polled = now
        return ""

    def say(self, word: str) -> None:
        """Make ``hold`` return a word."""
        self._words.append(word)

    def _serve(self) -> None:
        host, port, secret = self._address
        try:
            connection = Client((host, port), family="AF_INET", authkey=secret.encode())
        except Exception:  # noqa: BLE001 (no dashboard, or another program at its port: the training goes on without)
            return
        self._connection = connection
        try:
            while not self._closed:
                request = json.loads(connection.recv_bytes(1 << 16))
                connection.send_bytes(json.dumps(self._reply(request)).encode())
        except (EOFError, OSError, ValueError):  # the dashboard has ended
            pass
        finally:
            self._heard = None
            self._connection = None
            connection.close()

    def _reply(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.lease_s = min(max(float(request.get("lease", self.lease_s)), LEAST_S), MOST_S)
        self._heard = clocks.monotonic()
        try:
            return {**self._answer(request), "id": request.get("id")}
        except Exception as error:  # noqa: BLE001 (an error of ours must not end the connection that holds the training)
            _LOG.debug("a request of the dashboard failed", exc_info=True)
            return {"state": "failed", "said": f"{type(error).__name__}: {error}", "id": request.get("id")}
