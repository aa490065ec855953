"""The dashboard on a long run of a deep model, in a real Chromium: first paint, updates, and the page's memory.

    python benchmarks/dashboard.py [--layers 500] [--steps 100000] [--updates 60] [--tab gradients] [--json FILE]

The run of ``longrun.py`` is written and goes on: every update records 100 more steps. What is measured is the real
thing, `neuraldbg dashboard` as a process of its own and a browser that has never seen the page: from opening the
address until something is painted, until the diagnosis can be read, and until every figure in sight is drawn. The
page's own marks tell (``performance.mark``); the browser is asked for them afterwards, since one that is watched while
it loads takes half as long again to read the scripts. Then: how long the server works on an update; from there until
the browser has drawn it; and the heap of its scripts after each. The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import longrun
import numpy as np

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import RunInfo
from neuraldbg.record import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page, Response

EACH = 100
"""Steps of an update."""
SIGHT = """const panes = [...document.querySelectorAll("section.pane")].filter((pane) => {
             const { top, bottom } = pane.getBoundingClientRect(); return top < innerHeight && bottom > 0; });"""
WHOLE = f"""() => {{ {SIGHT}
          return panes.length > 0 && panes.every((pane) => !pane.querySelector(".waiting")
            && (!pane.querySelector("[id*=figure]") || pane.querySelector(".nothing")
            || pane.querySelector("svg.main-svg"))); }}"""
MARKS = f"""() => {{ {SIGHT}
          const drawn = (pane) => performance.getEntriesByName(`neuraldbg first ${{pane.dataset.pane}}`);
          const at = (entries) => Math.max(...entries.map((entry) => entry.startTime));
          return ["first-contentful-paint", "neuraldbg answered"].map((name) => at(performance.getEntriesByName(name)))
            .concat(at(panes.flatMap(drawn))); }}"""
LAST = """() => Math.max(0, ...performance.getEntriesByType("mark")
          .filter((mark) => mark.name.startsWith("neuraldbg last"))
          .map((mark) => performance.timeOrigin + mark.startTime))"""
TIMES = 3
"""Browsers that open the page, one after the other."""
SETTLED_S = 6.0
"""A page that was opened is drawn by then."""
MIB = 2**20


@dataclass
class Result:
    """What was measured."""

    layers: int
    steps: int
    tab: str
    address_s: float = 0.0
    """From the command to the address that it prints, while nothing of the run is known yet."""
    painted_ms: list[float] = field(default_factory=list)
    answer_ms: list[float] = field(default_factory=list)
    drawn_ms: list[float] = field(default_factory=list)
    """From opening the address until something is painted, the diagnosis stands there in words, and all figures in
    sight are drawn; of each browser."""
    tabs_ms: dict[str, float] = field(default_factory=dict)
    """From a click on a tab until its panes are drawn."""
    server_ms: list[float] = field(default_factory=list)
    """From a question of the page to the end of its answer, where there was something new."""
    browser_ms: list[float] = field(default_factory=list)
    """From the end of the answer until its figures were drawn."""
    server_cpu_ms: list[float] = field(default_factory=list)
    browser_cpu_ms: list[float] = field(default_factory=list)
    """CPU time of both for an update, which does not depend on what else the machine does; that of the server counts
    the reading and the judging of the run as well."""
    kilobytes: list[float] = field(default_factory=list)
    heap_mib: list[float] = field(default_factory=list)


@contextmanager
def growing(folder: Path, layers: int, steps: int) -> Iterator[Any]:
    """Write a run and leave it open; give a function that records more steps."""
    random, layout = np.random.default_rng(0), longrun.layout_of(layers)
    recorder = Recorder(folder, RecordSettings(), RunInfo(script="deep.py", models=("Deep",), optimizers=("SGD",)))
    done = 0

    def go_on(more: int) -> None:
        nonlocal done
        for index in range(done, done + more):
            recorder.put(longrun.step_of(index, layers, steps, random), layout)
            if index % 200 == 199:
                recorder.flush()
        recorder.flush()
        done += more

    go_on(steps)
    try:
        yield go_on
    finally:
        recorder.close()


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, int]]:
    """Start the command; give the address that it prints, and the id of the process."""
    words = [sys.executable, "-m", "neuraldbg", "dashboard", str(folder), "--no-browser", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line))), process.pid
        finally:
            process.terminate()


@contextmanager
def browser_at(address: str, program: str) -> Iterator[Any]:
    """Open the address in a new browser with an empty profile; give the port to ask it by, once all is drawn."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        words = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--window-size=1280,900", f"--remote-debugging-port={port}", f"--user-data-dir={home}", "about:blank",
        ]  # fmt: skip
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(2.0)  # the browser itself has started
                asked = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                asked.request("PUT", f"/json/new?{urllib.parse.quote(address)}")
                assert asked.getresponse().status == 200
                time.sleep(SETTLED_S)
                yield port
            finally:
                process.kill()


def first_paint(page: Page, result: Result) -> None:
    """Ask a page that was opened how long it took."""
    for values, at in zip((result.painted_ms, result.answer_ms, result.drawn_ms), page.evaluate(MARKS), strict=True):
        values.append(at)


def wait(page: Page) -> None:
    """Wait until every pane is drawn; ``wait_for_function`` would need what the content policy forbids."""
    deadline = time.monotonic() + 60
    while not page.evaluate(WHOLE):
        assert time.monotonic() < deadline, page.inner_text("body")[:500]
        page.wait_for_timeout(10)


def cpu_ms(process: int) -> float:
    """Return the CPU time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(page: Page, result: Result, go_on: Any, updates: int, process: int) -> None:
    """Record more steps so many times, and measure what follows."""
    answers: list[Response] = []
    page.on("response", lambda r: answers.append(r) if "_dash-update" in r.url and r.status == 200 else None)
    page.wait_for_timeout(3000)
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": "threadTicks"})

    def browser_cpu_ms() -> float:
        metrics = client.send("Performance.getMetrics")["metrics"]
        return 1e3 * float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    for _ in range(updates):
        answers.clear()
        before = cpu_ms(process), browser_cpu_ms()
        go_on(EACH)
        while not answers:
            page.wait_for_timeout(20)
        answer = answers[0]
        answer.finished()
        timing = answer.request.timing
        ended = timing["startTime"] + timing["responseEnd"]
        page.wait_for_timeout(600)
        result.browser_ms.append(page.evaluate(LAST) - ended)
        result.server_ms.append(timing["responseEnd"] - timing["requestStart"])
        result.kilobytes.append(len(answer.body()) / 1e3)
        result.server_cpu_ms.append(cpu_ms(process) - before[0])
        result.browser_cpu_ms.append(browser_cpu_ms() - before[1])
        client.send("HeapProfiler.collectGarbage")
        result.heap_mib.append(client.send("Runtime.getHeapUsage")["usedSize"] / MIB)


def each_tab(page: Page, result: Result) -> None:
    """Click on one tab after the other."""
    for name in page.locator("nav a").all_inner_texts()[1:]:
        began = time.perf_counter()
        page.click(f"nav >> text={name}")
        page.wait_for_selector(f"nav [aria-current] >> text={name}")
        wait(page)
        result.tabs_ms[name] = 1e3 * (time.perf_counter() - began)


def measured(layers: int, steps: int, updates: int, tab: str) -> Result:
    """Measure all of it."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (of the extra dev)

    result = Result(layers, steps, tab)
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as place, growing(Path(place) / "run", layers, steps) as go_on:
        began = time.perf_counter()
        with dashboard(Path(place) / "run") as (address, process), sync_playwright() as playwright:
            result.address_s = time.perf_counter() - began
            time.sleep(SETTLED_S)
            for last in [False] * (TIMES - 1) + [True]:
                with browser_at(address, program) as port:
                    browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
                    page = next(page for page in browser.contexts[0].pages if page.url.startswith("http"))
                    first_paint(page, result)
                    if last:
                        each_tab(page, result)
                        page.goto(f"{page.url.split('?')[0]}?tab={tab}")
                        wait(page)
                        watch(page, result, go_on, updates, process)
                    browser.close()
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=500)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--tab", default="gradients")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    result = measured(args.layers, args.steps, args.updates, args.tab)
    if args.json:
        args.json.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
    print(f"{result.layers} layers x {result.steps:,} steps")
    print(f"the address is told after {result.address_s:.1f} s")
    for name, values in (
        ("first paint", result.painted_ms),
        ("  the diagnosis", result.answer_ms),
        ("  all in sight", result.drawn_ms),
    ):
        print(f"{name:<19}{statistics.median(values):6.0f} ms (of {', '.join(f'{value:.0f}' for value in values)})")
    for name, taken in result.tabs_ms.items():
        print(f"  {name:<17}{taken:6.0f} ms")
    for name, values, unit in (
        ("update: server", result.server_ms, "ms"),
        ("update: browser", result.browser_ms, "ms"),
        ("  its CPU time", result.server_cpu_ms, "ms"),
        ("  browser's", result.browser_cpu_ms, "ms"),
        ("update: size", result.kilobytes, "kB"),
    ):
        print(f"{name:<19}{statistics.median(values):6.0f} {unit} (largest {max(values):.0f})")
    heap = result.heap_mib
    print(f"heap of the page   {heap[0]:6.0f} MiB after the first update, {heap[-1]:.0f} after {len(heap)}")


if __name__ == "__main__":
    main()
