"""A run that goes on: new steps appear, what a person did to the page stays, and nothing is sent for nothing."""

from __future__ import annotations

import shutil

import pytest
from tests.browser import visiting
from tests.dashboard.served_page import MemoryFeed, becomes, drawn, in_sight, opened, served, until
from tests.record.known_steps import INFO, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder, read_run

LAST = "[...document.querySelector('[id*=loss] .js-plotly-plot')._fullData[0].x].at(-1)"


def test_new_steps_appear_and_the_end_is_said(browser, healthy):
    feed = MemoryFeed(run=until(healthy, 40))
    with served(feed) as address, opened(browser, address) as page:
        assert "40 steps recorded" in page.inner_text(".status")
        assert "running" in page.inner_text(".status")
        assert page.evaluate(LAST) == 39
        feed.put("run", until(healthy, 60), judge=False)
        becomes(page, lambda: page.evaluate(LAST), 59)
        becomes(page, lambda: "60 steps recorded · diagnosis of the first 40" in page.inner_text(".status"), True)
        feed.put("run", healthy)
        becomes(page, lambda: page.evaluate(LAST), 119)
        becomes(page, lambda: "diagnosis up to date · finished" in page.inner_text(".status"), True)


def test_what_a_person_did_survives_an_update(browser, doomed):
    feed = MemoryFeed(run=until(doomed, 20))
    with served(feed) as address, opened(browser, address) as page:
        summary = page.locator("details summary").first
        summary.click()  # the first cause is open: close it
        plot = "document.querySelector('[id*=loss] .js-plotly-plot')"
        box = in_sight(page, page.locator("[id*=loss] .nsewdrag").first)
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.2 * box["height"])
        page.mouse.down()  # zoom along the values only
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.7 * box["height"], steps=5)
        page.mouse.up()
        becomes(page, lambda: page.evaluate(f"{plot}._fullLayout.yaxis.autorange"), False)
        zoomed = page.evaluate(f"{plot}._fullLayout.yaxis.range")
        page.evaluate("window.scrollTo(0, 100)")
        assert page.evaluate("window.scrollY") == 100
        feed.put("run", until(doomed, 30), judge=False)
        becomes(page, lambda: page.evaluate(LAST), 29)
        assert page.evaluate(f"{plot}._fullLayout.yaxis.range") == zoomed
        assert page.evaluate("window.scrollY") == 100
        assert not page.evaluate("document.querySelector('details').open")


@pytest.mark.long
def test_a_zoom_is_of_one_run_and_comes_back_with_its_tab(browser, doomed, healthy):
    feed = MemoryFeed(one=until(doomed, 20), other=until(healthy, 40))
    axis = "document.querySelector('[id*=loss] .js-plotly-plot')._fullLayout.yaxis"

    def go(page, run, tab):
        page.evaluate(f"dash_clientside.set_props('address', {{search: '?run={run}&tab={tab}'}})")
        becomes(page, lambda: page.inner_text(".run-name"), run)
        becomes(page, lambda: tab in page.locator("nav [aria-current]").get_attribute("href"), True)
        drawn(page)

    with served(feed) as address, opened(browser, f"{address}?run=one") as page:
        box = in_sight(page, page.locator("[id*=loss] .nsewdrag").first)
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.2 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.7 * box["height"], steps=5)
        page.mouse.up()
        becomes(page, lambda: page.evaluate(f"{axis}.autorange"), False)
        zoomed = page.evaluate(f"{axis}.range")
        go(page, "other", "diagnosis")
        assert page.evaluate(f"{axis}.autorange") is True
        feed.put("other", until(healthy, 60), judge=False)
        becomes(page, lambda: page.evaluate(LAST), 59)
        assert page.evaluate(f"{axis}.autorange") is True
        go(page, "one", "memory")
        go(page, "one", "diagnosis")
        assert page.evaluate(f"{axis}.range") == zoomed


@pytest.mark.long
def test_nothing_is_sent_while_nothing_happens(browser, doomed):
    sizes = []
    with served(MemoryFeed(run=doomed)) as address, opened(browser, address) as page:
        page.wait_for_timeout(500)
        page.on("response", lambda answer: sizes.append((answer.status, answer.headers.get("content-length"))))
        becomes(page, lambda: len(sizes) >= 3, True)
    assert {status for status, _ in sizes} == {204}


@pytest.mark.long
def test_only_what_changed_is_sent(browser, healthy):
    """New steps of a run leave the words and the graph of its diagnosis as they are."""
    feed, answers = MemoryFeed(run=until(healthy, 60)), []
    with served(feed) as address, opened(browser, address) as page:
        page.wait_for_timeout(300)
        page.on("response", lambda answer: answer.status == 200 and answers.append(answer.json()["response"]))
        feed.put("run", until(healthy, 70), judge=False)
        becomes(page, lambda: bool(answers), True)
    changed = set(answers[0])
    assert '{"pane":"loss","part":"figure"}' in changed
    words = {name for name in changed if "words" in name or "network" in name}
    assert words == {'{"pane":"numbers","part":"words"}'}


@pytest.mark.long
def test_a_line_has_at_most_the_points_of_the_settings_and_keeps_its_extremes(browser, healthy):
    loss = healthy.scalar("loss").values
    with served(MemoryFeed(run=healthy), max_history=20) as address, opened(browser, address) as page:
        shown = page.evaluate(LAST.replace(".x].at(-1)", ".y]"))
        assert len(shown) <= 20 < len(loss)
        assert (min(shown), max(shown)) == (loss.min(), loss.max())


class FileFeed(MemoryFeed):
    """Reads a run file anew whenever it is asked: slow, and right."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def runs(self):
        run = read_run(self.path)
        if not self._moments or self._moments["file"].record.steps != run.steps:
            self.put("file", run)
        return super().runs()


@pytest.mark.slow
def test_a_file_that_grows(browser, tmp_path):
    place = layout()
    recorder = Recorder(tmp_path / "run", RecordSettings(), INFO)
    for index in range(10):
        recorder.put(step(index), place)
    recorder.flush()
    with served(FileFeed(tmp_path / "run"), refresh_rate=0.3) as address, opened(browser, address) as page:
        becomes(page, lambda: "10 steps recorded" in page.inner_text(".status"), True)
        for index in range(10, 25):
            recorder.put(step(index), place)
        recorder.flush()
        becomes(page, lambda: page.evaluate(LAST), 24)
        value = page.evaluate(LAST.replace(".x]", ".y]"))
        assert value == pytest.approx(1 / 25)
    recorder.close()
    shutil.rmtree(tmp_path / "run")


def test_a_page_that_nobody_answers_any_more_says_so(browser, doomed):
    with visiting(browser) as visit:
        with served(MemoryFeed(run=until(doomed, 20))) as address:
            visit.page.goto(address)
            drawn(visit.page)
            assert not visit.page.is_visible("#lost")
        becomes(visit.page, lambda: visit.page.is_visible("#lost"), True)
        assert "neuraldbg dashboard RUN opens the run again" in visit.page.inner_text("#lost")
