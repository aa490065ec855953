"""Two runs beside each other in a real Chromium: what is said is what ``neuraldbg compare`` says, and it leads on."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from tests.browser import visiting
from tests.dashboard.served_page import HOSTILE, MemoryFeed, becomes, click_cell, drawn, opened, served

from neuraldbg.compare import compare
from neuraldbg.show.views.pair import drift

HEIGHTS = """() => [...document.querySelectorAll("section.pane")]
                   .map((pane) => [pane.querySelector("h2").textContent, pane.getBoundingClientRect().height])"""
NAMES = """() => document.querySelector(`[id*='"pane":"pair_loss"'] .js-plotly-plot`)._fullData.map((d) => d.name)"""


def asked(page):
    """The address as names and values."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def test_the_tab_says_what_the_comparison_says_and_leads_to_the_divergence(browser, doomed, healthy):
    feed = MemoryFeed(doomed=doomed, healthy=healthy)
    expected = feed.compare("doomed", "healthy")
    first = expected.first
    assert first.layer is not None
    with served(feed) as address, opened(browser, f"{address}?tab=compare&with=healthy") as page:
        said = page.inner_text("main")
        assert page.inner_text(".verdict") == "! DIVERGED"
        assert expected.summary in said
        for one in expected.settings:
            assert one.name in said
        for change in expected.health[:10]:
            assert change.one in said
        assert f"{expected.compared.sites} sites in {expected.compared.read:,} steps compared" in said
        lines = page.evaluate(NAMES)
        assert lines[:2] == ["doomed", "healthy"]
        page.locator(".where a").first.click()
        becomes(page, lambda: asked(page).get("step"), str(first.step))
        assert asked(page)["layer"] == first.layer
        assert (asked(page)["tab"], asked(page)["with"]) == ("compare", "healthy")


def test_a_cell_of_the_differences_leads_to_its_layer_and_step_and_the_inputs_to_no_layer(browser, doomed, healthy):
    feed = MemoryFeed(doomed=doomed, healthy=healthy)
    rows = drift(feed.compare("doomed", "healthy")).layers
    with served(feed) as address, opened(browser, f"{address}?tab=compare&with=healthy") as page:
        click_cell(page, "pair_drift", rows.index("hidden"), 5)
        becomes(page, lambda: (asked(page).get("layer"), asked(page).get("step")), ("hidden", "5"))
        click_cell(page, "pair_drift", rows.index("(input)"), 7)
        becomes(page, lambda: (asked(page).get("layer"), asked(page).get("step")), ("hidden", "7"))
        assert page.inner_text("#problems") == ""


@pytest.mark.slow
def test_another_run_is_chosen_from_the_runs_and_from_the_list(browser, doomed, healthy):
    feed = MemoryFeed(doomed=doomed, healthy=healthy)
    feed.put("third", healthy, label=HOSTILE)
    with served(feed) as address, opened(browser, f"{address}?tab=compare") as page:
        assert "Choose the run to compare this one with:" in page.inner_text("main")
        assert page.locator("section.pane:visible").count() == 1
        page.click("nav a[href*='tab=runs']")
        becomes(page, lambda: page.locator("td a", has_text="compare").count(), 2)
        page.locator("td a", has_text="compare").first.click()
        becomes(page, lambda: asked(page), {"run": "doomed", "with": "healthy", "tab": "compare"})
        becomes(page, page.locator("h2").first.inner_text, "doomed against healthy")
        page.click(".beside .dash-dropdown")
        page.locator(".dash-options-list-option", has_text=HOSTILE).click()
        becomes(page, lambda: asked(page)["with"], "third")
        becomes(page, page.locator("h2").first.inner_text, "doomed against third")
        assert page.locator("img[src='x']").count() == 0
        page.go_back()
        becomes(page, page.locator("h2").first.inner_text, "doomed against healthy")


@pytest.mark.slow
def test_what_cannot_be_compared_yet_is_said(browser, doomed, healthy):
    feed = MemoryFeed(doomed=doomed)
    with served(feed) as address, opened(browser, f"{address}?tab=compare&with=nobody") as page:
        assert "There is one run only. Open a folder that holds both: neuraldbg dashboard FOLDER" in page.inner_text(
            "main"
        )
        assert "There is no other run 'nobody' here to compare with." in page.inner_text("#problems")
        feed.busy = True
        feed.put("healthy", healthy)
        becomes(page, lambda: "The runs are being compared." in page.inner_text("main"), True)
        assert page.locator("section.pane:visible").count() == 1
        feed.busy = False
        becomes(page, page.locator("h2").first.inner_text, "doomed against healthy")  # the only other one
        drawn(page)
        assert page.locator("section.pane:visible").count() == 7


@pytest.mark.long
def test_runs_that_share_nothing_are_incomparable(browser, doomed):
    from neuraldbg.nouns import RunRecord

    feed = MemoryFeed(doomed=doomed, empty=RunRecord())
    with served(feed) as address, opened(browser, f"{address}?run=doomed&tab=compare") as page:
        assert page.inner_text(".verdict") == "? INCOMPARABLE"
        assert compare(doomed, RunRecord(), names=("doomed", "empty")).summary in page.inner_text("main")
        assert page.locator("section.pane:visible").count() == 1


@pytest.mark.parametrize("search", ["?tab=compare&with=healthy", "?tab=gradients"])
@pytest.mark.long
def test_a_pane_has_the_height_of_its_figure_before_that_is_drawn(browser, doomed, healthy, search):
    with served(MemoryFeed(doomed=doomed, healthy=healthy)) as address, visiting(browser) as visit:
        held = []
        visit.page.route("**/plotly.min.js*", lambda route: held.append(route))  # noqa: PLW0108 (playwright marks what it is handed)
        visit.page.goto(address + search)
        visit.page.wait_for_selector("section.pane.figure")
        becomes(visit.page, lambda: len(held), 1)
        becomes(visit.page, visit.page.locator(".waiting").count, 0)
        visit.page.wait_for_timeout(300)
        assert visit.page.locator("svg.main-svg").count() == 0
        before = visit.page.evaluate(HEIGHTS)
        held[0].continue_()
        drawn(visit.page)
        assert visit.page.evaluate(HEIGHTS) == before
