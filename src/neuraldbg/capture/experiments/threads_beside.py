"""The test for other threads of the program that run during an experiment.

An experiment restores the states of the global random number generators. Numbers that another thread has drawn
meanwhile (a loader that prefetches batches) it would draw once more, so no experiment runs beside such a thread.
"""

from __future__ import annotations

import threading
from concurrent.futures import thread as pools
from typing import TYPE_CHECKING

from neuraldbg.capture.guest.other_threads import others as running

if TYPE_CHECKING:
    from types import FrameType

_QUIET = frozenset((
    "IPython", "asyncio", "debugpy", "ipykernel", "neuraldbg", "pydevd", "sentry_sdk", "tensorboard", "tensorboardX",
    "torch", "tornado", "tqdm", "wandb", "zmq",
))  # fmt: skip
"""Packages whose own threads draw nothing: they pin memory, write logs, show progress, wait for a child process or
serve a notebook."""
_IDLE = pools._worker.__code__  # noqa: SLF001 (no public name)
"""Code in which an idle thread of a ThreadPoolExecutor waits. Only another thread could give it work."""


def company() -> str:
    """Return the reason why no experiment may run now, empty if there is none: another thread of the program runs."""
    me = threading.get_ident()  # threading.current_thread() would add an unlisted thread to the list
    others = [each for each in threading.enumerate() if each.ident != me and not _quiet(each)]
    if others:
        at = running()
        others = [each for each in others if not _idle(at.get(each.ident or 0))]
    return f"another thread of the program runs ({others[0].name})" if others else ""


def _idle(innermost: FrameType | None) -> bool:
    return innermost is not None and innermost.f_code is _IDLE


def _quiet(thread: threading.Thread) -> bool:
    """Return True for a thread that runs the code of a quiet package, or waits for a process of such a package."""
    kind = type(thread)
    if kind in (threading.Thread, threading.Timer):
        run = getattr(thread, "_target", None) or getattr(thread, "function", None)
        module = getattr(run, "__module__", None) or type(getattr(run, "__self__", None)).__module__
    else:
        module = kind.__module__
    if kind is _MAIN:
        return False
    return str(module).split(".", maxsplit=1)[0] in _QUIET


_MAIN = type(threading.main_thread())
