"""The dashboard's end of the connection to the training beside it: requests of the page in, its state out.

The training connects, once, to a socket of this machine, and both show that they know the secret which this process got
on its standard input. The state comes from the training alone; a training that does not answer is told as such.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

TRAINING = "/training"
"""Path to which the page sends its requests."""
ASKS = {"look": (), "pause": (), "continue": ("stop",), "layer": ("stop",), "step": ("stop",),
        "set": ("layer", "moment"), "clear": ("layer", "moment"), "clear all": ()}  # fmt: skip
"""Requests of the page, with the fields that each must have."""
MOMENTS = ("after_layer", "after_backward")
"""Moments of a layer at which the page can set a breakpoint."""
LONGEST = 1_000
"""Characters of a layer's path at most."""
_ACCEPT_S = 0.2
PATIENCE_S = 1.5
"""Seconds that a request waits for the training, which may be in one long operation of the GPU or of a library."""


class TrainingLink:
    """Asks the training for its state, and passes on what a page asks for. Requests of several pages take turns.

    ``key_of`` returns the key of the run in a file of the run folder.
    """

    def __init__(
        self, listening: socket.socket, secret: str, lease_s: float, key_of: Callable[[str], str] = str
    ) -> None:
        self._key_of = key_of
        self._listening, self._secret, self._lease_s = listening, secret.encode(), lease_s
        self._connection: Connection | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._over = False

    def start(self) -> None:
        """Wait for the training, in a thread."""
        threading.Thread(target=self._accept, name="neuraldbg-awaits-training", daemon=True).start()

    def close(self) -> None:
        """End the connection, and wait for the training no more."""
        self._over = True
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _accept(self) -> None:
        with self._listening as listening:
            listening.settimeout(_ACCEPT_S)
            while self._connection is None and not self._over:
                try:
                    arrived, _ = listening.accept()
                except TimeoutError:
                    continue
                except OSError:  # such as no free descriptor
                    time.sleep(_ACCEPT_S)
                    continue
                # Another program of this machine may connect and say nothing: it must not keep the training out.
                arrived.setblocking(True)
                threading.Thread(target=self._greet, args=(Connection(arrived.detach()),), daemon=True).start()

    def _greet(self, connection: Connection) -> None:
        try:
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
        except (AuthenticationError, EOFError, OSError, AssertionError, ValueError):
            with suppress(OSError):
                connection.close()
            return
        with self._lock:
            if self._connection is None and not self._over:  # the training connects once
                self._connection = connection
                return
        connection.close()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of the training after a request of the page: see ``PageStops.answer``. ``state`` is also
        "waiting" before the training has connected, "late" if it does not answer, and "over" once it has ended.
        """
        with self._lock:
            if self._connection is None:
                return {"state": "over" if self._over else "waiting"}
            number = next(self._numbers)
            sent = {**request, "id": number, "lease": self._lease_s}
            try:
                self._connection.send_bytes(json.dumps(sent).encode())
                while self._connection.poll(PATIENCE_S):
                    reply: dict[str, Any] = json.loads(self._connection.recv_bytes())
                    if reply.pop("id", None) == number:  # not the late answer to an earlier request
                        return {**reply, "run": self._key_of(reply["file"]) if reply.get("file") else ""}
            except (EOFError, OSError, ValueError):
                self._connection.close()
                self._connection, self._over = None, True
                return {"state": "over"}
            return {"state": "late"}


def is_request(body: Any) -> bool:
    """Return True if the JSON of a POST is a request that the page sends for the training."""
    if not isinstance(body, dict) or not isinstance(do := body.get("do"), str) or do not in ASKS:
        return False
    kinds = {"stop": int, "layer": str, "moment": str, "layers": int}
    wanted = ("do", *ASKS[do])
    return (
        set(wanted) <= set(body) <= {*wanted, "layers"}
        and all(type(value) is kinds[name] for name, value in body.items() if name != "do")
        and len(body.get("layer", "")) <= LONGEST
        and body.get("moment", MOMENTS[0]) in MOMENTS
    )
