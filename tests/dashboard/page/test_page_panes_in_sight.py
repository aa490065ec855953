"""A large run: its words come first, then the panes in sight, and the others when somebody looks at them."""

from __future__ import annotations

import pytest
from tests.browser import visiting
from tests.dashboard.served_page import MemoryFeed, becomes, drawn, opened, served, until

from neuraldbg.dashboard.page import callbacks

FIRST = "performance.getEntriesByName('neuraldbg first distribution').length"
LAST = "performance.getEntriesByName('neuraldbg last distribution').map((mark) => mark.startTime)[0]"
NEWEST = "document.querySelector('[id*=heatmap] .js-plotly-plot').layout.meta.starts.at(-1)"


@pytest.fixture(autouse=True)
def _every_run_is_large(monkeypatch):
    monkeypatch.setattr(callbacks, "LARGE", 0)


def test_the_words_come_first_and_a_pane_is_drawn_when_it_is_looked_at(browser, doomed):
    answers = []
    # No tick that would draw the rest meanwhile.
    with (
        served(MemoryFeed(run=doomed), refresh_rate=60) as address,
        visiting(browser, viewport={"width": 1280, "height": 500}) as visit,
    ):
        page = visit.page
        page.on("response", lambda r: "_dash-update" in r.url and r.status == 200 and answers.append(r.text()))
        page.goto(f"{address}?tab=gradients")
        page.wait_for_selector("[data-pane=heatmap] svg.main-svg")
        assert len(answers) == 2
        assert "js-plotly" not in answers[0]
        assert '"Graph"' not in answers[0]
        assert answers[1].count('"Graph"') == 1
        assert page.locator("[data-pane=distribution] .waiting").count() == 1
        page.locator("[data-pane=distribution]").scroll_into_view_if_needed()
        page.wait_for_selector("[data-pane=distribution] svg.main-svg")
        assert "Distribution over time" in page.inner_text("[data-pane=distribution] h2")
        assert visit.errors == []


@pytest.mark.long
def test_what_is_not_looked_at_is_drawn_while_nothing_else_happens(browser, doomed):
    with (
        served(MemoryFeed(run=doomed), refresh_rate=0.2) as address,
        visiting(browser, viewport={"width": 1280, "height": 500}) as visit,
    ):
        visit.page.goto(f"{address}?tab=gradients")
        drawn(visit.page)
        assert visit.page.evaluate("window.scrollY") == 0
        assert visit.page.locator("svg.main-svg").count() >= 4
        assert visit.errors == []


@pytest.mark.long
def test_a_figure_is_drawn_once(browser, doomed):
    """Dash asks for a second drawing of each, to fit its place: it would take as long as the first."""
    with served(MemoryFeed(run=doomed), refresh_rate=60) as address, visiting(browser) as visit:
        visit.page.goto(f"{address}?tab=gradients")
        visit.page.wait_for_selector("[data-pane=heatmap] svg.main-svg")
        visit.page.evaluate(
            "() => { const plot = document.querySelector('[id*=heatmap] .js-plotly-plot'); window.drawings = 0;"
            "        plot.on('plotly_afterplot', () => { window.drawings += 1; }); }"
        )
        visit.page.wait_for_timeout(600)
        assert visit.page.evaluate("window.drawings") == 0
        visit.page.set_viewport_size({"width": 700, "height": 600})  # one that does not fit is drawn again
        becomes(visit.page, lambda: visit.page.evaluate("window.drawings") > 0, True)
        width, room = visit.page.evaluate(
            "() => { const plot = document.querySelector('[id*=heatmap] .js-plotly-plot');"
            "        return [plot._fullLayout.width, plot.getBoundingClientRect().width]; }"
        )
        assert width == pytest.approx(room, abs=1)


def test_new_steps_redraw_what_is_in_sight_first(browser, healthy):
    feed = MemoryFeed(run=until(healthy, 60))
    with (
        served(feed, refresh_rate=0.2) as address,
        opened(browser, f"{address}?tab=gradients", viewport={"width": 1280, "height": 500}) as page,
    ):
        assert page.evaluate(FIRST) == 1
        before, newest, answers = page.evaluate(LAST), page.evaluate(NEWEST), []
        page.on("response", lambda r: r.status == 200 and answers.append(set(r.json()["response"])))
        feed.put("run", until(healthy, 90), judge=False)
        becomes(page, lambda: page.evaluate(NEWEST) > newest, True)
        becomes(page, lambda: bool(answers), True)  # the page has heard of it before the test has
        first = {name for name in answers[0] if "figure" in name}
        assert first == {'{"pane":"heatmap","part":"figure"}'}
        becomes(page, lambda: page.evaluate(LAST) > before, True)  # and then the rest
