"""The list of runs in a real Chromium: what it says of each, sorting, filtering, and several losses in one plot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.dashboard.page.test_page_follow import state
from tests.dashboard.served_page import MemoryFeed, becomes, drawn, opened, served

from neuraldbg.dashboard.page.components import title_of
from neuraldbg.show.format.phrases import percent
from neuraldbg.show.format.safe_text import duration, number

PLOT = "document.querySelector('[id*=several_losses] .js-plotly-plot')"
LINES = f"{PLOT}._fullData.filter((t) => t.visible === true && t.line.width > 1.1).map((t) => t.name)"


@pytest.fixture
def feed(doomed, broken, healthy):
    return MemoryFeed(doomed=doomed, broken=broken, healthy=healthy)


def column(page, at):
    return page.locator(f"[data-pane=runs] tbody td:nth-child({at})").all_inner_texts()


def test_each_row_says_verdict_cause_final_loss_steps_and_duration(browser, feed, doomed):
    first = doomed.diagnose().hypotheses[0]
    (entry,) = (entry for entry in feed.runs() if entry.key == "doomed")
    with served(feed) as address, opened(browser, f"{address}?tab=runs&sort=run") as page:
        row = page.locator("[data-pane=runs] tbody tr", has_text="doomed").locator("td").all_inner_texts()
        assert row[1:8] == [
            "doomed",
            "✗ failing",
            f"{title_of(first.cause)} · {percent(first.confidence)}",
            number(float(np.median(doomed.scalar("loss").values[-4:]))),
            "40",
            duration(float(doomed.history.time[-1])),
            "finished",
        ]
        assert entry.losses == pytest.approx([np.median(doomed.scalar("loss").values[-4:])])
        assert column(page, 5)[column(page, 2).index("broken")] == "NaN"


@pytest.mark.long
def test_rows_are_sorted_by_any_column_and_back(browser, feed):
    with served(feed) as address, opened(browser, f"{address}?tab=runs") as page:
        page.click("[data-pane=runs] th >> text=final loss")
        becomes(page, lambda: column(page, 2), ["healthy", "doomed", "broken"])  # a loss that ends in NaN is the worst
        page.click("[data-pane=runs] th >> text=final loss")
        becomes(page, lambda: column(page, 2), ["broken", "doomed", "healthy"])
        assert state(page)["sort"] == "-loss"
        page.click("[data-pane=runs] th >> text=run")
        becomes(page, lambda: column(page, 2), ["broken", "doomed", "healthy"])
        page.click("[data-pane=runs] th >> text=verdict")
        becomes(page, lambda: column(page, 2)[0], "healthy")


def test_a_filter_leaves_runs_with_all_its_words_and_is_in_the_address(browser, feed):
    with served(feed) as address, opened(browser, f"{address}?tab=runs&sort=run") as page:
        page.locator("#filter").press_sequentially("FAILING doo")
        becomes(page, lambda: column(page, 2), ["doomed"])
        assert state(page)["filter"] == "FAILING doo"
        assert page.evaluate("document.activeElement.id") == "filter", "it is still typed in"
        assert "Runs (1 of 3)" in page.inner_text("[data-pane=runs] h2")
        page.reload()
        drawn(page)
        assert page.input_value("#filter") == "FAILING doo"
        page.fill("#filter", "no such run")
        becomes(page, lambda: "No run matches the filter" in page.inner_text("[data-pane=runs]"), True)
        page.fill("#filter", "")
        becomes(page, lambda: column(page, 2), ["broken", "doomed", "healthy"])
        assert "filter" not in state(page)
        assert page.locator("#layer").is_hidden(), "no layer changes this tab"


def test_losses_of_several_runs_are_one_plot_of_those_that_are_ticked(browser, feed, doomed, healthy):
    with served(feed) as address, opened(browser, f"{address}?run=doomed&tab=runs&runs=doomed,healthy") as page:
        assert page.evaluate(LINES) == ["doomed", "healthy"]
        for name, run in (("doomed", doomed), ("healthy", healthy)):
            x, y = page.evaluate(
                f"name => {{ const t = {PLOT}._fullData.find((t) => t.name === name); return [[...t.x], [...t.y]]; }}",
                name,
            )
            np.testing.assert_array_equal(x, run.scalar("loss").steps)
            np.testing.assert_allclose(y, run.scalar("loss").values)
        page.locator("[data-pane=runs] tbody tr", has_text="doomed").locator(".toggle a").click()
        becomes(page, lambda: page.evaluate(LINES), ["healthy"])
        assert state(page)["runs"] == "healthy"
        page.locator("[data-pane=runs] tbody tr", has_text="healthy").locator(".toggle a").click()
        becomes(page, lambda: "No run is selected" in page.inner_text("[data-pane=several_losses]"), True)


@pytest.mark.long
def test_a_run_that_is_gone_while_it_is_shown_says_so_and_leads_to_the_others(browser, feed):
    with served(feed) as address, opened(browser, f"{address}?run=doomed") as page:
        feed.remove("doomed")
        becomes(page, lambda: page.inner_text(".run-name") in {"broken", "healthy"}, True)
        assert "no run 'doomed'" in page.inner_text("#problems")
        drawn(page)
        assert page.locator(".verdict").count() == 1


@pytest.mark.long
def test_hundreds_of_runs_are_listed(browser, feed):
    (entry,) = (entry for entry in feed.runs() if entry.key == "healthy")
    moment = feed.moment("healthy")
    for i in range(400):
        feed.put(f"run{i:03}", moment.record, judge=False, started=entry.started + i)
    with served(feed) as address, opened(browser, f"{address}?tab=runs") as page:
        assert len(column(page, 2)) == 100
        assert "303 runs are not listed" in page.inner_text("[data-pane=runs]")


def test_an_odd_entry_is_sorted_last_and_takes_no_other_down(browser, feed):
    strange = replace(next(iter(feed.runs())), key="odd", label="odd", steps="many", duration_s=None, script=5)
    feed.enter(strange)
    with served(feed) as address, opened(browser, f"{address}?tab=runs&sort=duration") as page:
        assert len(column(page, 2)) == 4
        assert column(page, 2)[-1] == "odd"


@pytest.mark.long
def test_the_plot_says_how_many_of_the_runs_it_draws(browser, healthy):
    feed = MemoryFeed(**{f"r{k:02}": healthy for k in range(11)})
    with served(feed) as address, opened(browser, f"{address}?run=r00&tab=runs") as page:
        pane = "[data-pane=several_losses]"
        assert "Loss of 6 of 11 runs" in page.inner_text(pane)
        assert "6 of 11 runs are drawn: tick others in the table below" in page.inner_text(pane)
        page.goto(f"{address}?run=r00&tab=compare")
        drawn(page)
        assert "8 of 10 runs are listed: the menu above has all." in page.inner_text("main")
