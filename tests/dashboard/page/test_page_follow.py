"""One place leads to all others: clicks, links, the address, and the browser's own history."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from tests.dashboard.served_page import MemoryFeed, becomes, click_cell, drawn, in_sight, opened, served

from neuraldbg.dashboard.page.context import suspect
from neuraldbg.show.views import view


def state(page):
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def test_a_cell_leads_to_its_layer_and_step_in_every_pane(browser, doomed):
    heat = view("heatmap", doomed, doomed.diagnose())
    row, column = 0, 17
    layer, step = heat.layers[row], int(heat.steps[column])
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, f"{address}?tab=gradients") as page:
        click_cell(page, "heatmap", row, column)
        becomes(page, lambda: state(page), {"tab": "gradients", "layer": layer, "step": str(step)})
        becomes(page, lambda: f"of {layer}.weight" in page.inner_text("main"), True)  # the distribution follows
        becomes(page, lambda: f"step {step}" in page.inner_text('section.pane:has([id*=\'"pane":"flow"\'])'), True)
        assert page.locator(".pick").inner_text().strip() == layer
        assert page.input_value("#step") == str(step)


@pytest.mark.long
def test_a_click_is_followed_though_figures_took_their_size_meanwhile(browser, doomed):
    """Dash tells of both at once when the browser was busy."""
    tell = """([size, click, point]) => {
        const { set_props } = window.dash_clientside;
        set_props(click, { clickData: { points: [point] } });
        set_props(size, { relayoutData: { autosize: true } }); }"""
    layer = view("heatmap", doomed, doomed.diagnose()).layers[0]
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, f"{address}?tab=gradients") as page:
        point = page.evaluate(
            "() => { const { data } = document.querySelector('[id*=heatmap] .js-plotly-plot');"
            "        return { x: 17, y: [...data[0].y][0] }; }"
        )
        figures = [{"part": "figure", "pane": pane} for pane in ("updates", "heatmap")]
        page.evaluate(tell, [*figures, point])
        becomes(page, lambda: state(page), {"tab": "gradients", "layer": layer, "step": "17"})


def test_a_shared_link_restores_everything(browser, doomed):
    link = "?tab=activations&layer=first&step=7&stat=std&first=3&last=20"
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address + link) as page:
        assert page.locator("nav [aria-current]").inner_text() == "Activations"
        assert page.locator(".choices a[aria-current]").inner_text() == "std"
        assert "steps 3 to 20" in page.inner_text(".looking")
        assert page.locator(".pick").inner_text().strip() == "first"
        assert page.input_value("#step") == "7"
        low, high = page.evaluate("document.querySelector('[id*=heatmap] .js-plotly-plot')._fullLayout.xaxis.range")
        assert (low, high) == (2.5, 20.5)
        shown = page.evaluate("[...document.querySelector('[id*=heatmap] .js-plotly-plot')._fullData[0].x]")
        assert np.array_equal(shown, np.arange(3, 22) - 0.5)


def test_the_model_itself_can_be_looked_at(browser, scaled):
    """Its path is empty, which is not the same as none."""
    row = view("heatmap", scaled, scaled.diagnose()).layers.index("")
    with served(MemoryFeed(scaled=scaled)) as address, opened(browser, f"{address}?tab=gradients") as page:
        page.click(".pick")
        page.locator(".dash-options-list-option", has_text="(model)").click()
        becomes(page, lambda: urlsplit(page.url).query, "tab=gradients&layer=")
        becomes(page, lambda: page.locator(".pick").inner_text().strip(), "(model)")
        becomes(page, lambda: "gradient of the parameters of scale" in page.inner_text("main"), True)
    with served(MemoryFeed(scaled=scaled)) as address, opened(browser, f"{address}?tab=gradients&layer=fc") as page:
        click_cell(page, "heatmap", row, 3)
        becomes(page, lambda: parse_qs(urlsplit(page.url).query, keep_blank_values=True)["layer"], [""])
        assert page.inner_text("#problems") == ""


@pytest.mark.long
def test_back_and_forward(browser, doomed):
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address) as page:
        current = page.locator("nav [aria-current]")
        page.click("text=Memory")
        becomes(page, current.inner_text, "Memory")
        page.click("text=Anomalies")
        becomes(page, current.inner_text, "Anomalies")
        page.go_back()
        becomes(page, current.inner_text, "Memory")
        page.go_back()
        becomes(page, current.inner_text, "Diagnosis")
        page.go_forward()
        becomes(page, current.inner_text, "Memory")


def test_an_event_leads_on_and_the_table_can_be_sorted(browser, doomed):
    diagnosis = doomed.diagnose()
    late = max(diagnosis.events, key=lambda e: e.first_step)
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, f"{address}?tab=anomalies") as page:
        steps = page.locator("tbody td:nth-child(3)")
        assert [int(s) for s in steps.all_inner_texts()] == sorted(e.first_step for e in diagnosis.events)
        page.click("th >> text=from step")
        becomes(page, lambda: "▼" in page.inner_text("thead"), True)
        assert [int(s) for s in steps.all_inner_texts()] == sorted(
            (e.first_step for e in diagnosis.events), reverse=True
        )
        page.click("tbody tr:first-child td:first-child a")
        wanted = {"step": str(late.first_step)} | ({"layer": late.layer} if late.layer else {})
        becomes(page, lambda: wanted.items() <= state(page).items(), True)


@pytest.mark.long
def test_a_node_of_the_chain_leads_on(browser, doomed):
    chain = view("chain", doomed, doomed.diagnose())
    node = next(n for n in chain.nodes if n.layer is not None)
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address) as page:
        box = in_sight(page, page.locator("[id*=network] canvas").last)
        x, y = page.evaluate(
            """id => { const at = document.querySelector('[id*=network]')._cyreg.cy.$id(id).renderedPosition();
                       return [at.x, at.y]; }""",
            node.id,
        )
        page.mouse.click(box["x"] + x, box["y"] + y)
        becomes(page, lambda: state(page), {"layer": node.layer, "step": str(node.step)})


@pytest.mark.long
def test_a_graph_fits_a_window_of_another_size(browser, doomed):
    inside = """() => { const { cy } = document.querySelector('[id*=network]')._cyreg;
                        const { x1, x2 } = cy.elements().renderedBoundingBox();
                        return [x1 >= 0 && x2 <= cy.width(), cy.width()]; }"""
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address) as page:
        fits, wide = page.evaluate(inside)
        assert fits
        page.set_viewport_size({"width": 390, "height": 844})
        becomes(page, lambda: page.evaluate(inside)[1] < wide, True)
        becomes(page, lambda: page.evaluate(inside)[0], True)
        page.set_viewport_size({"width": 1280, "height": 900})
        becomes(page, lambda: page.evaluate(inside), [True, wide])


@pytest.mark.long
def test_the_wheel_scrolls_the_page_over_a_graph_too(browser, doomed):
    with (
        served(MemoryFeed(doomed=doomed)) as address,
        opened(browser, address, viewport={"width": 1280, "height": 500}) as page,
    ):
        canvas = page.locator("[id*=network] canvas").last
        box, before = in_sight(page, canvas), page.evaluate("window.scrollY")
        zoom = "document.querySelector('[id*=network]')._cyreg.cy.zoom()"
        was = page.evaluate(zoom)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
        page.mouse.wheel(0, 120 if before == 0 else -before)
        becomes(page, lambda: page.evaluate("window.scrollY") != before, True)
        assert page.evaluate(zoom) == was
        box = in_sight(page, canvas)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        still = "document.querySelector('[id*=network]')._cyreg.cy.renderer().scrollingPage"
        becomes(page, lambda: bool(page.evaluate(still)), False)  # cytoscape leaves a page that scrolls alone
        page.keyboard.down("Control")
        page.mouse.wheel(0, 200)
        page.keyboard.up("Control")
        becomes(page, lambda: page.evaluate(zoom) != was, True)


@pytest.mark.long
def test_zooming_along_the_steps_is_a_range_that_all_panes_show(browser, doomed):
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, f"{address}?tab=gradients") as page:
        box = in_sight(page, page.locator('[id*=\'"pane":"heatmap"\'] .nsewdrag').first)
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.25 * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.75 * box["width"], middle, steps=5)
        page.mouse.up()
        becomes(page, lambda: state(page).get("first"), "10")
        assert int(state(page)["last"]) in range(28, 31)
        ranges = """() => [...document.querySelectorAll('[id*=heatmap] .js-plotly-plot, [id*=updates] .js-plotly-plot')]
                          .map((plot) => plot._fullLayout.xaxis.range[0])"""
        becomes(page, lambda: page.evaluate(ranges), [9.5, 9.5])
        page.click("text=show all steps")
        becomes(page, lambda: page.evaluate(ranges), [-0.5, -0.5])


def test_a_run_opens_with_a_click(browser, doomed, healthy):
    with served(MemoryFeed(doomed=doomed, healthy=healthy)) as address, opened(browser, f"{address}?tab=runs") as page:
        page.click("tbody >> text=healthy >> nth=0")
        becomes(page, lambda: state(page), {"run": "healthy"})
        becomes(page, lambda: page.locator(".verdict").count(), 1)
        drawn(page)
        assert page.inner_text(".run-name") == "healthy"


@pytest.mark.long
def test_garbage_in_the_address_is_harmless_and_said(browser, doomed):
    link = "?tab=nope&layer=firsst&step=99999&first=-1&stat=median&colour=red&run=../../etc/passwd&kind=%00%ff"
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, address + link) as page:
        said = page.inner_text("#problems")
        for words in ("no tab 'nope'", "../../etc/passwd", "first='-1'", "stat='median'", "'colour'", "kind="):
            assert words in said, said
        assert page.locator(".verdict").count() == 1


@pytest.mark.long
def test_a_guilty_layer_and_step_need_no_address(browser, doomed):
    layer, step = suspect(doomed, doomed.diagnose())
    with served(MemoryFeed(doomed=doomed)) as address, opened(browser, f"{address}?tab=gradients") as page:
        assert state(page) == {"tab": "gradients"}
        assert page.locator(".pick").inner_text().strip() == layer
        assert page.input_value("#step") == str(step)
