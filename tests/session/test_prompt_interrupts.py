"""A signal that Python has noted and not handled, because it waits in C for a line, is handled soon."""

from __future__ import annotations

import _thread
import ctypes
import os
import signal
import threading
import time

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


def _handlers() -> list[object]:
    return [signal.getsignal(number) for number in signal.valid_signals()]


def test_a_child_forked_at_the_prompt_keeps_nothing_of_it_and_sends_nothing_to_it() -> None:
    told, tell = os.pipe()
    go, start = os.pipe()
    before = _handlers()
    with heeded():
        child = os.fork()
        if not child:
            os.close(start)
            same = _handlers() == before and signal.set_wakeup_fd(-1) == -1
            os.write(tell, b"+" if same else b"-")
            os.read(go, 1)
            for _ in range(3):  # noted in the pipe of the parent, if the child still had it
                signal.signal(signal.SIGUSR1, lambda *_: None)
                signal.raise_signal(signal.SIGUSR1)
            os._exit(0)
        assert os.read(told, 1) == b"+"
        began = time.monotonic()
    assert time.monotonic() - began < 0.5, "the end was waited for in vain"
    assert _handlers() == before
    os.write(start, b"!")
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.2)  # the parent lives
    for one in (told, tell, go, start):
        os.close(one)


def test_a_child_that_leaves_the_prompt_by_itself_closes_no_file_of_its_own() -> None:
    with heeded():
        child = os.fork()
        if not child:
            files = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]
    if not child:
        try:
            for one in files:
                os.fstat(one)
        except OSError:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_signal_as_the_prompt_is_left_ends_nothing() -> None:
    theirs = signal.signal(signal.SIGUSR1, lambda *_: None)
    before = _handlers()
    for _ in range(20):
        with heeded():
            signal.raise_signal(signal.SIGUSR1)
        assert _handlers() == before
    signal.signal(signal.SIGUSR1, theirs)
