"""A real training, its dashboard and a real browser: the page stops the training, and a closed page never holds it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pexpect
import pytest
from tests.browser import visiting
from tests.cli.test_dashboard import children
from tests.dashboard.saved_runs import record
from tests.families import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="processes and signals of POSIX")]

SOON_S = 60.0
ADDRESS = re.compile(r"http://\S+/\?token=[\w-]+")
TRAIN = """
import hashlib
import pathlib
import time
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        h = self.drop(self.act(self.fc1(x)))
        return self.fc2(h)

torch.manual_seed(0)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
step = 0
while step < 60 or not pathlib.Path("end").exists():
    while step == 10 and not pathlib.Path("go").exists():
        time.sleep(0.01)
    x, y = torch.randn(5, 8), torch.randint(0, 4, (5,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step == 60:
        # The result is that of 60 steps, however long the test takes.
        held = [*model.parameters(), torch.get_rng_state()]
        result = hashlib.sha256(b"".join(x.detach().numpy().tobytes() for x in held)).hexdigest()
    print("step", step, flush=True)
    time.sleep(0.01)
print("result", result, flush=True)
"""


class Training:
    """A training beside a dashboard."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.process = folder, process

    def said(self) -> str:
        return (self.folder / "said").read_text(encoding="utf-8")

    @property
    def address(self) -> str:
        return soon(lambda: ADDRESS.search(self.said()))[0]

    @property
    def steps(self) -> int:
        return self.said().count("step ")

    def goes_on(self) -> None:
        before = self.steps
        soon(lambda: self.steps > before + 1)

    def waits(self) -> None:
        """Assert that no step is made any more."""
        before = self.steps
        time.sleep(0.5)
        assert self.steps == before

    def end(self) -> str:
        """Let the training end, and return its result."""
        for name in ("go", "end"):
            (self.folder / name).touch()
        assert self.process.wait(SOON_S) == 0, self.said()
        return re.search(r"result (\w+)", self.said())[1]  # type: ignore[index]

    def coverage(self) -> str:
        """The notes of the record, as the diagnosis has them."""
        return (self.folder / "run" / "diagnosis.json").read_text(encoding="utf-8")


def soon(asked: Callable[[], Any], seconds: float = SOON_S) -> Any:
    until = time.monotonic() + seconds
    while not (answer := asked()):
        assert time.monotonic() < until, "not within the time"
        time.sleep(0.05)
    return answer


@contextmanager
def training(folder: Path, *args: str, lease: float = 2.0, command: str = "run") -> Iterator[Training]:
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "neural_config.yaml").write_text(f"dashboard: {{lease: {lease}, refresh_rate: 0.3}}\n", encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "neuraldbg", command, "--dashboard", "--port", "0", "-o", "run", *args, "train.py"]
    with (folder / "said").open("w") as out:
        process = subprocess.Popen(
            line, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield Training(folder, process)
        finally:
            process.kill()
            process.wait()


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(".stops:not([hidden])", timeout=1000 * SOON_S)


def stopped(page: Page, where: str) -> None:
    """Wait until the page says that the training is paused there."""
    page.locator(".stops-state", has_text=re.compile(where)).wait_for(timeout=1000 * SOON_S)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def unpaused(folder: Path) -> str:
    """The result of the same program without us."""
    plain = folder / "plain"
    plain.mkdir()
    for name in ("go", "end"):
        (plain / name).touch()
    (plain / "train.py").write_text(TRAIN, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=plain, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return re.search(r"result (\w+)", done.stdout)[1]  # type: ignore[index]


def test_pause_next_layer_next_step_breakpoint_and_continue(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path, lease=60) as run, visiting(browser) as visit:
        page = visit.page
        open_page(page, run.address)
        stopped(page, "Running")
        soon(lambda: run.steps == 10)
        press(page, "Pause")
        stopped(page, "pausing")
        (tmp_path / "go").touch()
        stopped(page, r"Paused at step 10, before layer 'fc1' \(Linear\)")
        run.waits()
        assert run.steps == 10
        shown = page.inner_text(".stops-at")
        assert "loss of step 9: " in shown
        assert re.search(r"inputs\s+5 . 8\s+float32\s+40\s+0\s+0", shown)
        line = next(at for at, text in enumerate(TRAIN.splitlines(), 1) if "model(x)" in text)
        assert f"train.py:{line} in <module>" in shown
        assert "h = self.drop(self.act(self.fc1(x)))" in shown
        for layer in ("act", "drop", "fc2"):
            press(page, "Next layer")
            stopped(page, f"Paused at step 10, before layer '{layer}'")
        press(page, "Next step")
        stopped(page, r"Paused at step 11, before layer 'fc1'")
        page.get_by_text("Breakpoints", exact=True).click()
        page.get_by_role("button", name="Output of fc2").click()
        page.get_by_role("button", name="Gradient of fc1").click()
        page.get_by_text("Breakpoints (2)").wait_for()
        press(page, "Continue")
        stopped(page, r"Paused at step 11, after layer 'fc2'")
        assert re.search(r"output\s+5 . 4\s+float32\s+20", page.inner_text(".stops-at"))
        press(page, "Continue")
        stopped(page, r"Paused at step 11, at the gradient of the output of layer 'fc1'")
        assert re.search(r"gradient of the output\s+5 . 16\s+float32\s+80", page.inner_text(".stops-at"))
        press(page, "Continue")
        stopped(page, r"Paused at step 12, after layer 'fc2'")
        run.waits()
        press(page, "Clear all")
        press(page, "Continue")
        stopped(page, "Running")
        run.goes_on()
        assert visit.errors == []
        assert run.end() == unpaused(tmp_path), "the training is bitwise the same"
        told = run.coverage()
        assert "stopped on the dashboard 8 times" in told
        assert "by itself" not in told


def test_a_closed_page_lets_the_training_go_on(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path, lease=2) as run:
        with visiting(browser) as visit:
            open_page(visit.page, run.address)
            (tmp_path / "go").touch()
            press(visit.page, "Pause")
            stopped(visit.page, "Paused at step")
            visit.page.wait_for_timeout(4000)  # twice the lease
            run.waits()
        run.goes_on()
        words = r"neuraldbg: the training (continued by itself at step \d+, .*: no page of the dashboard was open)"
        said = re.search(words, run.said())
        assert said is not None
        with visiting(browser) as visit:
            open_page(visit.page, run.address)
            visit.page.get_by_text(said[1]).wait_for()
            stopped(visit.page, "Running")
        assert run.end() == unpaused(tmp_path)
        assert said[1] in run.coverage()


def test_a_dashboard_that_is_killed_lets_the_training_go_on(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path, lease=600) as run, visiting(browser) as visit:
        open_page(visit.page, run.address)
        (tmp_path / "go").touch()
        press(visit.page, "Pause")
        stopped(visit.page, "Paused at step")
        run.waits()
        (child,) = children(run.process.pid)
        os.kill(child, signal.SIGKILL)
        run.goes_on()
        assert "continued by itself" in run.said()
        assert run.end() == unpaused(tmp_path)


def test_a_page_that_is_reloaded_and_a_hidden_one_hold_the_training(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path, lease=3) as run, visiting(browser) as visit:
        page = visit.page
        open_page(page, run.address)
        (tmp_path / "go").touch()
        press(page, "Pause")
        stopped(page, "Paused at step")
        before = page.inner_text(".stops-state")
        page.reload()
        stopped(page, re.escape(before))
        # A browser slows the timers of a hidden page down, to one a minute: here those of the page do not run at all.
        page.evaluate("() => { for (let id = setTimeout(() => 0); id; id--) clearTimeout(id); }")
        page.wait_for_timeout(6000)
        run.waits()
        assert before in page.inner_text(".stops-state")
        run.process.send_signal(signal.SIGSTOP)  # as by Ctrl-Z, for longer than the lease
        page.get_by_text("The training does not answer").wait_for()
        page.wait_for_timeout(4000)
        run.process.send_signal(signal.SIGCONT)
        stopped(page, re.escape(before))
        run.waits()
        page.close()
        run.goes_on()


@pytest.mark.long
def test_two_pages_show_the_same_stop_and_a_click_counts_once(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path, lease=60) as run, visiting(browser) as one, visiting(browser) as two:
        for visit in (one, two):
            open_page(visit.page, run.address)
        soon(lambda: run.steps == 10)
        press(one.page, "Pause")
        stopped(one.page, "pausing")
        (tmp_path / "go").touch()
        for visit in (one, two):
            stopped(visit.page, "Paused at step 10, before layer 'fc1'")
        number = two.page.evaluate(STOP)
        press(one.page, "Next layer")
        stopped(one.page, "before layer 'act'")
        assert two.page.evaluate(ASK, {"do": "layer", "stop": number})["at"]["layer"] == "act"
        run.waits()
        stopped(two.page, "before layer 'act'")
        press(two.page, "Continue")
        stopped(one.page, "Running")
        run.goes_on()


ASK = """async (body) => (await fetch("/training", {method: "POST", headers: {"Content-Type": "application/json"},
                                                   body: JSON.stringify(body)})).json()"""
STOP = f"async () => (await ({ASK})({{do: 'look'}})).at.number"


def post(address: str, body: object, cookie: str = "", origin: str | None = None) -> int:
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.netloc, timeout=SOON_S)
    headers = {"Content-Type": "application/json", "Cookie": cookie, "Origin": origin or f"http://{place.netloc}"}
    connection.request("POST", "/training", json.dumps(body), headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_only_the_owner_of_the_token_stops_the_training(tmp_path: Path) -> None:
    with training(tmp_path, lease=60) as run:
        place = urlsplit(run.address)
        connection = http.client.HTTPConnection(place.netloc, timeout=SOON_S)
        connection.request("GET", f"/?{place.query}")
        cookie = connection.getresponse().headers["Set-Cookie"].split(";")[0]
        (tmp_path / "go").touch()
        soon(lambda: run.steps)
        assert post(run.address, {"do": "pause"}) == 403
        assert post(run.address, {"do": "pause"}, "neuraldbg=1") == 403
        assert post(run.address, {"do": "pause"}, cookie, origin="http://example.org") == 403
        for body in ({"do": "eval"}, {"do": "set", "layer": 3, "moment": "after_layer"}, {"do": "continue"}, [], {},
                     {"do": "set", "layer": "fc1", "moment": "before_step"}, {"do": "pause", "code": "1"}):  # fmt: skip
            assert post(run.address, body, cookie) == 400, body
        run.goes_on()
        assert post(run.address, {"do": "pause"}, cookie) == 200
        soon(lambda: run.steps)
        before = run.steps
        soon(lambda: (before := run.steps) and time.sleep(0.5) is None and run.steps == before)
        assert before <= run.steps


@pytest.mark.parametrize(
    ("sent", "status"), some([(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)], 2)
)
def test_a_signal_ends_a_paused_training_as_ever(
    browser: Browser, tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    with training(tmp_path, lease=600) as run, visiting(browser) as visit:
        open_page(visit.page, run.address)
        (tmp_path / "go").touch()
        press(visit.page, "Pause")
        stopped(visit.page, "Paused at step")
        run.process.send_signal(sent)
        assert run.process.wait(SOON_S) == status
        assert "This run ended as interrupted" in run.said() or "interrupted" in run.coverage()
        assert "by itself" not in run.said()


NODE = """(layer) => { const graph = [...document.querySelectorAll(".network")].find((one) => one._cyreg);
                      const node = graph && graph._cyreg.cy.nodes().filter((one) => one.data("layer") === layer)[0];
                      const box = graph && graph.getBoundingClientRect();
                      return node ? {x: box.x + node.renderedPosition().x, y: box.y + node.renderedPosition().y,
                                     classes: node.classes()} : null; }"""


def rested(page: Page, layer: str) -> tuple[float, float]:
    """Return the place of a layer in the graph, once it no longer moves: figures above take their height late."""
    place, before = page.evaluate(NODE, layer), None
    while place is None or place != before:
        page.wait_for_timeout(1000)
        place, before = page.evaluate(NODE, layer), place
    return place["x"], place["y"]


@pytest.mark.long
def test_a_layer_of_the_graph_is_a_breakpoint_by_a_double_click_and_is_marked(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path, lease=60) as run, visiting(browser, viewport={"width": 1280, "height": 3000}) as visit:
        page = visit.page
        open_page(page, f"{run.address}&tab=execution_trace")
        soon(lambda: run.steps == 10)
        page.locator("[title^='Double click on a layer']").wait_for()
        page.mouse.dblclick(*rested(page, "fc2"))
        page.get_by_text("Breakpoints (1): fc2").wait_for()
        soon(lambda: (page.wait_for_timeout(50), "stop" in page.evaluate(NODE, "fc2")["classes"])[1])
        page.get_by_role("button", name="No stop after fc2").wait_for()  # the click has chosen it, too
        (tmp_path / "go").touch()
        stopped(page, "Paused at step 10, after layer 'fc2'")
        soon(lambda: (page.wait_for_timeout(50), "here" in page.evaluate(NODE, "fc2")["classes"])[1])
        press(page, "No stop after fc2")
        page.get_by_text("Breakpoints", exact=True).wait_for()
        assert "stop" not in page.evaluate(NODE, "fc2")["classes"]
        press(page, "Continue")
        run.goes_on()


@pytest.mark.long
def test_the_keyboard_is_enough_and_the_bar_fits_a_narrow_page_in_each_theme(browser: Browser, tmp_path: Path) -> None:
    narrow = {"width": 360, "height": 900}
    with training(tmp_path, lease=60) as run:
        with visiting(browser, viewport=narrow, color_scheme="dark") as visit:
            page = visit.page
            open_page(page, run.address)
            soon(lambda: run.steps == 10)
            page.get_by_role("button", name="Pause", exact=True).focus()
            page.keyboard.press("Enter")
            stopped(page, "pausing")
            (tmp_path / "go").touch()
            stopped(page, "Paused at step 10, before layer 'fc1'")
            page.keyboard.press("Tab")
            for layer in ("act", "drop"):  # the button keeps the focus from stop to stop
                page.keyboard.press("Enter")
                stopped(page, f"Paused at step 10, before layer '{layer}'")
            for _ in range(6):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.tagName") == "SUMMARY":
                    break
            page.keyboard.press("Enter")
            for _ in range(12):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.ariaLabel") == "Output of fc2":
                    break
            page.keyboard.press("Space")
            page.get_by_text("Breakpoints (1): fc2").wait_for()
            assert page.evaluate("document.activeElement.ariaLabel") == "Output of fc2"
            for _ in ("dark", "light"):
                assert page.evaluate("document.documentElement.scrollWidth") <= narrow["width"]
                told = page.evaluate(CONTRAST)
                assert len(told) > 10
                assert [one for one in told if one[1] < 4.5] == []
                page.locator("#themes").click()
            assert visit.errors == []
        assert run.process.poll() is None


CONTRAST = """() => {
    const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, part, i) => {
        const x = c[i] / 255;
        return sum + part * (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    }, 0);
    const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
            if (a) return [r, g, b];
        }
        return [255, 255, 255];
    };
    return [...document.querySelectorAll(".stops p, .stops td, .stops th, .stops button, .stops pre, .stops summary")]
        .filter((node) => node.offsetParent && node.textContent && node.getAttribute("aria-disabled") !== "true")
        .map((node) => {
            const [a, b] = [light(numbers(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
            return [node.textContent, (a + 0.05) / (b + 0.05)];
        });
}"""


def test_debug_stops_on_the_page_while_it_is_open(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path, "--breakpoint", "drop", "--at", "20", lease=60, command="debug") as run:
        with visiting(browser) as visit:
            open_page(visit.page, run.address)
            (tmp_path / "go").touch()
            stopped(visit.page, r"Paused at step 20, after layer 'drop' \(Dropout\)")
            assert "breakpoint drop" in visit.page.inner_text(".stops-at")
            run.waits()
            press(visit.page, "Continue")
            run.goes_on()
        assert run.end() == unpaused(tmp_path)


@pytest.mark.long
def test_a_stop_in_the_terminal_is_told_on_the_page(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "TERM": "dumb"}
    environment.pop("PYTHONBREAKPOINT", None)
    line = ["-m", "neuraldbg", "debug", "--dashboard", "--port", "0", "-o", "run", "train.py"]
    child = pexpect.spawn(
        sys.executable, line, cwd=str(tmp_path), env=environment, encoding="utf-8", timeout=120, dimensions=(50, 200)
    )
    try:
        child.expect(r"\(neuraldbg\) ")
        address = ADDRESS.search(child.before)
        assert address is not None
        assert "NeuralDBG stops: step 0, before layer 'fc1'" in child.before
        with visiting(browser) as visit:
            open_page(visit.page, address[0])
            stopped(visit.page, r"Stopped in the terminal at step 0, before layer 'fc1'")
            tools = visit.page.locator(".stops-head button:visible")
            assert {one.get_attribute("aria-disabled") for one in tools.all()} == {"true"}
            child.sendline("next")  # while the page is open, the stops are there
            stopped(visit.page, r"Paused at step 0, before layer 'act'")
            press(visit.page, "Continue")
            stopped(visit.page, "Running")
    finally:
        child.close(force=True)


@pytest.mark.long
def test_the_bar_is_beside_the_run_of_the_training_alone(browser: Browser, tmp_path: Path) -> None:
    record(tmp_path / "run")
    with training(tmp_path, lease=60) as run, visiting(browser) as visit:
        open_page(visit.page, run.address)
        soon(lambda: run.steps == 10)
        visit.page.goto(f"{run.address}&run=run")
        visit.page.get_by_text("50 steps recorded").wait_for()
        visit.page.wait_for_timeout(1500)
        assert not visit.page.locator(".stops").is_visible()
        visit.page.goto(f"{run.address}&run=run%2Frank0-2.ndbg")
        visit.page.wait_for_selector(".stops:not([hidden])")
        stopped(visit.page, "Running")


@pytest.mark.long
def test_a_run_that_has_ended_or_is_of_another_process_shows_no_buttons(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path) as run:
        run.end()
    line = [sys.executable, "-m", "neuraldbg", "dashboard", "run", "--port", "0"]
    with (tmp_path / "other").open("w") as out:
        process = subprocess.Popen(line, cwd=tmp_path, stdout=out, stderr=subprocess.STDOUT)
        try:
            text = (tmp_path / "other").read_text
            address = soon(lambda: ADDRESS.search(text()))[0]
            with visiting(browser) as visit:
                visit.page.goto(address)
                visit.page.get_by_text("steps recorded").wait_for()
                assert visit.page.locator(".stops").count() == 0
                assert visit.page.get_by_role("button", name="Pause").count() == 0
                assert "/assets/stops.js" not in visit.page.content()
                pause = """() => fetch("/training", {method: "POST", headers: {"Content-Type": "application/json"},
                                                     body: '{"do": "pause"}'}).then((answer) => answer.status)"""
                assert visit.page.evaluate(pause) in (404, 405)
        finally:
            process.kill()
            process.wait()
