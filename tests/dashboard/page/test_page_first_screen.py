"""What a first visit sees, smoothing, and links to share, in a real Chromium."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dashboard.page.test_page_follow import state
from tests.dashboard.served_page import MemoryFeed, becomes, drawn, each_tab, opened, served

from neuraldbg.show.views.smoothing import moving_average

LUMINANCE = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b) / 3"


@pytest.mark.parametrize("size", [(1440, 900), (800, 900)])
def test_loss_and_learning_rate_are_on_the_first_screen(browser, doomed, size):
    width, height = size
    with (
        served(MemoryFeed(doomed=doomed)) as address,
        opened(browser, address, viewport={"width": width, "height": height}) as page,
    ):
        numbers = page.locator("[data-pane=numbers]")
        assert numbers.bounding_box()["y"] + numbers.bounding_box()["height"] < height
        assert "Learning rate\n100" in numbers.inner_text()
        assert f"Steps\n{doomed.steps}" in numbers.inner_text()
        if width > 820:
            loss, rate = (page.locator(f"[data-pane={name}]").bounding_box() for name in ("loss", "learning_rate"))
            assert loss["y"] + loss["height"] < height
            assert rate["y"] < height - 100
        else:  # one column, in the order of the tab
            tops = [page.locator(f"[data-pane={name}]").bounding_box()["y"] for name in ("causes", "loss", "facts")]
            assert tops == sorted(tops)
        rate = "document.querySelector('[id*=learning_rate] .js-plotly-plot')._fullData[0]"
        assert set(page.evaluate(f"[...{rate}.y]")) == {100}
        low, high = page.evaluate(
            "document.querySelector('[id*=learning_rate] .js-plotly-plot')._fullLayout.yaxis.range"
        )
        assert (low, high) == (0, 200), "a constant is not drawn between -1 and 1"


@pytest.mark.long
def test_no_tab_promises_what_is_not_there(browser, doomed):
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address) as page:
        for tab in each_tab(page):
            said = page.inner_text("main")
            assert "comes with" not in said, tab
            assert "come with" not in said, tab
            assert "does not record yet" not in said, tab


@pytest.mark.long
def test_a_smoothed_loss_is_drawn_with_what_was_measured(browser, healthy):
    traces = """() => document.querySelector('[id*=loss] .js-plotly-plot')._fullData
        .filter((t) => t.visible === true && /^loss/.test(t.name))
        .map((t) => [t.name, [...t.y], t.opacity, t.line.color])"""
    series = healthy.scalar("loss")
    with served(MemoryFeed(healthy=healthy)) as address, opened(browser, address) as page:
        assert [name for name, *_ in page.evaluate(traces)] == ["loss"]
        page.click("[data-pane=loss] .choices >> text=0.9")
        becomes(page, lambda: len(page.evaluate(traces)), 2)
        assert state(page)["smooth"] == "0.9"
        found = {name: rest for name, *rest in page.evaluate(traces)}
        measured, smooth = found["loss, measured"], found["loss"]
        np.testing.assert_allclose(measured[0], series.values)
        log = page.evaluate("document.querySelector('[id*=loss] .js-plotly-plot')._fullLayout.yaxis.type") == "log"
        wanted = moving_average(series.steps, np.log10(series.values) if log else series.values, 0.9)
        np.testing.assert_allclose(smooth[0], 10**wanted if log else wanted)
        assert measured[1] < 1 == smooth[1]
        assert measured[2] == smooth[2]
        assert "moving average" in page.inner_text("[data-pane=loss]")
        page.click("nav >> text=Execution trace")
        becomes(page, lambda: page.locator("[data-pane=scalars] .choices a[aria-current] >> text=0.9").count(), 1)
        page.click("[data-pane=scalars] .choices >> text=off")
        becomes(page, lambda: "smooth" in state(page), False)


def test_a_copied_link_holds_all_of_what_is_shown(browser, doomed, healthy):
    feed = MemoryFeed(doomed=doomed, healthy=healthy)
    with served(feed) as address, opened(browser, f"{address}?tab=gradients&smooth=0.6&first=2&last=20") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        becomes(page, lambda: page.locator(".pick").inner_text().strip() != "any layer", True)
        layer, step = page.locator(".pick").inner_text().strip(), page.input_value("#step")
        page.click("#link")
        becomes(page, lambda: page.inner_text("#link"), "Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "tab=gradients" in page.url, "the page itself stays where it is"
        page.goto(copied)
        drawn(page)
        assert state(page) == {"run": "doomed", "tab": "gradients", "layer": layer, "step": step, "smooth": "0.6",
                               "first": "2", "last": "20"}  # fmt: skip
        assert page.inner_text("#problems") == ""
        becomes(page, lambda: page.inner_text("#link"), "Copy link")


@pytest.mark.long
def test_light_and_dark_are_a_button_that_is_remembered(browser, doomed):
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address, color_scheme="light") as page:
        assert page.inner_text("#themes") == "Dark"
        page.focus("#themes")
        page.keyboard.press("Enter")
        becomes(page, lambda: page.evaluate(LUMINANCE) < 80, True)
        becomes(
            page,
            lambda: page.evaluate("getComputedStyle(document.querySelector('g.xtick text')).fill"),
            "rgb(242, 242, 242)",
        )
        page.reload()
        drawn(page)
        assert page.evaluate(LUMINANCE) < 80
        assert page.inner_text("#themes") == "Light"
        page.click("#themes")
        becomes(page, lambda: page.evaluate(LUMINANCE) > 200, True)


def test_all_is_reached_with_the_keyboard_in_the_order_of_the_page(browser, doomed, healthy):
    focus = "(document.activeElement.id || document.activeElement.textContent || '').slice(0, 30)"
    with served(MemoryFeed(doomed=doomed, healthy=healthy)) as address, opened(browser, address) as page:
        seen = []
        for _ in range(40):
            page.keyboard.press("Tab")
            seen.append(page.evaluate(focus))
            assert page.evaluate("document.activeElement.matches(':focus-visible')"), seen
        for wanted in ("1 other run", "link", "themes", "Diagnosis", "Runs", "layer", "step"):
            assert wanted in seen, seen
        assert seen.index("themes") < seen.index("Diagnosis") < seen.index("layer") < seen.index("step")
        assert "0.9" in seen
