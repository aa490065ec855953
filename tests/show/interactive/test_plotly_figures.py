"""Views as plotly figures: numbers against the view, names as text, and clicks in a real Chromium."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.browser import visiting
from tests.show.made_views import EMPTY, HOSTILE, bars, every, graph, heat, lines, spread
from tests.show.static.figure_layout import crosses

from neuraldbg.errors import ConfigError, MissingExtra
from neuraldbg.show.axes.downsample import thinned
from neuraldbg.show.forms import Bar, Line, Link, Mark, Node, Scale
from neuraldbg.show.interactive.draw import figure
from neuraldbg.show.interactive.heat import CROSSED
from neuraldbg.show.interactive.lines import MOST

THEMES = pytest.mark.parametrize("theme", ["light", "dark"])


def named(made, name):
    (trace,) = [trace for trace in made.data if trace.name == name]
    return trace


def test_a_map_shows_the_values_of_the_view():
    view = heat(scale=Scale("gradient norm"))
    z = figure(view).data[0].z
    np.testing.assert_array_equal(z, view.values.astype(np.float32))
    on_log = figure(heat()).data[0]
    np.testing.assert_allclose(10**on_log.z, view.values, rtol=1e-5)
    assert on_log.zmin == pytest.approx(np.nanmin(np.log10(view.values)))
    assert on_log.zmax == pytest.approx(np.nanmax(np.log10(view.values)))
    ticks = on_log.colorbar
    assert [float(text.replace(",", "")) for text in ticks.ticktext] == pytest.approx(10 ** np.array(ticks.tickvals))


def test_every_cell_says_where_it_is_and_what_it_holds():
    view = heat()
    made = figure(view)
    for trace in (made.data[0], named(made, "NaN or infinite")):
        for i, _ in enumerate(view.layers):
            for c, step in enumerate(view.steps.tolist()):
                assert trace.customdata[i, c] == pytest.approx([step, step, view.values[i, c]], nan_ok=True)
        assert "<br>step %{customdata[0]:,}" in trace.hovertemplate
        assert trace.hoverongaps is False
    assert "NaN or infinite values found" in named(made, "NaN or infinite").hovertemplate
    assert "not read" in named(made, "not read").hovertemplate
    assert (
        "steps %{customdata[0]:,} to"
        in figure(replace(view, width=view.width * 3, steps=view.steps * 3)).data[0].hovertemplate
    )


def test_cells_that_were_not_read_or_not_finite_or_zero_have_a_map_of_their_own():
    view = heat()
    view = replace(view, values=np.where(view.steps == 9, 0.0, view.values))
    made = figure(view)
    np.testing.assert_array_equal(np.isfinite(named(made, "not read").z), np.isnan(view.values) & ~view.nonfinite)
    np.testing.assert_array_equal(np.isfinite(named(made, "NaN or infinite").z), view.nonfinite)
    np.testing.assert_array_equal(np.isfinite(named(made, "exactly 0").z), view.values == 0)
    (crosses,) = [trace for trace in made.data if trace.type == "scatter"]
    assert (list(crosses.x), list(crosses.y)) == ([7], ["conv2"])


def test_each_stretch_of_cells_that_are_not_finite_has_one_cross():
    """A run that is NaN from step 5 on, in more cells than there are crosses; two more in a layer on their own."""
    bad = np.zeros((120, 240), bool)
    bad[:, 5:] = True
    bad[7] = False
    bad[7, [0, 9]] = True
    layers = tuple(f"layer{i}" for i in range(120))
    made = figure(heat(layers, 240, nonfinite=bad, marks=()))
    (crosses,) = [trace for trace in made.data if trace.type == "scatter"]
    found = list(zip(crosses.y, crosses.x, strict=True))
    assert found == [(name, x) for i, name in enumerate(layers) for x in ([0, 9] if i == 7 else [5])]
    bad[:, ::2] = False
    (many,) = [trace for trace in figure(heat(layers, 240, nonfinite=bad)).data if trace.type == "scatter"]
    assert len(many.x) == CROSSED


def test_a_large_map_is_drawn_in_seconds(browser, tmp_path):
    """Plotly has options that are slow beyond a few cells: a text in each takes it half a minute."""
    view = heat(tuple(f"layer{i}" for i in range(120)), 240)
    page = tmp_path / "large.html"
    figure(view).write_html(page, include_mathjax=False)
    again = """async () => {
        const plot = document.querySelector('.js-plotly-plot'), start = performance.now();
        await Plotly.react(plot, plot.data.slice(), plot.layout);
        return performance.now() - start;
    }"""
    with visiting(browser) as visit:
        visit.page.goto(page.as_uri())
        assert visit.page.evaluate(again) < 5_000
        assert visit.errors == []


def test_columns_stand_at_their_true_steps_with_gaps_between_them():
    steps = np.concatenate([np.arange(10), np.arange(50, 60)])
    view = replace(heat(("a",), 20), steps=steps, marks=())
    trace = figure(view).data[0]
    assert trace.x.tolist() == [*(np.arange(11) - 0.5), *(np.arange(50, 61) - 0.5)]
    assert np.isnan(trace.z[0, 10])
    np.testing.assert_allclose(10 ** np.delete(trace.z, 10, axis=1), view.values, rtol=1e-5)
    assert trace.customdata[0, 10, :2].tolist() == [10, 49]


def test_many_layers_are_not_all_named_but_the_guilty_is():
    made = figure(heat(tuple(f"layer{i}" for i in range(120)), 30, guilty=("layer50",)))
    ticks = made.layout.yaxis.ticktext
    assert 30 < len(ticks) <= 42
    assert [tick for tick in ticks if "▶" in tick] == ['<b style="color:#D55E00">▶ layer50</b>']
    assert len(set(made.data[0].y)) == 120


def test_lines_are_those_of_the_view_and_lead_on():
    view = lines()
    made = figure(view)
    for line in view.lines:
        trace = next(trace for trace in made.data if (trace.name or "").endswith(line.name))
        np.testing.assert_array_equal(trace.x, line.steps)
        np.testing.assert_array_equal(trace.y, line.values)
        assert [tuple(point) for point in trace.customdata] == [(line.layer, step) for step in line.steps.tolist()]
    assert made.layout.yaxis.type == "log"
    assert [trace.name for trace in made.data if trace.line.width == 3] == ["▶ fc"]


def test_events_and_what_was_not_finite_stand_in_rows_below():
    made = figure(lines())
    assert made.layout.yaxis2.ticktext == ("NaN or infinite", "gradient spike")
    events = named(made, "events")
    assert list(events.x) == [10, 20, None]
    assert events.customdata[0] == ["conv1", 10]
    bad = named(made, "NaN or infinite")
    assert (list(bad.x), bad.customdata) == ([40], (["conv1", 40],))
    assert made.layout.yaxis2.domain[1] < made.layout.yaxis.domain[0]
    assert {shape.name: shape.x0 for shape in made.layout.shapes} == {"failure": 30, "chosen": 3}


def test_thirty_kinds_of_events_share_rows():
    marks = tuple(Mark(i, f"event {i}", "event", i + 3) for i in range(30))
    made = figure(lines(marks=marks))
    assert made.layout.yaxis2.ticktext[-1] == "other events"
    assert len(made.layout.yaxis2.ticktext) == 8
    assert made.layout.yaxis2.domain[1] < made.layout.yaxis.domain[0]


def test_thinning_keeps_every_extreme_at_its_own_step():
    random = np.random.default_rng(0)
    steps = np.arange(50_000) * 3
    values = random.standard_normal(50_000)
    values[[123, 40_001]] = 1e6, -1e6
    values[7_000:9_000] = np.nan
    line = Line("loss", steps, values, values - 1, values + 1)
    found = thinned(line, MOST)
    assert len(found.steps) <= MOST
    assert {(3 * 123, 1e6), (3 * 40_001, -1e6)} <= set(zip(found.steps.tolist(), found.values.tolist(), strict=True))
    at = dict(zip(steps.tolist(), values.tolist(), strict=True))
    assert all(at[s] == v or np.isnan(v) for s, v in zip(found.steps.tolist(), found.values.tolist(), strict=True))
    assert np.isnan(found.values).any()
    assert (np.nanmin(found.low), np.nanmax(found.high)) == (-1e6 - 1, 1e6 + 1)
    kept = set(found.steps.tolist())
    for part in np.split(np.arange(50_000), range(50, 50_000, 50)):
        if np.isfinite(values[part]).all():
            assert {3 * part[values[part].argmin()], 3 * part[values[part].argmax()]} == kept & set((3 * part).tolist())


def test_bars_hold_the_values_and_the_limits():
    view = bars()
    made = figure(view)
    for trace, bar in zip(made.data, view.bars, strict=True):
        np.testing.assert_array_equal(trace.x, bar.values)
        assert [tuple(place) for place in trace.customdata] == [(layer, 12) for layer in view.layers]
    assert [shape.x0 for shape in made.layout.shapes] == [3.5]
    assert [note.text for note in made.layout.annotations] == ["too large 3.5"]
    assert made.layout.yaxis.ticktext[0] == "conv1 (no value)"
    assert made.data[0].marker.pattern.shape != made.data[1].marker.pattern.shape
    on_log = figure(replace(view, scale=Scale("norm", log=True)))
    assert [note.x for note in on_log.layout.annotations] == pytest.approx([np.log10(3.5)])


def test_a_layer_that_is_infinite_says_so():
    made = figure(bars(bars=(Bar("now", np.array([1.0, np.inf, 2.0])),)))
    assert made.layout.yaxis.ticktext[1] == "conv2 (not finite)"


def test_histograms_are_shares_in_percent_by_bin():
    view = spread()
    trace = figure(view).data[0]
    np.testing.assert_allclose(trace.z, 100 * view.shares)
    assert trace.customdata[2][2].tolist() == ["fc", 20]
    assert trace.text[2][2] == "100 % are -1 to -0.5<br>steps 20 to 29"


def test_without_histograms_there_are_extremes_mean_and_deviation():
    view = spread(histograms=False)
    made = figure(view)
    np.testing.assert_array_equal(named(made, "mean").y, view.mean)
    assert made.layout.barmode == "overlay"
    assert named(made, "mean").customdata[1][:2] == ["fc", 10]
    for name, low, high in (
        ("minimum to maximum", view.low, view.high),
        ("mean ± one standard deviation", view.mean - view.std, view.mean + view.std),
    ):
        bars_of, tall = named(made, name), np.array(named(made, name).y, float)
        np.testing.assert_allclose(np.array(bars_of.base, float), low)
        np.testing.assert_allclose(np.array(bars_of.base, float) + tall, high)


def test_bands_break_where_the_line_does():
    """Two stretches of readings and a lone one: two bands, and a bar of its range at the lone point."""
    values = np.array([1.0, 2.0, np.nan, 3.0, 4.0, np.nan, 5.0])
    line = Line("a", np.array([0, 1, 2, 50, 51, 52, 99]), values, values - 0.5, values + 0.5)
    made = figure(lines(lines=(line,), marks=()))
    bands = [trace for trace in made.data if trace.fill == "tonexty"]
    assert [list(band.x) for band in bands] == [[0, 1], [50, 51]]
    (curve,) = [trace for trace in made.data if trace.name == "a"]
    assert list(curve.error_y.array) == list(curve.error_y.arrayminus) == [0, 0, 0, 0, 0, 0, 0.5]


def test_a_graph_has_its_nodes_and_arrows():
    view = graph()
    made = figure(view)
    roles = [named(made, role) for role in ("cause", "event", "symptom")]
    found = {(x, y): data for trace in roles for x, y, data in zip(trace.x, trace.y, trace.customdata, strict=True)}
    assert {place: data[:2] for place, data in found.items()} == {
        (node.x, node.y): [node.layer, node.step] for node in view.nodes
    }
    hit = replace(view, nodes=(replace(view.nodes[0], role="guilty"),), links=())
    assert named(figure(hit), "guilty layer, or hit first").marker.symbol == "star"
    at = {node.id: (node.x, node.y) for node in view.nodes}
    arrows = [(arrow.ax, arrow.ay, arrow.x, arrow.y) for arrow in made.layout.annotations]
    assert len(arrows) == len(view.links)
    for link in view.links:  # each arrow ends above its target
        assert any(x == at[link.target][0] and 0 < at[link.target][1] - y < 0.1 for _, _, x, y in arrows)


def test_arrows_of_a_figure_cross_no_label():
    """Ranks of three nodes, each linked to all of the next rank, and links that pass two ranks by."""
    nodes = tuple(Node(f"n{r}{c}", f"layer{r}.conv{c}", "healthy", (c + 0.5) / 3, (r + 0.5) / 4)
                  for r in range(4) for c in range(3))  # fmt: skip
    links = [Link(f"n{r}{a}", f"n{r + 1}{b}") for r in range(3) for a in range(3) for b in range(3)]
    links += [Link(f"n0{a}", f"n3{b}") for a in range(3) for b in range(3)]
    made = figure(replace(graph(), nodes=nodes, links=tuple(links)))
    ways = [((arrow.ax, arrow.ay), (arrow.x, arrow.y)) for arrow in made.layout.annotations]
    for shape in made.layout.shapes:
        corners = [tuple(map(float, corner.split(","))) for corner in shape.path[1:].split("L")]
        ways += list(pairwise(corners))
    assert len(ways) == 27 + 3 * 9
    across, down = 1.3 / 800, 1.16 / (made.layout.height - 140)  # of a pixel
    for node in nodes:
        long = 6 * len(node.label)
        frame = (node.x - 7 * across, node.y - 7 * down, node.x + (12 + long) * across, node.y + 7 * down)
        assert not any(crosses(way, frame) for way in ways), node.label


def told(place):
    """Of a point's customdata, or of a row of them, what the pointer shows: all but layer and first step."""
    nested = isinstance(place, list) and place and isinstance(place[0], list)
    return [told(one) for one in place] if nested else (place or [])[2:]


@THEMES
@pytest.mark.parametrize("view", every(), ids=lambda view: f"{view.name} {view.title[:12]!r}")
def test_names_are_escaped_everywhere_but_in_customdata(view, theme):
    body = json.loads(figure(view, theme=theme).to_json())
    for trace in body["data"]:
        data = trace.get("customdata") or []
        trace["customdata"] = [] if isinstance(data, dict) else [told(place) for place in data]  # numbers are encoded
    text = json.dumps(body, ensure_ascii=False)
    for name in ("<b>bold", "<img", "$x_1$", "b & $", "\x1b", "\u202e"):
        assert name not in text


def test_an_empty_view_says_why():
    made = figure(EMPTY)
    assert made.layout.annotations[0].text.replace("<br>", " ") == EMPTY.empty
    assert len(made.data) == 0


def test_a_growing_run_keeps_the_zoom_and_another_statistic_does_not():
    assert figure(heat()).layout.uirevision == figure(heat(steps=90)).layout.uirevision
    assert figure(heat()).layout.uirevision != figure(heat(scale=Scale("rms"))).layout.uirevision


def test_wrong_theme_and_missing_plotly():
    with pytest.raises(ConfigError, match="dark, light"):
        figure(heat(), theme="pink")
    code = (
        "import sys; sys.modules['plotly'] = None; sys.modules['plotly.graph_objects'] = None\n"
        "from tests.show.made_views import heat\n"
        "from neuraldbg.show.interactive.draw import figure\n"
        "figure(heat())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert MissingExtra.__name__ in done.stderr
    assert "pip install '.[dashboard]'" in done.stderr


WATCH = """
() => {
    window.clicks = [];
    const plot = document.querySelector('.js-plotly-plot');
    plot.on('plotly_click', event => {
        const [{pointIndex, customdata}] = event.points;
        window.clicks.push(Array.isArray(pointIndex) ? [pointIndex[0], ...customdata] : customdata.slice(0, 2));
    });
}
"""


def test_hostile_names_stay_text_and_a_click_leads_to_the_cell(browser, tmp_path):
    view = heat(HOSTILE, 20, marks=(Mark(12, HOSTILE[1], "failure"),), title=HOSTILE[0], notes=(HOSTILE[1],))
    page = tmp_path / "heat.html"
    figure(view).write_html(page, include_mathjax=False)
    with visiting(browser, viewport={"width": 1000, "height": 500}) as visit:
        visit.page.goto(page.as_uri())
        visit.page.evaluate(WATCH)
        shown = visit.page.evaluate("[...document.querySelectorAll('svg text')].map(text => text.textContent)")
        assert {"<b>bold</b>", "a&lt;b & $x_1$ %{y}", "层层层.注意力.投影层"} <= set(shown)
        assert any("<img src=x onerror" in text for text in shown)
        assert visit.page.evaluate("document.querySelectorAll('img').length") == 0
        box = visit.page.locator(".nsewdrag").first.bounding_box()
        x, y = box["x"] + box["width"] * 15.5 / 20, box["y"] + box["height"] * 1.5 / 6
        visit.page.mouse.move(x, y)
        visit.page.wait_for_selector(".hovertext")
        told = visit.page.locator(".hovertext").first.text_content()
        assert "<img src=x onerror=alert(1)>" in told
        assert "step 15" in told
        assert f"{view.values[1, 15]:.4g}" in told
        visit.page.mouse.click(x, y)
        assert visit.page.evaluate("window.clicks") == [[1, 15, 15, float(np.float32(view.values[1, 15]))]]
        assert visit.errors == []


def test_every_form_is_drawn_without_a_word_in_the_console(browser, tmp_path):
    """One page with all of them in both themes; a click on an event leads to its layer and step."""
    page = tmp_path / "all.html"
    parts = [
        figure(view, theme=theme).to_html(full_html=False, include_plotlyjs=first, include_mathjax=False)
        for theme in ("light", "dark")
        for first, view in zip([theme == "light", *[False] * 20], every(), strict=False)
    ]
    page.write_text(f"<!doctype html><meta charset=utf-8>{''.join(parts)}", encoding="utf-8")
    with visiting(browser, viewport={"width": 900, "height": 600}) as visit:
        visit.page.goto(page.as_uri())
        visit.page.wait_for_function(f"document.querySelectorAll('.main-svg').length >= {len(parts)}")
        assert visit.errors == []
        assert [address for address in visit.requests if not address.startswith("file:")] == []


def test_a_click_on_a_line_and_on_an_event(browser, tmp_path):
    view = lines(("conv1",), marks=(Mark(10, "gradient spike", "event", 20, "conv1"),))
    page = tmp_path / "lines.html"
    figure(view).write_html(page, include_mathjax=False)
    with visiting(browser, viewport={"width": 1000, "height": 500}) as visit:
        visit.page.goto(page.as_uri())
        visit.page.evaluate(WATCH)
        at = """([axis, step, value]) => {
            const plot = document.querySelector('.js-plotly-plot'), layout = plot._fullLayout;
            const box = plot.getBoundingClientRect(), x = layout.xaxis, y = layout[axis];
            return [box.left + x._offset + x.c2p(step), box.top + y._offset + y.c2p(value)];
        }"""
        for axis, step, value in (("yaxis", 30, float(view.lines[0].values[30])), ("yaxis2", 10, 1)):
            visit.page.mouse.click(*visit.page.evaluate(at, [axis, step, value]))
            visit.page.wait_for_timeout(350)  # two quick clicks would be a double click, which resets the zoom
        assert visit.page.evaluate("window.clicks") == [["conv1", 30], ["conv1", 10]]
        assert visit.errors == []


def test_a_bar_that_a_log_axis_has_no_place_for_is_named():
    view = bars()
    first, *others = view.bars
    last = replace(others[-1] if others else first, values=np.where(np.arange(len(view.layers)) == 1, 0.0, 1.0))
    view = replace(view, bars=(Bar("step 0", np.ones(len(view.layers))), last), scale=Scale("norm", log=True))
    ticks = figure(view).layout.yaxis.ticktext
    assert ["exactly 0" in tick for tick in ticks] == [i == 1 for i in range(len(view.layers))]
    assert last.name in ticks[1]
    alone = figure(replace(view, bars=(last,))).layout.yaxis.ticktext
    assert alone[1].endswith("(exactly 0)")
    flat = replace(view, scale=Scale("norm"))
    assert not any("exactly 0" in tick for tick in figure(flat).layout.yaxis.ticktext)


def test_shares_of_one_bin_are_told_from_0_to_100():
    view = spread()
    shares = np.full(view.shares.shape, np.nan)
    shares[2] = 1.0
    cells = figure(replace(view, shares=shares)).data[0]
    assert (cells.zmin, cells.zmax) == (0, 100)
