"""A client of the debug adapter protocol, as an IDE is one: https://microsoft.github.io/debug-adapter-protocol."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

WAIT_S = 120.0


def free_port() -> int:
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        return int(at.getsockname()[1])


class Ide:
    """Runs a program under debugpy and is the IDE at its other end."""

    def __init__(self, folder: Path, *program: str, just_my_code: bool = True, **environment: str) -> None:
        self.port = free_port()
        self.output = folder / "output.txt"
        command = [sys.executable, "-Xfrozen_modules=off", "-m", "debugpy", "--listen", f"127.0.0.1:{self.port}"]
        with self.output.open("w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                [*command, "--wait-for-client", *program],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._just_my_code = just_my_code
        self._number = 0
        self._waiting: list[dict[str, Any]] = []
        self.socket = self._connected()
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        self.ask("initialize", adapterID="test", linesStartAt1=True, pathFormat="path")
        attach = self._send("attach", justMyCode=self._just_my_code, subProcess=False)
        self.event("initialized")
        self.ask("setBreakpoints", source={"path": "nowhere.py"}, breakpoints=[])
        self.ask("configurationDone")
        self._answer(attach)
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the body of its answer."""
        return self._answer(self._send(command, **arguments))

    def event(self, kind: str) -> dict[str, Any]:
        """Return the body of the next event of a kind."""
        return self._find(lambda one: one["type"] == "event" and one["event"] == kind).get("body", {})

    def stopped(self) -> tuple[int, list[dict[str, Any]]]:
        """Wait for a stop. Return its thread and the frames of the stack, the innermost first."""
        thread = self.event("stopped")["threadId"]
        return thread, self.ask("stackTrace", threadId=thread)["stackFrames"]

    def variables(self, frame: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the local variables of a frame, by name."""
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        local = next(one for one in scopes if one["name"] == "Locals")
        return {one["name"]: one for one in self.inside(local)}

    def inside(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the parts of a value that can be unfolded."""
        return self.ask("variables", variablesReference=value["variablesReference"])["variables"]  # type: ignore[no-any-return]

    def value(self, frame: dict[str, Any], expression: str) -> str:
        """Evaluate an expression in a frame, as in the console of an IDE."""
        return str(self.ask("evaluate", expression=expression, frameId=frame["id"], context="repl")["result"])

    def goes_on(self, thread: int) -> None:
        self.ask("continue", threadId=thread)

    def ended(self) -> tuple[int, str]:
        """Return exit status and output of the program, once it has ended."""
        with contextlib.suppress(OSError, EOFError):
            self.event("terminated")
            self.ask("disconnect", terminateDebuggee=False)
        return self.process.wait(WAIT_S), self.output.read_text(encoding="utf-8")

    def _connected(self) -> socket.socket:
        limit = time.monotonic() + WAIT_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)
            except OSError:
                if time.monotonic() > limit or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def _send(self, command: str, **arguments: Any) -> int:
        self._number += 1
        request = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(request).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return self._number

    def _answer(self, number: int) -> dict[str, Any]:
        found = self._find(lambda one: one["type"] == "response" and one["request_seq"] == number)
        assert found["success"], found
        return found.get("body") or {}

    def _find(self, fits: Any) -> dict[str, Any]:
        for at, one in enumerate(self._waiting):
            if fits(one):
                return self._waiting.pop(at)
        while not fits(one := self._message()):
            self._waiting.append(one)
        return one

    def _message(self) -> dict[str, Any]:
        size = 0
        while line := self._file.readline():
            if line == b"\r\n":
                return json.loads(self._file.read(size))  # type: ignore[no-any-return]
            size = int(line.removeprefix(b"Content-Length:"))
        raise EOFError
