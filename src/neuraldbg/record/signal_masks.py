"""Signal masks of our writes: no signal ends the program because of a write of ours."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_size_signal() -> Iterator[None]:
    """Block SIGXFSZ in this thread, so that a write beyond RLIMIT_FSIZE fails with an error, as on a full disk.

    Python ignores the signal, but a program may have restored its default, which ends the process.
    """
    number = getattr(signal, "SIGXFSZ", None)
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        if number not in before:
            if number in signal.sigpending():
                signal.sigwait({number})  # caused by our own write: it must not arrive once the mask is restored
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
