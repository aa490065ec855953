"""The coordinator's side: starts workers, gives them turns, stops them in between.

A worker that is not at its turn is stopped with all its children (SIGSTOP), so that a writer thread or a service of a
tool works in the tool's own turns and disturbs nobody else's. (In place, one worker's turns without the tool are
disturbed by its own.) What waits for a time, waits on while it is stopped: a thread that writes once a second does so
nearly at each turn, which the tool pays.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

HERE = Path(__file__).resolve().parent
PATIENCE_S = 300.0
"""A worker that says nothing for so long is given up."""
QUIET = {
    # Two threads on two cores that others use too wait for each other, 5 to 100 times the step (measured here).
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # A GPT of ten million parameters compiles in one process as fast as in a pool of them.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # What is freed stays with the process. Else a step of the ConvNet makes 300 page faults in one process and 3,000 in
    # another (measured), by how its memory happens to lie: a tenth of the step.
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
}


class WorkerFailed(Exception):
    """A worker could not do what it was told; the message is what it said."""


@dataclass(frozen=True)
class Turn:
    """What a worker did in one turn."""

    seconds: list[float]
    """Of each step."""
    processor: float
    """Seconds of processor time since the end of its last turn, of all its threads."""
    graphs: int = 0
    breaks: int = 0
    """Graphs that torch.compile has made since the process began, and breaks between them."""

    @property
    def total(self) -> float:
        return sum(self.seconds)


@dataclass
class Worker:
    """One training in a process of its own."""

    kind: str
    workload: str
    compiled: bool = False
    command: Callable[[Path], list[str]] | None = None
    """Makes, in a folder, another script that takes turns, and says how to run it. It finds its address in the
    environment."""
    hello: dict[str, Any] = field(default_factory=dict)
    """What it told when it was ready."""
    apart: tuple[int, int] = (0, 0)
    """Graphs, and breaks between them, that were made for turns without its tool before all others."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        try:
            self._start()
            self.hello = self._hear()
        except BaseException:
            self._end()
            raise
        self._freeze()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end()

    def _start(self) -> None:
        address = str(self.folder / "turns.sock")
        out = self.folder / "left"
        out.mkdir()
        how = "compiled" if self.compiled else "eager"
        own = [sys.executable, str(HERE / "turns.py"), address, self.kind, self.workload, how, str(out)]
        command = own if self.command is None else self.command(self.folder)
        environment = {**QUIET, **os.environ, "BENCH_ADDRESS": address, "BENCH_WORKLOAD": self.workload}
        self.log = self.folder / "printed"
        with Listener(address, "AF_UNIX") as listener, self.log.open("wb") as printed:
            self._process = subprocess.Popen(
                command, env=environment, stdout=printed, stderr=printed, start_new_session=True
            )
            self._socket = self._accept(listener)

    def _end(self) -> None:
        if self._process is not None:
            for pid in self._processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self, listener: Listener) -> Connection:
        """Wait until the worker calls; a script of another tool may die before it does."""
        until = time.monotonic() + PATIENCE_S
        socket = listener._listener._socket  # type: ignore[attr-defined]  # noqa: SLF001 (accept has no timeout)
        assert self._process is not None
        while not wait([socket], 0.2):
            if self._process.poll() is not None or time.monotonic() > until:
                raise WorkerFailed(self._last_words())
        return listener.accept()

    def _hear(self) -> dict[str, Any]:
        if not self._socket.poll(PATIENCE_S):
            raise WorkerFailed(f"silent for {PATIENCE_S:g} s")
        try:
            answer: dict[str, Any] = json.loads(self._socket.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise WorkerFailed(self._last_words()) from None
        if "missing" in answer:
            raise WorkerFailed(f"not installed: {answer['missing']}")
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"

    def _ask(self, **command: Any) -> dict[str, Any]:
        for pid in self._processes():
            os.kill(pid, signal.SIGCONT)
        self._socket.send_bytes(json.dumps(command).encode())
        return self._hear()

    def turn(
        self, seconds: float, least: int = 1, *, aside: bool = False, stay: bool = False, renew: bool = False
    ) -> Turn:
        """Let it take steps for so long, and at least so many; ``aside`` without its tool. It is not stopped after that
        where it is to ``stay``: the next turn is its own, too. To ``renew`` is to compile everything anew first.
        """
        answer = self._ask(do="steps", seconds=seconds, least=least, aside=aside, renew=renew)
        if not stay:
            self._freeze()
        turn = Turn(**answer)
        return replace(turn, graphs=turn.graphs - self.apart[0], breaks=turn.breaks - self.apart[1])

    def compile_apart(self) -> None:
        """Have it compile what it trains without its tool before what it trains with it. The graphs do not count."""
        if self.compiled and self.hello.get("aside"):
            made = self.turn(0.0, aside=True)
            self.apart = made.graphs, made.breaks

    def close(self) -> dict[str, Any]:
        """Let it detach its tool; returns what it leaves: disk, steps."""
        return self._ask(do="close")

    def peak(self) -> int:
        """Return the bytes of memory that it has had at most, with its children."""
        return sum(_peak(pid) for pid in self._processes())

    def _freeze(self) -> None:
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def _processes(self) -> list[int]:
        """Return the worker's process id and those of all below it."""
        assert self._process is not None
        return [self._process.pid, *_below(self._process.pid)]


def _below(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):  # none of these where there is no /proc
        with contextlib.suppress(OSError):
            for child in task.read_text(encoding="ascii").split():
                found += [int(child), *_below(int(child))]
    return found


def _peak(pid: int) -> int:
    """Return the bytes of memory that a process had at most. What getrusage says of it includes who started it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0
