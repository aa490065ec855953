"""Trains under a session, and has a signal handler of the program raise at one line of ours after another.

Run as a script: ``interrupted.py lines`` counts the lines that a training executes in our files; ``interrupted.py
first:last:every`` interrupts each of these of the places found, a forked child for each, and prints what went wrong as
JSON, a list of [place, what].
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import neuraldbg
from neuraldbg.capture.guest.guard import SWITCHES, Switch
from neuraldbg.session import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PACKAGE = str(Path(neuraldbg.__file__).parent) + os.sep
STEPS = 24
_LEFT_OUT = ("raised.py", "errors.py")
Place = tuple[str, int, int]
"""File, line, and how many lines of ours were executed before."""


class Limit(Exception):
    """A time limit of the program's."""


def ring(*_: object) -> None:
    """Raise, as handlers of time limits do."""
    raise Limit


def traced(at: Callable[[str, int], None]) -> Callable[..., Any]:
    """Return a trace function that calls ``at`` with file and line of each line of ours."""

    def line(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            at(frame.f_code.co_filename, frame.f_lineno)
        return line

    def call(frame: FrameType, event: str, arg: object) -> Any:
        file = frame.f_code.co_filename
        return line if file.startswith(PACKAGE) and not file.endswith(_LEFT_OUT) else None

    return call


def train(trace: Callable[..., Any] | None) -> dict[str, Any]:
    """Train a small model, each step and the session itself within reach of a time limit. Returns what came of it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    told: dict[str, Any] = {"hits": 0, "steps": 0, "where": "", "run": None, "losses": []}
    dbg = None
    try:
        sys.settrace(trace)
        with NeuralDbg(net) as dbg:
            for _ in range(STEPS):
                try:
                    opt.zero_grad()
                    loss = nn.functional.cross_entropy(net(x), y)
                    loss.backward()
                    opt.step()
                    told["steps"] += 1
                    told["losses"].append(loss.item())
                except Limit:
                    told["hits"] += 1
                    told["where"] = "step"
            told["where"] = told["where"] or "end"
    except Limit:
        told["hits"] += 1
        told["where"] = "start" if dbg is None else told["where"]
    finally:
        sys.settrace(None)
    if dbg is not None:
        told["run"], told["errors"] = dbg.record(), dbg._capture.tally.failed
        told["first"] = dbg._capture.tally.first
    return told


def places() -> list[Place]:
    """Return each line of ours that a training executes, once for its first and once for its last time."""
    first: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    count = 0

    def note(file: str, line: int) -> None:
        nonlocal count
        first.setdefault((file, line), count)
        last[file, line] = count
        count += 1

    train(traced(note))
    found = [(*at, n) for at, n in first.items()] + [(*at, n) for at, n in last.items() if n != first[at]]
    return sorted(found, key=lambda place: place[2])


def interrupted(n: int) -> str:
    """Train, and raise at the n-th line of ours. Returns what is wrong, empty for nothing."""
    count, hit = 0, ""

    def at(file: str, line: int) -> None:
        nonlocal count, hit
        count += 1
        if count == n + 1:
            sys.settrace(None)
            hit = f"{file.removeprefix(PACKAGE)}:{line}"
            signal.raise_signal(signal.SIGALRM)

    told = train(traced(at))
    if not hit:
        return "never came there"
    found = [] if told["hits"] == 1 else [f"the program caught {told['hits']}"]
    run = told["run"]
    if run is not None:
        if told["errors"]:
            found.append(f"errors: {told['errors']}")
        if told["where"] == "step" and told["steps"] < STEPS - 1:
            found.append(f"{told['steps']} steps")
        if told["where"] == "step" and not told["steps"] - 1 <= run.steps <= STEPS:
            found.append(f"{run.steps} of {told['steps']} steps were recorded")
        losses = run.scalar("loss")
        missed = [i for i, value in enumerate(told["losses"]) if value not in losses.values]
        if told["where"] == "step" and len(missed) > 1:  # one may be the step that was just being closed
            found.append(f"the losses of {missed} are not recorded, but at {losses.steps.tolist()}")
    if any(isinstance(each, Switch) and each.on for each in SWITCHES):
        found.append("a session listens")
    if "neuraldbg" in str(nn.Module.__call__.__code__.co_filename):
        found.append("nn.Module.__call__ is not torch's own")
    return f"{hit} ({told['where']}): {'; '.join(found)}" if found else ""


def in_child(n: int) -> str:
    """Do the same in a forked child."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        said = "died"
        try:
            said = interrupted(n)
        except BaseException as error:
            said = f"raised {type(error).__name__}: {error}"
        finally:
            os.write(into, said.encode())
            os._exit(0)
    os.close(into)
    said, until = "", time.monotonic() + 60
    with open(out, encoding="utf-8") as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    return said or ("" if status == 0 else f"ended with status {status} after {time.monotonic() - until + 60:.0f} s")


def main(what: str) -> None:
    """Do what the command line asks for."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, ring)
    with contextlib.suppress(Exception):
        train(None)  # what is made once in a process
    every = places()
    if what == "lines":
        print(len(every), every[-1][2])
        return
    begin, end, step = (int(each) if each else None for each in what.split(":"))
    chosen = every[begin:end:step]
    wrong = []
    for file, line, n in chosen:
        said = in_child(n)
        if said and said != "never came there":  # how many steps are read in full depends on how long they take
            wrong.append([f"{file.removeprefix(PACKAGE)}:{line}", said])
    print(json.dumps({"tried": len(chosen), "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1])
