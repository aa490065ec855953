"""Every tab in a real Chromium: what it shows, in what light, and that hostile names stay text."""

from __future__ import annotations

import pytest
from tests.dashboard.served_page import HOSTILE, MemoryFeed, becomes, each_tab, opened, served
from tests.families import some

from neuraldbg.dashboard.page.context import suspect
from neuraldbg.nouns import RunRecord

LUMINANCE = """() => { const c = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
                       return (c[0] + c[1] + c[2]) / 3; }"""

LARGEST = """Math.max(...document.querySelector('[id*=nonfinite] .js-plotly-plot')._fullData[0].z
             .flatMap((row) => [...row]).filter(Number.isFinite))"""


def test_each_tab_says_something_and_no_error(browser, doomed):
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address) as page:
        for tab in each_tab(page):
            for pane in page.locator("section.pane").all():
                said = pane.locator("svg.main-svg, canvas, table, .empty, .verdict, details, p, dl")
                assert said.count(), (tab, pane.inner_text())
            assert "could not be drawn" not in page.inner_text("main"), tab
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280, tab


def test_the_guilty_layer_and_its_step_are_there_without_a_click(browser, doomed):
    layer, step = suspect(doomed, doomed.diagnose())
    assert layer in doomed.layout.by_path
    assert step is not None
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address) as page:
        assert f"layer {layer} at step {step}" in page.inner_text(".where")
        assert doomed.diagnose().summary[:40] in page.inner_text(".summary")


@pytest.mark.slow
def test_hostile_names_stay_text(browser, hostile):
    feed = MemoryFeed()
    feed.put("hostile", hostile, label=HOSTILE)
    with served(feed) as address, opened(browser, f"{address}?layer={HOSTILE}") as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a script of the run spoke: {dialog.message}"))
        for tab in each_tab(page):
            becomes(page, lambda: HOSTILE in page.title(), True)
            assert page.locator("img[src='x']").count() == 0, tab
            assert HOSTILE in page.inner_text("header")
            assert "could not be drawn" not in page.inner_text("main"), tab
            if tab in {"gradients", "activations"}:
                ticks = page.locator("g.ytick text, g.xtick text").all_text_contents()
                assert any("onerror=alert(1)>" in tick for tick in ticks), ticks  # long names are cut from the left
            if tab in {"execution_trace", "anomalies", "runs"}:
                assert HOSTILE in page.inner_text("main"), tab


@pytest.mark.parametrize(("theme", "scheme", "dark"), some([
    ("auto", "light", False), ("auto", "dark", True), ("dark", "light", True), ("light", "dark", False),
], 2))  # fmt: skip
def test_themes(browser, doomed, theme, scheme, dark):
    with (
        served(MemoryFeed(doomed=doomed), theme=theme) as address,
        opened(browser, f"{address}?tab=gradients", color_scheme=scheme) as page,
    ):
        assert (page.evaluate(LUMINANCE) < 80) == dark
        ink = page.evaluate("getComputedStyle(document.querySelector('g.xtick text')).fill").strip("rgb()").split(",")
        assert (sum(int(part) for part in ink) / 3 > 128) == dark  # figures follow, too


@pytest.mark.long
def test_a_system_that_turns_dark_is_followed(browser, doomed):
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address, color_scheme="light") as page:
        page.emulate_media(color_scheme="dark")
        becomes(page, lambda: page.evaluate(LUMINANCE) < 80, True)


@pytest.mark.slow
def test_a_phone_sees_it_without_scrolling_sideways(browser, doomed):
    phone = {"width": 390, "height": 844}
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address, viewport=phone) as page:
        for tab in each_tab(page):
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab


def test_no_run_yet_says_how_to_record_one_and_shows_it_when_it_comes(browser, doomed):
    feed = MemoryFeed()
    with served(feed) as address, opened(browser, address) as page:
        assert "neuraldbg run train.py" in page.inner_text("main")
        feed.put("doomed", doomed)
        becomes(page, lambda: "doomed" in page.inner_text("header"), True)
        becomes(page, lambda: page.locator(".verdict").count(), 1)


@pytest.mark.slow
def test_a_run_without_a_step_says_what_is_missing(browser):
    with served(MemoryFeed(empty=RunRecord())) as address, opened(browser, address) as page:
        assert "0 steps recorded" in page.inner_text("header")
        for tab in each_tab(page):
            assert page.locator(".empty, .verdict, table").count() >= 1, tab
            assert "could not be drawn" not in page.inner_text("main"), tab


def test_a_run_that_cannot_be_read_says_why(browser, doomed):
    feed = MemoryFeed()
    feed.put("broken", doomed, state="unreadable", problem="the file is not a whole run file")
    with served(feed) as address, opened(browser, address) as page:
        assert "cannot be read: the file is not a whole run file" in page.inner_text(".status")


@pytest.mark.long
def test_only_the_charts_of_the_settings_are_tabs(browser, doomed):
    with (
        served(MemoryFeed(doomed=doomed), charts=["memory_profile", "gradient_flow"]) as address,
        opened(browser, address) as page,
    ):
        assert page.locator("nav a").all_inner_texts() == ["Memory", "Gradients"]


@pytest.mark.long
def test_tabs_can_be_reached_with_the_keyboard(browser, doomed):
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address) as page:
        page.locator("nav a", has_text="Memory").focus()
        page.keyboard.press("Enter")
        becomes(page, lambda: page.locator("nav [aria-current]").inner_text(), "Memory")
        assert "tab=memory" in page.url


@pytest.mark.long
def test_nan_that_was_read_is_drawn_and_not_denied(browser, doomed, broken):
    with served(MemoryFeed(broken=broken, doomed=doomed)) as address:
        with opened(browser, f"{address}?run=broken&tab=anomalies") as page:
            assert "No NaN or infinite value" not in page.inner_text("main")
            assert page.evaluate(LARGEST) == 100
        with opened(browser, f"{address}?run=doomed&tab=anomalies") as page:
            assert "No NaN or infinite value was read in outputs." in page.inner_text("main")


SEVERITIES = {"CRITICAL", "ERROR", "WARNING", "INFO"}


def test_alerts_of_a_run_are_listed_and_stay_text(browser, tmp_path):
    import torch
    from torch import nn

    from neuraldbg import NeuralDbg
    from neuraldbg.saved import Run

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, out=tmp_path / "run", alerts=["critical:step == 2"]) as dbg:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
        dbg.alert(HOSTILE, "info")
    run = Run.load(tmp_path / "run")
    with served(MemoryFeed(run=run)) as address, opened(browser, f"{address}?tab=anomalies") as page:
        becomes(page, lambda: "Alerts (2)" in page.inner_text("main"), True)
        rows = page.locator("[data-pane='alerts'] tbody tr").all_inner_texts()
        assert len(rows) == 2
        assert {"CRITICAL", "INFO"} == {word for row in rows for word in row.upper().split() if word in SEVERITIES}
        assert sum(HOSTILE in row for row in rows) == sum("step == 2 at step 2" in row for row in rows) == 1
        assert page.locator("img[src='x']").count() == 0
