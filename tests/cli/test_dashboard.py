"""The dashboard's commands as processes: what is printed, who can come, and what is left when something is killed."""

from __future__ import annotations

import http.client
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.browser import visiting
from tests.dashboard.saved_runs import record
from tests.runner.both_ways import DRIVER

from neuraldbg.cli import dashboard, main
from neuraldbg.dashboard.port import listen

SOON_S = 60
ADDRESS = re.compile(r"http://\S+/\?token=[\w-]+")
PATIENT = "import pathlib, time\nwhile not pathlib.Path('stop').exists(): time.sleep(0.05)\n"
NOISY = "print('hello', flush=True)\n" + PATIENT + "print('bye')\n"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes, signals and terminals of POSIX")


def soon(asked):
    until = time.monotonic() + SOON_S
    while True:
        answer = asked()
        if answer:
            return answer
        assert time.monotonic() < until, "not within the time"
        time.sleep(0.05)


def status(url, path="/"):
    """The status of the page, asked with the token and then with its cookie; 0 where nobody listens."""
    place = urlsplit(url)
    try:
        first = http.client.HTTPConnection(place.hostname, place.port, timeout=SOON_S)
        first.request("GET", f"/?{place.query}")
        cookie = first.getresponse().headers.get("Set-Cookie", "").split(";")[0]
        first.close()
        second = http.client.HTTPConnection(place.hostname, place.port, timeout=SOON_S)
        second.request("GET", path, headers={"Cookie": cookie})
        answer = second.getresponse()
        second.close()
    except OSError:
        return 0
    return answer.status


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    with suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


@contextmanager
def started(place, *args, driver=DRIVER, **options):
    """Run the command line, its output in the file ``said``."""
    out = (place.path / "said").open("w+")
    command = [sys.executable, *([str(driver)] if driver else ["-m", "neuraldbg"]), *args]
    process = subprocess.Popen(
        command, cwd=place.path, env=place.env(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options
    )
    process.said = (place.path / "said").read_text
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        out.close()


def address(process):
    return soon(lambda: ADDRESS.search(process.said()))[0]


# ---------------------------------------------------------------- neuraldbg dashboard


def test_an_empty_folder_waits_for_its_first_run_and_says_so(place, browser):
    (place.path / "runs").mkdir()
    with started(place, "dashboard", "runs", "--port", "0", driver=None) as process, visiting(browser) as visit:
        visit.page.goto(address(process))
        visit.page.get_by_text("No run yet").wait_for()
        soon(lambda: "There is no run in runs" in process.said())
        record(place.path / "runs" / "first")
        visit.page.get_by_text("first", exact=True).wait_for()


def test_a_saved_run_is_served_until_ctrl_c(place):
    record(place.path / "run")
    with started(place, "dashboard", "run", driver=None) as process:
        url = address(process)
        assert url.startswith("http://127.0.0.1:")
        assert status(url) == status(url, "/_dash-layout") == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(SOON_S) == 0
        assert process.said() == f"Dashboard of run: {url}\nCtrl-C ends it.\n"


@pytest.mark.slow
def test_the_real_page_opens_under_the_policy_without_a_complaint(place, browser):
    record(place.path / "run")
    with started(place, "dashboard", "run", "--port", "0", driver=None) as process, visiting(browser) as visit:
        visit.page.goto(address(process))
        visit.page.get_by_text("50 steps recorded").wait_for()
        visit.page.get_by_text("diagnosis up to date").wait_for()
        for name in ("Execution trace", "Gradients", "Activations", "Memory", "Anomalies", "Runs"):
            visit.page.get_by_text(name, exact=True).first.click()
            visit.page.wait_for_load_state("networkidle")
        assert [error for error in visit.errors if "wheel sensitivity" not in error] == []
        assert {urlsplit(url).hostname for url in visit.requests} == {"127.0.0.1"}


def test_a_port_that_was_asked_for_is_that_one_or_an_error(place):
    record(place.path / "run")
    taken, _ = listen(port=0)
    with taken:
        number = str(taken.getsockname()[1])
        done = place.python("-m", "neuraldbg", "dashboard", "run", "--port", number)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"neuraldbg: port {number} is taken by another program")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere"], "there is no run at"),
        (["run", "--host", "0.0.0.0"], "Add --expose if that is wanted"),
        (["run", "--config", "none.yaml"], "none.yaml cannot be read"),
    ],
)
def test_what_is_wrong_is_one_line(place, args, words):
    if args[0] == "run":
        record(place.path / "run")
    done = place.python("-m", "neuraldbg", "dashboard", *args)
    assert (done.status, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_a_missing_extra_is_told_before_anything_is_run(place, monkeypatch, capsys):
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None if name == "dash" else object())
    place.write("train.py", "raise SystemExit('was run')")
    monkeypatch.chdir(place.path)
    for args in (["run", "--dashboard", "train.py"], ["dashboard", "run"]):
        assert main(args) == 2
        said = capsys.readouterr().err
        advice = "in your clone of NeuralDBG, pip install '.[dashboard]'"
        assert said == f"neuraldbg: the dashboard needs an optional package: {advice}\n"


def test_a_port_alone_is_a_mistake(capsys):
    assert main(["run", "--port", "0", "train.py"]) == 2
    assert "give --dashboard, too" in capsys.readouterr().err


# ---------------------------------------------------------------- neuraldbg run --dashboard


def test_the_page_is_there_while_the_run_goes_on_and_ends_with_it(place):
    place.write("train.py", NOISY)
    with started(place, "run", "--dashboard", "--port", "0", "-o", "out", "train.py") as process:
        url = address(process)
        soon(lambda: "hello" in process.said())
        assert process.said().index("neuraldbg: the dashboard is at") < process.said().index("hello")
        (child,) = children(process.pid)
        token = url.split("=")[1]
        for file in ("cmdline", "environ"):
            assert token not in Path(f"/proc/{child}/{file}").read_text()
        assert soon(lambda: status(url)) == 200
        (place.path / "stop").touch()
        assert process.wait(SOON_S) == 0
        assert not alive(child)
        assert status(url) == 0
        said = process.said()
        assert said.index("bye") < said.index("HEALTHY")
        assert "still at" not in said
        assert "neuraldbg: the page has ended with the run; neuraldbg dashboard out opens it again\n" in said


def test_the_program_is_left_as_it_would_be(place):
    place.write(
        "train.py",
        "import sys, os, threading\n"
        "ours = [m for m in sys.modules if m.split('.')[0] in {'dash', 'flask', 'werkzeug', 'plotly', 'yaml', 'numpy',"
        " 'pydantic', 'torch'}]\n"
        "print(ours, threading.active_count(), sorted(os.listdir('/proc/self/fd')), sys.argv)\n",
    )
    plain = place.tool("train.py", "--dashboard")
    done = place.tool("--dashboard", "--port", "0", "train.py", "--dashboard")
    assert done.status == plain.status == 0
    assert done.out == plain.out
    assert done.out.startswith("[] 1 [")


def test_a_failing_program_still_fails_as_it_would(place):
    place.write("train.py", "import sys; sys.exit(5)")
    done = place.tool("--dashboard", "--port", "0", "train.py")
    assert (done.status, done.out) == (5, "")


def test_a_killed_run_leaves_no_dashboard_behind(place):
    place.write("train.py", NOISY)
    with started(place, "run", "--dashboard", "--port", "0", "-o", "out", "train.py") as process:
        url = address(process)
        assert soon(lambda: status(url)) == 200
        (child,) = children(process.pid)
        process.kill()
        process.wait()
        soon(lambda: not alive(child))
        assert status(url) == 0


def test_a_dashboard_that_dies_is_one_line_and_the_training_goes_on(place):
    place.write("train.py", NOISY)
    with started(place, "run", "--dashboard", "--port", "0", "-o", "out", "train.py") as process:
        address(process)
        soon(lambda: "hello" in process.said())
        (child,) = children(process.pid)
        os.kill(child, signal.SIGKILL)
        (place.path / "stop").touch()
        assert process.wait(SOON_S) == 0
        assert "bye" in process.said()
        told = [line for line in process.said().splitlines() if "dashboard" in line][1:]
        again = f"neuraldbg dashboard {place.path}/out"
        why = "the dashboard ended early by signal 9; the training went on without it"
        assert told == [f"neuraldbg: {why}. Open it again with: {again}"]


def test_a_wrong_configuration_is_one_line_and_the_training_goes_on(place):
    place.write("neural_config.yaml", "dashbord: {theme: dark}")
    place.write("train.py", NOISY)
    with started(place, "run", "--dashboard", "--port", "0", "-o", "out", "train.py") as process:
        soon(lambda: "there is no dashboard" in process.said())
        (place.path / "stop").touch()
        assert process.wait(SOON_S) == 0
        told = [line for line in process.said().splitlines() if "there is no dashboard" in line or "ended" in line]
        assert told[0] == (
            "neuraldbg: there is no dashboard: neural_config.yaml: unknown section 'dashbord'. "
            "Did you mean 'dashboard'?"
        )
        assert not [line for line in told if "ended early" in line]


def test_a_taken_port_is_told_before_the_program_begins(place):
    place.write("train.py", "print('was run')")
    taken, _ = listen(port=0)
    with taken:
        done = place.tool("--dashboard", "--port", str(taken.getsockname()[1]), "train.py")
    assert (done.status, done.out) == (2, "")
    assert "is taken by another program" in done.err
    assert done.err.count("\n") == 1


# ---------------------------------------------------------------- at a terminal


class Terminal:
    """A process that somebody watches, and can press Ctrl-C in."""

    def __init__(self, place, *args):
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(place.path)
            os.execve(sys.executable, [sys.executable, str(DRIVER), *args], place.env(COLUMNS="200"))
        os.set_blocking(self._descriptor, False)
        self._text = ""

    def said(self):
        with suppress(OSError, TypeError):
            while part := os.read(self._descriptor, 65536):
                self._text += part.decode()
        return self._text

    def press_ctrl_c(self):
        os.write(self._descriptor, b"\x03")

    def ended(self):
        """The exit status once it has ended; -N for signal N, and None until then."""
        pid, how = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else (os.waitstatus_to_exitcode(how),)

    def close(self):
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._descriptor)


@pytest.fixture
def terminal(place):
    made = []

    def run(*args):
        made.append(Terminal(place, *args))
        return made[-1]

    yield run
    for one in made:
        one.close()


def test_at_a_terminal_the_page_stays_until_ctrl_c(place, terminal):
    place.write("train.py", NOISY)
    seat = terminal("run", "--dashboard", "--port", "0", "-o", "out", "train.py")
    url = soon(lambda: ADDRESS.search(seat.said()))[0]
    (child,) = soon(lambda: children(seat.pid))
    (place.path / "stop").touch()
    soon(lambda: "The dashboard is still at" in seat.said())
    assert seat.said().index("HEALTHY") < seat.said().index("The dashboard is still at")
    assert soon(lambda: status(url)) == 200
    assert seat.ended() is None
    seat.press_ctrl_c()
    assert soon(seat.ended) == (0,)
    assert not alive(child)


def test_ctrl_c_ends_the_training_first_and_then_the_page(place, terminal):
    place.write("train.py", NOISY)
    seat = terminal("run", "--dashboard", "--port", "0", "-o", "out", "train.py")
    url = soon(lambda: ADDRESS.search(seat.said()))[0]
    soon(lambda: "hello" in seat.said())
    (child,) = children(seat.pid)
    assert soon(lambda: status(url)) == 200
    seat.press_ctrl_c()
    soon(lambda: "The dashboard is still at" in seat.said())
    assert "KeyboardInterrupt" in seat.said()
    assert "This run ended as interrupted" in seat.said()
    assert status(url) == 200
    seat.press_ctrl_c()
    assert soon(seat.ended) == (-signal.SIGINT,), "as python ends when it is interrupted"
    assert not alive(child)


# ---------------------------------------------------------------- a real training

TRAINING = """
import pathlib
import time
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for i in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
    if pathlib.Path("enough").exists():
        break
"""


@pytest.mark.slow
def test_a_real_training_is_watched_while_it_goes_on_and_shown_as_killed_afterwards(place, browser):
    place.write("train.py", TRAINING)
    with (
        started(place, "run", "--dashboard", "--port", "0", "-o", "out", "train.py", driver=None) as process,
        visiting(browser) as visit,
    ):
        visit.page.goto(address(process))
        told = visit.page.get_by_text(re.compile(r"\d+ steps recorded"))

        def steps():
            return int(re.search(r"([\d,]+) steps recorded", told.first.text_content())[1].replace(",", ""))

        first = soon(steps)
        soon(lambda: steps() > first + 50)
        assert [error for error in visit.errors if "wheel sensitivity" not in error] == []
        process.kill()
        process.wait()
    with started(place, "dashboard", "out", "--port", "0", driver=None) as process, visiting(browser) as visit:
        visit.page.goto(address(process))
        visit.page.get_by_text("killed, or silent for long").wait_for()


@pytest.mark.slow
def test_tab_theme_and_note_of_the_command_line(place, browser):
    """The page opens at the tab, in the colours, and names the remark of the run; also that of a saved run."""
    place.write("train.py", TRAINING)
    look = ("--port", "0", "--tab", "anomalies", "--theme", "dark")
    lines = [
        ("run", "--dashboard", *look, "--note", "made-up data", "-o", "out", "train.py"),
        ("dashboard", "out", *look),
    ]
    for line in lines:
        with started(place, *line, driver=None) as process, visiting(browser) as visit:
            visit.page.goto(soon(lambda: re.search(r"http://\S+/\?token=\S+", process.said()))[0])
            visit.page.locator("#tabs [aria-current]", has_text="Anomalies").wait_for()
            visit.page.locator("#run", has_text="made-up data").wait_for()
            assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
            assert "token" not in visit.page.url
            if line[0] == "run":
                place.write("enough", "")
                assert process.wait(SOON_S) == 0


@pytest.mark.parametrize("place", ["notes.txt", "cut", "later"])
def test_a_page_that_could_show_nothing_is_refused_in_one_line(tmp_path, monkeypatch, capsys, place):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("mine", encoding="utf-8")
    for name in ("cut", "later"):
        record(tmp_path / name)
    with sqlite3.connect("later/rank0.ndbg") as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    file = Path("cut/rank0.ndbg")
    file.write_bytes(file.read_bytes()[:5_000])
    assert main(["dashboard", place, "--no-browser", "--port", "0"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert {"notes.txt": "is no NeuralDBG run file", "cut": "is damaged", "later": "a later one"}[place] in said.err
