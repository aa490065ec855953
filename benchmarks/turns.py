"""The worker's side of a benchmark: one training in a process of its own, which takes steps when it is told to.

    python benchmarks/turns.py ADDRESS KIND WORKLOAD eager|compiled FOLDER

Commands and answers are dictionaries over a socket, since tools print what they like to standard output. While others
have their turn, this process is stopped; its clocks stand still meanwhile (``Clock``), so that a tool that spends a
share of the time sees a training without pauses.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import Client
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_now = time.perf_counter
"""The true clock, taken before ``Clock`` replaces it."""


class Clock:
    """Takes time away from the clocks that a tool reads. Makes them some 100 ns a call slower, which the tool pays."""

    def __init__(self) -> None:
        away, since = 0.0, None

        def skip(seconds: float) -> None:
            nonlocal away
            away += seconds

        def hold(*, still: bool) -> None:  # on Linux both clocks are one
            nonlocal away, since
            if since is not None:
                away += _now() - since
            since = _now() if still else None

        def behind(original: Callable[[], float]) -> Callable[[], float]:
            return lambda: (original() if since is None else since) - away

        def behind_ns(original: Callable[[], int]) -> Callable[[], int]:
            return lambda: (original() if since is None else int(1e9 * since)) - int(1e9 * away)

        self.skip, self.hold = skip, hold
        for name in ("perf_counter", "monotonic"):
            setattr(time, name, behind(getattr(time, name)))
            setattr(time, f"{name}_ns", behind_ns(getattr(time, f"{name}_ns")))


class Turns:
    """The worker's end of the socket: waits, says when a step may be taken, and answers with the times."""

    def __init__(self, address: str) -> None:
        self.clock = Clock()
        self._socket = Client(address, "AF_UNIX")
        self._spent = time.process_time()
        self.steps = 0
        """With the tool."""
        self.aside: AbstractContextManager[None] = nullcontext()
        """Takes the tool off the training while it is entered."""
        self.renew: Callable[[], None] = _nothing
        """Has what is trained from now on compiled anew."""

    def say(self, **answer: Any) -> None:
        """Answer a command."""
        self._socket.send_bytes(json.dumps(answer).encode())

    def hear(self) -> dict[str, Any]:
        """Wait for a command, and take the time that this took off the clocks."""
        began = _now()
        command: dict[str, Any] = json.loads(self._socket.recv_bytes())
        self.clock.skip(_now() - began)
        return command

    def __iter__(self) -> Iterator[int]:
        """Yield the number of each step to be taken; what happens until the next number is asked for is that step."""
        self._spent = time.process_time()
        while (command := self.hear())["do"] == "steps":
            if command["renew"]:
                self.renew()
            seconds: list[float] = []
            total, aside = 0.0, bool(command["aside"])
            self.clock.hold(still=aside)  # the tool is not there
            with self.aside if aside else nullcontext():
                while total < command["seconds"] or len(seconds) < command["least"]:
                    begin = _now()
                    yield self.steps
                    seconds.append(_now() - begin)
                    total += seconds[-1]
                    self.steps += not aside
            self.clock.hold(still=False)
            before, self._spent = self._spent, time.process_time()
            self.say(seconds=seconds, processor=self._spent - before, **_compiled())


def _nothing() -> None:
    return None


def _compiled() -> dict[str, int]:
    """Count what torch.compile has made in this process so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return {}
    counters = dynamo.counters
    return {"graphs": counters["stats"]["unique_graphs"], "breaks": sum(counters["graph_break"].values())}


def on_disk(folder: Path) -> int:
    """Return the bytes of the files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def beside() -> None:
    """Start a thread that sleeps. Any program has a second one, if only torch's own (of which ``OMP_NUM_THREADS=1``
    leaves none): until there is one, glibc's locks cost next to nothing, and the first tool that starts a thread would
    be charged for those of torch and Python.
    """
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def train(turns: Turns, kind: str, workload: str, compiled: bool, folder: Path) -> None:
    """Make the training and the tool, and take steps until told to close."""
    from kinds import KINDS  # noqa: PLC0415 (torch is imported after the clocks are replaced)
    from models import WORKLOADS, Trainer  # noqa: PLC0415

    beside()
    try:
        began = _now()
        if KINDS[kind].imports:
            importlib.import_module(KINDS[kind].imports)
        imported = _now() - began
        trainer = Trainer(WORKLOADS[workload], compiled=compiled)
        attach = KINDS[kind].attach
        assert attach is not None
        began = _now() - imported
        attached = attach(trainer, folder)
    except ImportError as error:
        turns.say(missing=str(error))
        return
    took = _now() - began
    if attached.aside is not None:
        turns.aside, turns.renew = attached.aside, attached.aside.renew
    parameters = sum(p.numel() for p in trainer.model.parameters())
    turns.say(attach_s=took, parameters=parameters, aside=attached.aside is not None)
    for _ in turns:
        attached.step()
    began = _now()
    facts = attached.close()
    turns.say(close_s=_now() - began, disk=on_disk(folder), steps=turns.steps, **facts)


def main() -> None:
    address, kind, workload, how, folder = sys.argv[1:]
    turns = Turns(address)
    try:
        train(turns, kind, workload, how == "compiled", Path(folder))
    except Exception as error:  # noqa: BLE001 (whatever a tool raises is what the coordinator must tell)
        turns.say(error=f"{type(error).__name__}: {error}")
    # Threads and children of a tool may hang at the end of a process; what is to be measured has been.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
