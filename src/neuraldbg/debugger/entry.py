"""The debugger that a stop enters: that of an IDE, the one that PYTHONBREAKPOINT names, or our prompt, if somebody can
answer it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from neuraldbg.debugger.frames import bound_at, locals_of, user_frame
from neuraldbg.debugger.stop import NAMES, QUIT, Stop
from neuraldbg.ranks import own_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_AT_TERMINALS = frozenset(
    ("pdb", "ipdb", "pudb", "bpdb", "pdbpp", "pdbr", "ptpdb", "epdb", "IPython", "bpython", "ptpython")
)
"""Packages of debuggers that talk in the terminal; any other that is named may be answered from elsewhere."""
NOT_MAIN = "this thread is not the main thread"
_PROMPT = "_neuraldbg_prompt"
"""Name of our prompt in the frame that it is in."""
_PROCESS = os.getpid()
_REPLACED = "__import__('sys').breakpointhook()"
_NAMED = "__import__('sys').__breakpointhook__()"


class Entry(NamedTuple):
    """The way into a debugger."""

    refused: str = ""
    """Reason why no debugger can be entered here, in words; "" if one can."""
    call: str = ""
    """Expression that enters a debugger other than ours; "" for our prompt."""
    device: str = ""
    """Path of the terminal to talk in; "" for standard input and output."""
    in_notebook: bool = False
    """True if the prompt is that of a notebook's cell."""
    remark: str = ""
    """Sentence on why it is another debugger than the one that was asked for; "" if it is that one."""


def entry(*, later: bool = False) -> Entry:
    """Return the way into the debugger that is to be entered here; ``later`` is for a stop that the main thread makes
    up for.
    """
    named = os.environ.get("PYTHONBREAKPOINT", "")
    if named == "0":
        return Entry("PYTHONBREAKPOINT is 0")
    if _replaced():
        return Entry(call=_REPLACED)
    call = remark = ""
    if named not in ("", "pdb.set_trace"):
        remark = _unusable(named)
        call = "" if remark else _NAMED
        if call and named.partition(".")[0] not in _AT_TERMINALS:
            return Entry(call=call)
    if os.getpid() != _PROCESS:  # a worker of a data loader, or any other: two would read from one terminal
        return Entry("this is a forked process")
    if own_rank().secondary:
        return Entry("another rank speaks for this one")
    if threading.current_thread() is not threading.main_thread() and not later:
        return Entry(NOT_MAIN)
    kernel = _kernel()
    if kernel is not None:
        mute = not getattr(kernel, "_allow_stdin", True)  # of ipykernel, for the request that it executes
        return Entry("this notebook takes no input") if mute else Entry(call=call, in_notebook=True, remark=remark)
    refused, device = _terminal()
    if call and device:  # another debugger knows standard input and output alone
        refused = "standard input or output is no terminal"
    return Entry(refused, call, device, remark=remark)


def stop(at: Stop, way: Entry) -> str:
    """Enter the debugger. Return QUIT if the person ends the training, else "". Raises NoAnswer if there is nobody."""
    from bdb import BdbQuit  # noqa: PLC0415 (a program that is only watched needs no debugger)

    from neuraldbg.debugger.prompt import Debugger  # noqa: PLC0415

    name = f"<NeuralDBG: {at.title.partition(' (')[0]}>"
    values = [at.names[name] for name in NAMES]
    if way.call:
        print(f"\nNeuralDBG stops: {at.title}")  # noqa: T201 (a conversation)
        try:
            talk_in_another(bound_at(user_frame(), way.call, NAMES, name, goes_on=True), values)
        except BdbQuit:
            return QUIT
        return ""
    with contextlib.ExitStack() as opened:
        streams: list[TextIO] = []
        if way.device:
            streams = [opened.enter_context(Path(way.device).open(mode, encoding="utf-8")) for mode in ("r", "w")]
        prompt = Debugger(at, *streams)
        prompt.in_notebook = way.in_notebook
        if way.remark:
            prompt.message(f"\n{way.remark}")
        prompt.message(f"\nNeuralDBG stops: {at.title}")
        frame = user_frame()
        own = {known: value for known, value in locals_of(frame).items() if known not in NAMES}
        prompt.show_watched(own)
        call = f"{_PROMPT}(__import__('sys')._getframe())"
        bound_at(frame, call, (_PROMPT, *NAMES, *own), name, goes_on=False)(prompt.talk, *values, *own.values())
        return QUIT if prompt.quits else ""


def talk_in_another(enter: Callable[..., None], values: Sequence[Any]) -> None:
    """Enter a debugger that is not ours. A function of its own, by which a signal handler sees that a person is waited
    for.
    """
    enter(*values)


def _replaced() -> bool:
    """Return True if ``sys.breakpointhook`` is that of somebody who answers: an import of debugpy alone replaces it,
    and nobody answers until an IDE is connected.
    """
    hook = sys.breakpointhook
    if hook is sys.__breakpointhook__:
        return False
    module = getattr(hook, "__module__", None) or ""
    if module.partition(".")[0] == "debugpy":
        return bool(sys.modules["debugpy"].is_client_connected())
    if module == "pydevd":  # PyCharm's
        return bool(getattr(sys.modules["pydevd"], "connected", True))
    return True


def _unusable(named: str) -> str:
    """Return "" if PYTHONBREAKPOINT names something that can be called, else a sentence."""
    module, _, name = named.rpartition(".")
    try:
        getattr(importlib.import_module(module or "builtins"), name)
    except Exception as error:  # noqa: BLE001 (of a package of the user's)
        return f"PYTHONBREAKPOINT is {named}, which cannot be imported ({error}): this is NeuralDBG's own prompt."
    return ""


def _kernel() -> Any:
    """Return the kernel of a notebook; None outside of one."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    return getattr(running, "kernel", None)


def _terminal() -> tuple[str, str]:
    """Return why there is no terminal to talk in ("" if there is one), and its path if it is not both standard input
    and standard output.

    Someone who sits at a terminal may have redirected one of them: input to a file that the program reads, or output to
    a log. Both redirected, or input to the null device as nohup does, says that nobody sits there.
    """
    streams = [_descriptor(sys.__stdin__), _descriptor(sys.__stdout__)]
    ttys = [one is not None and os.isatty(one) for one in streams]
    at = next((one for one, tty in zip(streams, ttys, strict=True) if tty), None)
    if at is None or (not ttys[0] and not _read_by_the_program(streams[0])):
        return "there is no terminal", ""
    if hasattr(os, "tcgetpgrp"):
        try:
            if os.tcgetpgrp(at) != os.getpgrp():  # a read from there would stop the process by SIGTTIN
                return "the program runs in the background of its terminal", ""
        except OSError:
            return "there is no terminal", ""  # not that of this session, as after setsid
    if all(ttys) and sys.stdin is sys.__stdin__ and sys.stdout is sys.__stdout__:
        return "", ""
    try:
        return "", os.ttyname(at)
    except (OSError, AttributeError):
        return "standard input or output is no terminal", ""


def _read_by_the_program(stdin: int | None) -> bool:
    """Return True if standard input is a file or a pipe."""
    if stdin is None:
        return False
    mode = os.fstat(stdin).st_mode
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _descriptor(stream: TextIO | None) -> int | None:
    """Return the file descriptor of a stream; None if it is closed or has none."""
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError, AttributeError):
        return None
