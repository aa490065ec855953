"""Real runs, a feed in memory over them, and the page of it served on the loopback under the real content policy."""

from __future__ import annotations

import dataclasses
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from tests.browser import visiting
from werkzeug.serving import make_server

from neuraldbg.compare import compare
from neuraldbg.dashboard.feed import Entry, Moment
from neuraldbg.dashboard.guard import policy
from neuraldbg.dashboard.page.app import make_app
from neuraldbg.dashboard.run_entry import Judged, entry_of
from neuraldbg.dashboard.settings import DashboardSettings
from neuraldbg.explain import diagnose
from neuraldbg.nouns import History, Outcome, RunRecord
from neuraldbg.saved import Run

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.nouns.comparison import Comparison

HOSTILE = "<img src=x onerror=alert(1)>"
TABS = ("diagnosis", "execution_trace", "gradients", "activations", "memory", "anomalies", "compare", "runs")


def trained(folder: Path, *, lr: float, steps: int = 40, name: str = "hidden", script: str = "train.py") -> Run:
    """Train a small classifier under the debugger; with a learning rate of 100 it blows up."""
    import torch
    from torch import nn

    from neuraldbg import NeuralDbg

    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("first", nn.Linear(8, 16))
    model.add_module("act", nn.ReLU())
    model.add_module(name, nn.Linear(16, 16))
    model.add_module("tanh", nn.Tanh())
    model.add_module("head", nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    x = torch.randn(256, 8)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    with NeuralDbg(model, optimizer, out=folder, overhead=None, probes=False, script=script):
        for step in range(steps):
            batch = torch.arange(64) + 64 * (step % 4)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return Run.load(folder)


def until(run: RunRecord, steps: int) -> RunRecord:
    """The run as it was after its first steps, still going."""
    keep = run.history.steps < steps
    arrays = {f.name: getattr(run.history, f.name)[keep] for f in dataclasses.fields(History) if f.name != "scalars"}
    history = History(**arrays, scalars={name: values[keep] for name, values in run.history.scalars.items()})
    return RunRecord(
        info=dataclasses.replace(run.info, outcome=Outcome("running")),
        layout=run.layout,
        history=history,
        facts=tuple(f for f in run.facts if f.step < steps),
        events=tuple(e for e in run.events if e.first_step < steps),
        steps=steps,
    )


class MemoryFeed:
    """Runs that are put there; each time is a new version."""

    def __init__(self, **runs: RunRecord) -> None:
        self._moments: dict[str, Moment] = {}
        self._entries: dict[str, Entry] = {}
        self.busy = False
        for key, run in runs.items():
            self.put(key, run)

    def put(self, key: str, run: RunRecord, *, label: str = "", judge: bool = True, **entry) -> None:
        """Show a run, or what has become of it."""
        before = self._moments.get(key)
        diagnosis = diagnose(run) if judge or before is None else before.diagnosis
        judged = run.steps if judge or before is None else before.judged
        self._moments[key] = Moment(run, diagnosis, before.version + 1 if before else 1, judged)
        known = entry_of(Entry(key, label or key, 0, ""), run, Judged.of(diagnosis))
        self._entries[key] = dataclasses.replace(known, **entry)

    def enter(self, entry: Entry) -> None:
        """List an entry as it is, with the record of any other run."""
        self._moments[entry.key] = next(iter(self._moments.values()))
        self._entries[entry.key] = entry

    def remove(self, key: str) -> None:
        """Take a run away, as if its folder were deleted."""
        del self._entries[key], self._moments[key]

    def runs(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def moment(self, key: str) -> Moment:
        return self._moments[key]

    def compare(self, key: str, other: str) -> Comparison | None:
        """Compare at once, unless it is ``busy``."""
        one, two = self.moment(key), self.moment(other)
        judged = (one.diagnosis, two.diagnosis)
        return None if self.busy else compare(one.record, two.record, judged, names=(key, other))


@contextmanager
def served(feed, **settings):
    """Serve the page of a feed under a strict content policy; gives its address."""
    app = make_app(feed, DashboardSettings(**{"refresh_rate": 0.2, **settings}))

    @app.server.after_request
    def strict(response):
        response.headers["Content-Security-Policy"] = policy(app.csp_hashes())
        return response

    server = make_server("127.0.0.1", 0, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="page under test", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def drawn(page) -> None:
    """Wait until every pane shows what it has."""
    page.wait_for_selector("section.pane")
    whole = """() => [...document.querySelectorAll("section.pane")].every((pane) => !pane.querySelector(".waiting")
                     && (!pane.querySelector("[id*=figure]") || pane.querySelector(".nothing")
                     || pane.querySelector("svg.main-svg")))"""
    becomes(page, lambda: page.evaluate(whole), True)
    places = """() => JSON.stringify([
        ...[...document.querySelectorAll("section.pane")].map((pane) => pane.getBoundingClientRect()),
        ...[...document.querySelectorAll("[id*=network]")].flatMap((one) => one._cyreg
            ? one._cyreg.cy.nodes().map((node) => node.renderedPosition()) : [])])"""
    before = None
    while before != (before := page.evaluate(places)):  # figures take their size a moment after they are there
        page.wait_for_timeout(200)


def each_tab(page):
    """Click on one tab after the other, and name those that are drawn."""
    for tab in TABS:
        page.click(f"nav a[href*='tab={tab}']")
        becomes(page, lambda tab=tab: tab in page.locator("nav [aria-current]").get_attribute("href"), True)
        drawn(page)
        yield tab


@contextmanager
def opened(browser, address, **context):
    """Open an address and wait for its panes; what went wrong on the page fails the test at the end."""
    with visiting(browser, **{"viewport": {"width": 1280, "height": 900}, **context}) as visit:
        visit.page.goto(address)
        drawn(visit.page)
        yield visit.page
        # dash-cytoscape always hands cytoscape.js its default wheel sensitivity, which warns of custom ones.
        errors = [error for error in visit.errors if "wheel sensitivity" not in error]
        assert errors == [], errors
        outside = [r for r in visit.requests if not r.startswith(address.split("?", maxsplit=1)[0])]
        assert outside == []


def becomes(page, ask, wanted, seconds: float = 15.0) -> None:
    """Ask until the answer is the wanted one; fail with the last answer."""
    deadline = time.monotonic() + seconds
    while (answer := ask()) != wanted:
        if time.monotonic() > deadline:
            assert answer == wanted
        page.wait_for_timeout(50)  # playwright hears of the page only while it is asked to wait


def in_sight(page, locator) -> dict[str, float]:
    """Scroll to an element; return its place once the page has heard of it, as it has by the time a hand is there."""
    locator.scroll_into_view_if_needed()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return locator.bounding_box()


def click_cell(page, pane: str, row: int, column: int) -> None:
    """Click a cell of a heat map, row 0 on top, as a person does: with the mouse, where the cell is drawn."""
    box = in_sight(page, page.locator(f'section.pane:has([id*=\'"pane":"{pane}"\']) .nsewdrag').first)
    rows, columns = page.evaluate(
        """pane => { const g = document.querySelector(`[id*='"pane":"${pane}"'] .js-plotly-plot`);
                     const z = g._fullData[0].z; return [z.length, z[0].length]; }""",
        pane,
    )
    x, y = (np.array([column, row]) + 0.5) / [columns, rows] * [box["width"], box["height"]]
    page.mouse.move(box["x"] + x - 3, box["y"] + y)
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_selector(".hoverlayer .hovertext")  # plotly knows then what is under the pointer
    page.mouse.click(box["x"] + x, box["y"] + y)
