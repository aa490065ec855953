"""Time, memory, dead units and stability on the page, in a real Chromium, against the facts of the run."""

from __future__ import annotations

import pytest
from tests.dashboard.served_page import MemoryFeed, becomes, drawn, in_sight, opened, served
from tests.families import some
from tests.show.made_profiles import deep, profiled

LAYERS = ("fc1", "act1", "fc2")
TRACES = """pane => document.querySelector(`[id*='"pane":"${pane}"'] .js-plotly-plot`)._fullData
            .map((trace) => ({name: trace.name, base: [...(trace.base || [])], x: [...trace.x], y: [...trace.y]}))"""
OVERLAPS = """() => { const boxes = [...document.querySelectorAll("section.pane")].flatMap((pane) => {
    const names = [...pane.querySelectorAll("g.ytick text")].map((one) => one.getBoundingClientRect());
    names.sort((a, b) => a.top - b.top);
    return names.slice(1).map((box, i) => names[i].bottom - box.top); });
    return Math.max(...boxes); }"""
CONTRAST = """() => { const parts = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const light = (colour) => { const [r, g, b] = parts(colour).map((one) => one / 255)
        .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const found = [...document.querySelectorAll("section.pane")].flatMap((pane) => {
        const ground = light(getComputedStyle(pane).backgroundColor);
        return [...pane.querySelectorAll("td, th, .note, g.ytick text")].map((one) => {
            const style = getComputedStyle(one);
            const ink = light(one.tagName === "text" ? style.fill : style.color);
            return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05); }); });
    return Math.min(...found); }"""


def whole(page):
    """Bring every pane that is shown into sight, so that it is drawn."""
    for pane in page.locator("section.pane").all():
        if pane.is_visible():
            pane.scroll_into_view_if_needed()
    drawn(page)


def cells(page, pane):
    return [row.locator("td").all_inner_texts() for row in page.locator(f"[data-pane={pane}] tbody tr").all()]


@pytest.fixture(scope="module")
def feed():
    return MemoryFeed(
        measured=profiled(LAYERS), many=profiled(deep(300)), bare=profiled(parts=()), timed=profiled(parts=("timing",))
    )


def test_the_execution_trace_has_a_timeline_and_the_costs_of_each_layer(browser, feed):
    with served(feed) as address, opened(browser, f"{address}?run=measured&tab=execution_trace") as page:
        whole(page)
        parts = {trace["name"]: trace for trace in page.evaluate(TRACES, "timeline")}
        assert parts["forward"]["y"] == ["one step", *LAYERS]
        assert parts["forward"]["base"] == pytest.approx([9, 9, 10, 12])
        assert parts["forward"]["x"] == pytest.approx([6, 1, 2, 3])
        backward = dict(zip(parts["backward"]["y"], parts["backward"]["x"], strict=True))
        assert backward == pytest.approx({"one step": 12, "fc1": 2, "act1": 4, "fc2": 6})
        bars = {trace["name"]: trace["x"] for trace in page.evaluate(TRACES, "profile")}
        assert bars == {"forward": pytest.approx([1, 2, 3]), "backward": pytest.approx([2, 4, 6])}
        (phases,) = page.evaluate(TRACES, "phases")
        assert dict(zip(phases["y"], phases["x"], strict=True))["data loader"] == pytest.approx(9)
        row = next(row for row in cells(page, "layers") if row[1] == "fc1")
        assert row[5].split("\n") == ["float32[32, 64]", "→ float32[32, 64]"]
        assert row[6:] == ["1", "1 ms", "2 ms", "10%", "1 MFLOP", "4.5 MiB", "20 MiB", ""]
        # What costs most: 30% of the step waits for the data loader.
        assert "30% of the step" in page.inner_text("[data-pane=suggestions]")


@pytest.mark.long
def test_a_click_on_a_span_of_the_timeline_selects_its_layer(browser, feed):
    with served(feed) as address, opened(browser, f"{address}?run=measured&tab=execution_trace") as page:
        box = in_sight(page, page.locator("section[data-pane=timeline] .nsewdrag").first)
        # fc2 is the last of four rows, and runs forward from 12 to 15 of 30.3 ms.
        x, y = box["x"] + box["width"] * 13.5 / 30.3, box["y"] + box["height"] * 3.5 / 4
        page.mouse.move(x - 3, y)
        page.mouse.move(x, y)
        page.wait_for_selector(".hoverlayer .hovertext")
        assert "float32[32, 64]" in page.text_content(".hoverlayer")
        page.mouse.click(x, y)
        becomes(page, lambda: "layer=fc2" in page.url, True)


def test_memory_has_curves_parts_peaks_and_the_lines_that_keep_tensors(browser, feed):
    with served(feed) as address, opened(browser, f"{address}?run=measured&tab=memory") as page:
        whole(page)
        assert [trace["name"] for trace in page.evaluate(TRACES, "over_time")][:2] == [
            "resident memory", "tensors on the device",
        ]  # fmt: skip
        parts = {trace["name"]: trace["x"] for trace in page.evaluate(TRACES, "layers")}
        assert parts["optimizer state"] == pytest.approx([2, 0, 6])
        first, second = cells(page, "leaks")
        assert first[:4] == ["Tensor with its graph, float32[]", "1", "1.5 MiB", "120"]
        assert first[5].split("\n") == ["train.py:35", "history.append(loss)"]
        assert "loss.item(), in history" in first[6]
        assert second[4:6] == ["not known", "not known"]
        assert page.locator("[data-pane=leaks] pre[tabindex='0']").count() == 2
        assert len(page.evaluate(TRACES, "peaks")) == 2


@pytest.mark.long
def test_what_was_not_measured_is_said_once(browser, feed):
    with served(feed) as address, opened(browser, f"{address}?run=bare&tab=execution_trace") as page:
        assert page.inner_text("main").count("neuraldbg run --profile") == 1
        assert not page.locator("[data-pane=profile]").is_visible()
        page.goto(f"{address}?run=bare&tab=memory")
        drawn(page)
        assert "memory over time was not measured" in page.inner_text("[data-pane=over_time]")
        assert not page.locator("[data-pane=peaks]").is_visible()
        assert page.locator("[data-pane=layers] svg.main-svg").count()  # from the sizes that were read
        page.goto(f"{address}?run=timed&tab=execution_trace")
        drawn(page)
        assert page.locator("[data-pane=timeline] svg.main-svg").count()


@pytest.mark.slow
@pytest.mark.parametrize("tab", some(["execution_trace", "memory"], 2))
def test_names_of_hundreds_of_layers_do_not_lie_on_one_another(browser, feed, tab):
    with served(feed) as address, opened(browser, f"{address}?run=many&tab={tab}") as page:
        whole(page)
        assert page.evaluate(OVERLAPS) < 4  # boxes are a little higher than their letters
        assert "of 300 layers are shown" in page.inner_text("main")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theme", "scheme"), some([("light", "light"), ("dark", "light"), ("auto", "light"), ("auto", "dark")], 3)
)
def test_words_can_be_read_in_every_theme(browser, feed, theme, scheme):
    with (
        served(feed, theme=theme) as address,
        opened(browser, f"{address}?run=measured&tab=memory", color_scheme=scheme) as page,
    ):
        whole(page)
        assert page.evaluate(CONTRAST) >= 4.5


def test_anomalies_name_dead_units_and_show_weights_and_stability(browser, tmp_path):
    import torch
    from torch import nn

    from neuraldbg import NeuralDbg
    from neuraldbg.saved import Run

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    dead = [1, 2, 3, 9, 30]
    with torch.no_grad():
        model[0].bias[dead] = -1e3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, optimizer, out=tmp_path, overhead=None, probes=False):
        for _ in range(60):
            optimizer.zero_grad()
            x = torch.randn(64, 8)
            nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    run = Run.load(tmp_path)
    since = min(run.steps - 1, max(fact.step for fact in run.facts if fact.key == "dead_indices"))  # the end is no step
    with served(MemoryFeed(run=run)) as address, opened(browser, f"{address}?tab=anomalies") as page:
        whole(page)
        (row,) = cells(page, "dead")
        assert row == ["1", "5", "32", "16%", "1 to 3, 9, 30"]
        assert f"The same units since step {since}" in page.inner_text("[data-pane=dead]")
        assert [trace["name"] for trace in page.evaluate(TRACES, "weights")] == ["0", "2"]
        assert [trace["name"] for trace in page.evaluate(TRACES, "stability")] == ["loss", "gradient norm"]
        assert "of its size from step to step" in page.inner_text("[data-pane=stability]")
