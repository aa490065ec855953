"""A signal that Python has noted and not handled, because it waits in C for a line, is handled soon."""

from __future__ import annotations

import _thread
import ctypes
import os
import signal
import threading

import pytest

from neuraldbg.debugger.interrupts import heeded

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGRTMAX"), reason="there are no real-time signals")
WAITS_MS = 20_000
"""Milliseconds of the wait that must be cut short."""


def test_a_signal_that_was_noted_before_the_wait_ends_it() -> None:
    ended: list[int] = []

    def wait() -> None:
        with heeded():
            noted.start()
            ended.append(ctypes.CDLL(None).poll(None, 0, WAITS_MS))

    noted = threading.Timer(0.2, _thread.interrupt_main)  # as a signal just before the wait: it interrupts nothing
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert ended in ([], [-1]), "0 is the end of the time"
    noted.join()


def test_a_signal_is_handled_once_and_all_is_put_back() -> None:
    calls: list[int] = []
    theirs = signal.signal(signal.SIGINT, lambda number, _: calls.append(number))
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    program = signal.set_wakeup_fd(writer)
    try:
        with heeded():
            signal.raise_signal(signal.SIGINT)
            threading.Event().wait(0.3)
        assert calls == [signal.SIGINT]
        assert [signal.getsignal(number) for number in signal.valid_signals()] == before
        assert signal.set_wakeup_fd(program) == writer, "the program has its own again"
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, theirs)
        os.close(reader)
        os.close(writer)
