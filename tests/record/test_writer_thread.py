"""A thread of the writer that fails or cannot start, and signals and limits of the program: the run is recorded."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.record.known_steps import INFO, covered, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder, read_run
from neuraldbg.unlisted_thread import unlisted

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


@pytest.fixture
def quietly(monkeypatch):
    monkeypatch.delenv("NEURALDBG_STRICT")


def put(recorder, first, last):
    for i in range(first, last):
        recorder.put(step(i), layout(), ())


def test_a_thread_that_cannot_be_started(tmp_path, monkeypatch):
    def refuses(*args):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuses)
        recorder = Recorder(tmp_path, RecordSettings(queue=64), INFO)
    put(recorder, 0, 500)
    assert read_run(tmp_path).steps > 400
    recorder.close()
    assert covered(read_run(tmp_path).history) == list(range(500))
    assert (recorder.problem, recorder.dropped) == (None, 0)
    assert "could not be started" in recorder.remark


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), RecursionError("deep")])
def test_a_turn_that_fails_is_told_once_and_tried_again(tmp_path, quietly, capfd, error):
    calls = []

    def pull():
        calls.append(1)
        raise error

    recorder = Recorder(tmp_path, RecordSettings(flush_s=0.02), INFO, pull=pull)
    put(recorder, 0, 50)
    deadline = time.monotonic() + 10
    while len(calls) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(calls) >= 5
    put(recorder, 50, 100)
    recorder.close()
    assert covered(read_run(tmp_path).history) == list(range(100))
    assert recorder.problem.count("could not be fetched") == 1
    assert capfd.readouterr() == ("", "")


def test_a_thread_that_ends_is_replaced_by_the_training(tmp_path, quietly, capfd):
    def pull():
        raise SystemExit

    recorder = Recorder(tmp_path, RecordSettings(flush_s=0.02, queue=64), INFO, pull=pull)
    assert recorder._thread.ended_within(10)
    put(recorder, 0, 500)
    recorder.close()
    assert covered(read_run(tmp_path).history) == list(range(500))
    assert recorder.dropped == 0
    assert "ended, the training writes it" in recorder.problem
    assert capfd.readouterr() == ("", "")


def test_errors_that_come_back_at_every_write_are_said_once(tmp_path, quietly, monkeypatch):
    recorder = Recorder(tmp_path, RecordSettings(flush_s=60), INFO)

    def wrong(block):
        raise TypeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("neuraldbg.record.codec.encode", wrong)
        for i in range(100):
            put(recorder, i, i + 1)
            recorder.flush()
    put(recorder, 100, 110)
    recorder.close()
    assert recorder.problem.count("a bug") == 1
    assert recorder.dropped == 100
    assert read_run(tmp_path).history.steps.tolist() == list(range(100, 110))


# ---------------------------------------------------------------- signals

WAITS = """
import signal, sys, threading, time, os
from pathlib import Path
from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder
from tests.record.known_steps import INFO, layout, step

recorder = Recorder(Path(sys.argv[1]), RecordSettings(flush_s=0.05), INFO)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
for i in range(100):
    recorder.put(step(i), layout(), ())
os.kill(os.getpid(), signal.SIGUSR1)  # a signal that the program has blocked, to wait for it
time.sleep(0.2)
assert signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR1}
recorder.close()
"""

LIMIT = """
import resource, signal, sys
from pathlib import Path
from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder
from tests.record.known_steps import INFO, covered, layout, step

HANDLED = []
signal.signal(signal.SIGXFSZ, signal.SIG_DFL if sys.argv[2] == "default" else lambda *_: HANDLED.append(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
recorder = Recorder(Path(sys.argv[1]), RecordSettings(), INFO)
for i in range(400):
    recorder.put(step(i, sites=200), layout(200), ())
    if i % 20 == 0:
        recorder.flush()
record = recorder.record()
recorder.close()
assert covered(record.history) == list(range(400))
assert signal.SIGXFSZ not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
assert not signal.sigpending()
assert not HANDLED
print(recorder.problem)
"""


@pytest.mark.parametrize(("program", "argument"), [(WAITS, ""), (LIMIT, "default"), (LIMIT, "handler")])
def test_no_signal_reaches_the_program_because_of_us(tmp_path, program, argument):
    done = subprocess.run([sys.executable, "-c", program, tmp_path, argument], env=ENV, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    if program is LIMIT:
        assert "cannot be written any more" in done.stdout


def test_the_thread_takes_no_signals_and_the_callers_mask_is_as_before(tmp_path):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    tasks = set(Path("/proc/self/task").iterdir())
    recorder = Recorder(tmp_path, RecordSettings(), INFO)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    while "neuraldbg-writer" not in unlisted():  # it begins with all signals blocked
        time.sleep(0.001)
    (task,) = set(Path("/proc/self/task").iterdir()) - tasks
    blocked = next(
        int(line.split()[1], 16) for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk:")
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGXFSZ):
        assert blocked >> (number - 1) & 1
    assert not blocked >> (signal.SIGSEGV - 1) & 1
    recorder.close()
