"""What figures hold, number by number against the view they were drawn from."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.colors import LogNorm, to_hex
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, StepPatch
from tests.show.static import hard_views
from tests.show.static.figure_layout import crosses, texts

from neuraldbg.errors import ConfigError, MissingExtra
from neuraldbg.show.forms import Line, Lines, Link, Mark, Node, Scale
from neuraldbg.show.static.draw import figure, save
from neuraldbg.show.static.theme import DARK, LIGHT
from neuraldbg.show.views import VIEWS, view


def same(a, b):
    return np.array_equal(np.asarray(a, dtype=float), np.asarray(b, dtype=float), equal_nan=True)


def mesh(axes):
    (found,) = [part for part in axes.collections if isinstance(part, QuadMesh)]
    return found


def said(made):
    return [text.replace("\n", " ") for text, _ in texts(made)]


def keys(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def named(axes):
    return [label for label in axes.get_yticklabels() if label.get_text()]


# ---------------------------------------------------------------- heat


@pytest.mark.parametrize("count", [3, 120])
def test_cells_stand_at_their_steps_and_layers(count):
    given = hard_views.heat(hard_views.paths(count), 40, marks=())
    axes = figure(given).axes[0]
    cells = mesh(axes)
    assert np.array_equal(cells.get_array(), given.values)
    corners = cells.get_coordinates()
    assert same(corners[0, :, 0], np.arange(41) - 0.5)
    assert same(corners[:, 0, 1], np.arange(count + 1) - 0.5)
    assert axes.get_ylim() == (count - 0.5, -0.5)  # the first layer on top
    assert isinstance(cells.norm, LogNorm)
    lightness = cells.to_rgba(np.sort(given.values.ravel()))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > -0.01).all()


def test_the_guilty_layer_is_named_strongly_among_120():
    layers = hard_views.paths(120)
    given = hard_views.heat(layers, guilty=(layers[77],), marks=())
    axes = figure(given).axes[0]
    strong = [label for label in named(axes) if label.get_fontweight() == "bold"]
    assert [(label.get_text(), label.get_color()) for label in strong] == [(layers[77], LIGHT.strong)]
    assert strong[0].get_position()[1] == 77
    assert 20 < len(named(axes)) < 120


def test_gaps_are_not_filled_and_not_read_is_said():
    values = np.array([[1.0, 2.0, np.nan], [3.0, 4.0, 5.0]])
    given = hard_views.heat(
        ("a", "b"),
        3,
        steps=np.array([0, 5, 100]),
        width=np.array([1, 5, 10]),
        values=values,
        nonfinite=np.zeros((2, 3), bool),
        marks=(),
    )
    axes = figure(given).axes[0]
    cells = mesh(axes)
    edges = cells.get_coordinates()[0, :, 0]
    assert np.allclose(edges, [-0.5, 0.5, 4.5, 9.5, 99.5, 109.5])
    drawn = np.ma.filled(cells.get_array(), np.nan)
    assert same(drawn[1], [3, np.nan, 4, np.nan, 5])
    assert np.isnan(drawn[0, 4])
    assert keys(axes) == ["not read"]


def test_a_step_of_many_is_still_wide_enough_to_be_seen():
    given = hard_views.heat(("a",), 2, steps=np.array([0, 100_000]), width=np.array([1, 1]), marks=())
    edges = mesh(figure(given).axes[0]).get_coordinates()[0, :, 0]
    assert np.allclose(edges, [-0.5, -0.5 + 100_001 / 250, 99_999.5, 99_999.5 + 100_001 / 250])


def test_cells_that_are_not_finite_and_zeros_have_looks_of_their_own():
    bad = np.zeros((3, 40), bool)
    bad[0, 30:] = bad[2, 5] = True
    given = hard_views.heat(nonfinite=bad, marks=())
    given.values[1, :4] = 0.0
    axes = figure(given).axes[0]
    (patches,) = [
        part for part in axes.collections if isinstance(part, PolyCollection) and not isinstance(part, QuadMesh)
    ]
    frames = [path.get_extents().extents.tolist() for path in patches.get_paths()]
    assert frames == [[29.5, -0.5, 39.5, 0.5], [4.5, 1.5, 5.5, 2.5]]
    assert patches.get_hatch()
    assert to_hex(patches.get_facecolor()[0]).upper() == LIGHT.bad
    cells = mesh(axes)
    assert to_hex(cells.to_rgba(cells.get_array())[1, 0]).upper() == LIGHT.zero
    assert cells.norm.vmin == given.values[given.values > 0].min()
    assert keys(axes) == ["exactly 0", "NaN or Inf"]


def test_the_bar_of_colours_says_what_and_in_which_unit():
    for size_in in (None, (5, 4)):
        made = figure(hard_views.heat(scale=Scale("time", "ms", log=True)), size_in=size_in)
        assert "time (ms)" in said(made)


def test_signed_and_constant_values_are_drawn_too():
    values = np.linspace(-3, 3, 120).reshape(3, 40)
    for given in (
        hard_views.heat(values=values),
        hard_views.heat(values=np.ones((3, 40))),
        hard_views.heat(values=np.zeros((3, 40))),
    ):
        cells = mesh(figure(given).axes[0])
        assert np.isfinite(cells.to_rgba(cells.get_array())).all()
        assert cells.norm.vmin < cells.norm.vmax


# ---------------------------------------------------------------- lines


def curves(axes):
    return [line for line in axes.lines if len(line.get_xdata()) == 40]


def test_lines_hold_the_values_of_the_view():
    given = hard_views.lines(3, marks=())
    axes = figure(given).axes[0]
    for drawn, line in zip(curves(axes), given.lines, strict=True):
        assert np.array_equal(drawn.get_xdata(), line.steps)
        assert drawn.get_ydata() == pytest.approx(np.where(line.values > 0, line.values, np.nan), nan_ok=True)
    assert axes.get_yscale() == "log"
    assert len(axes.collections) == 3  # a band each


def test_a_dozen_is_named_and_of_more_the_guilty_one():
    axes = figure(hard_views.lines(12, marks=())).axes[0]
    assert len({(line.get_color(), line.get_linestyle()) for line in curves(axes)}) == 12
    crowd = figure(hard_views.lines(30, marks=())).axes[0]
    first, guilty, last = "…h.0.attn.c_proj", "transformer.h.0.mlp.c_fc", "transformer.h.14.mlp.c_fc"
    assert keys(crowd)[:4] == [first, guilty, last, "27 other layers"]
    grey = [line for line in curves(crowd) if line.get_color() == LIGHT.crowd]
    assert len(grey) == 27
    (strong,) = [line for line in curves(crowd) if line.get_color() == LIGHT.strong]
    assert strong.get_linewidth() > 2 * grey[0].get_linewidth()


def test_where_lines_stop_being_finite_and_become_zero():
    axes = figure(hard_views.lines(3, marks=())).axes[0]
    (top,) = [line for line in axes.lines if line.get_marker() == "v"]
    assert (list(top.get_xdata()), list(top.get_ydata())) == ([30], [1])
    (bottom,) = [line for line in axes.lines if line.get_marker() == "^"]
    assert (list(bottom.get_xdata()), list(bottom.get_ydata())) == ([20], [0])
    assert keys(axes)[-2:] == ["not finite\nfrom step 30 on", "exactly 0\nfrom step 20 on"]


def test_what_lasts_only_for_a_while_is_not_said_to_last():
    steps = np.arange(40)
    values = np.ones(40)
    values[3] = np.nan
    values[5:7] = 0.0
    line = Line("a", steps, values, nonfinite=np.array([3]))
    axes = figure(hard_views.lines(lines=(line,), marks=(), guilty=())).axes[0]
    assert keys(axes) == ["a", "NaN or Inf\nfirst at step 3", "exactly 0\nfor a while"]


def test_two_parameters_of_the_guilty_layer_can_be_told_apart():
    first = hard_views.lines(1).lines[0]
    both = (replace(first, name="fc.weight", layer="fc"), replace(first, name="fc.bias", layer="fc"))
    axes = figure(hard_views.lines(lines=both, marks=(), guilty=("fc",))).axes[0]
    assert len({(line.get_color(), line.get_linestyle()) for line in curves(axes)}) == 2


def test_a_lone_value_between_gaps_is_seen():
    values = np.full(40, np.nan)
    values[[3, 9, 10]] = 1.0
    axes = figure(hard_views.lines(lines=(Line("a", np.arange(40), values),), marks=(), guilty=())).axes[0]
    (dot,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert list(dot.get_xdata()) == [3]


def test_thirty_events_stand_in_a_lane_above_the_data():
    lane, axes = figure(hard_views.lines()).axes
    assert [label.get_text() for label in lane.get_yticklabels()][:2] == [
        "exploding gradients (3)",
        "dying gradients (3)",
    ]
    assert [label.get_text() for label in lane.get_yticklabels()][-1] == "3 other kinds (9)"
    assert lane.get_position().y0 > axes.get_position().y1
    spans = [path.get_extents() for part in lane.collections for path in part.get_paths()]
    assert len(spans) == 30
    first = spans[0]
    assert (first.x0 + first.width / 2, first.width) == pytest.approx((2, 4), rel=0.1)
    assert lane.get_xlim() == axes.get_xlim()


def test_moments_are_marked_through_every_panel_and_named_once():
    lane, axes = figure(hard_views.lines()).axes
    for panel in (lane, axes):
        assert [line.get_xdata()[0] for line in panel.lines if list(line.get_ydata()) == [0, 1]] == [30]
    assert [text.get_text() for text in lane.texts] == ["loss not finite from step 30"]
    assert not axes.texts


# ---------------------------------------------------------------- bars


def test_bars_are_as_long_as_their_values():
    given = hard_views.bars(hard_views.paths(8), limits=())
    axes = figure(given).axes[0]
    widths = [[patch.get_width() for patch in group] for group in axes.containers]
    for drawn, bar in zip(widths, given.bars, strict=True):
        assert drawn == pytest.approx(bar.values[np.isfinite(bar.values) & (bar.values > 0)])
    assert axes.get_xscale() == "log"
    rows = [patch.get_y() + patch.get_height() / 2 for patch in axes.containers[1]]
    assert np.round(rows) == pytest.approx(np.arange(8))
    assert {patch.get_hatch() or "" for group in axes.containers for patch in group} == {"", "////"}


def test_what_has_no_length_has_a_sign():
    axes = figure(hard_views.bars(hard_views.paths(8))).axes[0]
    assert keys(axes) == ["step 0", "step 1", "exactly 0", "no value", "not finite", "guilty layer, or hit first"]
    signs = {
        line.get_label(): np.round(line.get_ydata()).tolist() for line in axes.lines if line.get_marker() != "None"
    }
    assert signs == {"exactly 0": [0], "no value": [1], "not finite": [2]}


def test_thresholds_are_lines_with_names_and_numbers():
    axes = figure(hard_views.bars()).axes[0]
    at = sorted(line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [0, 1])
    assert at == [1e-4, 1e-3]
    assert [text.get_text() for text in axes.texts] == ["too small: 0.0001", "too large: 0.001"]


def test_signed_bars_start_at_zero():
    given = hard_views.bars(scale=Scale("value"), limits=())
    given.bars[1].values[:] = [-2.0, 0.0, 1.0]
    axes = figure(given).axes[0]
    assert axes.get_xlim()[0] < -2 < 0 < axes.get_xlim()[1]
    assert [patch.get_width() for patch in axes.containers[1]] == [-2, 0, 1]


# ---------------------------------------------------------------- spread


def test_histograms_over_time():
    given = hard_views.spread()
    axes = figure(given).axes[0]
    drawn = np.ma.filled(mesh(axes).get_array(), np.nan)
    assert drawn == pytest.approx(np.where(given.shares > 0, 100 * given.shares, np.nan), nan_ok=True)
    assert axes.get_yscale() == "symlog"
    # The mean is small beside the deviation: on this axis it would jump around zero.
    assert keys(axes) == ["read without a histogram", "minimum and maximum"]
    apart = replace(given, mean=given.std)
    assert keys(figure(apart).axes[0]) == ["read without a histogram", "mean", "minimum and maximum"]
    assert "share of the values read (%)" in said(figure(given))


def test_moments_where_there_is_no_histogram():
    given = hard_views.spread(histograms=False)
    axes = figure(given).axes[0]
    whole, deviation, mean = [part for part in axes.patches if isinstance(part, StepPatch)]
    np.testing.assert_allclose(whole.get_data().values, given.high)
    np.testing.assert_allclose(whole.get_data().baseline, given.low)
    np.testing.assert_allclose(deviation.get_data().values, given.mean + given.std)
    np.testing.assert_allclose(mean.get_data().values, given.mean)
    assert keys(axes) == ["minimum to maximum", "mean ± standard deviation", "mean"]
    calm = hard_views.spread(
        histograms=False, low=-np.ones(40), high=np.ones(40), std=np.ones(40) / 3, mean=np.zeros(40)
    )
    assert figure(calm).axes[0].get_yscale() == "linear"


@pytest.mark.parametrize("histograms", [True, False])
def test_a_distribution_breaks_where_nothing_was_read(histograms):
    """Three readings, a long pause, a lone reading, and nothing up to the end: no curve crosses the pauses."""
    steps = np.array([0, 10, 20, 600])
    given = replace(
        hard_views.spread(histograms=histograms),
        steps=steps,
        width=np.ones(4, np.int64),
        end=1_000,
        **{name: np.full(4, value) for name, value in (("mean", 2.0), ("std", 0.5), ("low", -1.0), ("high", 3.0))},
    )
    if histograms:
        given = replace(given, shares=given.shares[:, :4])
    axes = figure(given).axes[0]
    curves = [part for part in axes.patches if isinstance(part, StepPatch)]
    assert len(curves) == 3
    for curve in curves:
        values, edges, _ = curve.get_data()
        drawn = [(a, b) for a, b, value in zip(edges[:-1], edges[1:], values, strict=True) if np.isfinite(value)]
        assert drawn == [(-0.5, 9.5), (9.5, 19.5), (19.5, 23.5), (599.5, 603.5)]  # a reading is 1/250 wide at least
        assert edges[-1] == 999.5
    assert "not read" in keys(axes)


# ---------------------------------------------------------------- graph


def test_boxes_do_not_touch_and_arrows_join_them():
    axes = figure(hard_views.graph()).axes[0]
    boxes = [patch for patch in axes.get_children() if isinstance(patch, FancyBboxPatch)]
    frames = [
        (box.get_x(), box.get_y(), box.get_x() + box.get_width(), box.get_y() + box.get_height()) for box in boxes
    ]
    assert len(boxes) == 6
    assert all(a[3] < b[1] for a, b in pairwise(frames))
    arrows = [patch for patch in axes.get_children() if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 6
    ways = [arrow._path_original.vertices.tolist() for arrow in arrows]
    assert sorted(len(way) for way in ways) == [2, 2, 2, 2, 2, 4]  # one goes around all those between
    assert len({box.get_edgecolor() for box in boxes}) == 5  # the cause and the guilty layer are both strong
    words = [text.get_text() for text in axes.texts]
    assert words.count("data flow") == 5
    assert words.count("time") == 1
    assert any("transformer.h.1.mlp.c_fc" in word and "Linear" in word for word in words)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size_in", [None, (6.0, 7.0)])
def test_arrows_cross_no_box_and_no_words(theme, size_in):
    """The data flow of residual blocks: branches beside each other, shortcuts past them, and one way back."""
    rows = (("stem",), ("conv1", "short"), ("bn1",), ("act",), ("conv2", "aux"), ("bn2",), ("loss",))
    nodes = tuple(
        Node(name, name, "healthy", (c + 0.5) / len(row), (r + 0.5) / len(rows), detail="Conv2d")
        for r, row in enumerate(rows)
        for c, name in enumerate(row)
    )
    pairs = "stem conv1, stem short, conv1 bn1, short act, bn1 act, stem act, act conv2, act aux, conv2 bn2, aux loss"
    pairs += ", bn2 loss, act loss, bn2 act"
    links = tuple(Link(*pair.split(), why="add") for pair in pairs.split(", "))
    made = figure(hard_views.graph(nodes=nodes, links=links), theme=theme, size_in=size_in)
    axes = made.axes[0]
    boxes = [patch for patch in axes.get_children() if isinstance(patch, FancyBboxPatch)]
    arrows = [patch for patch in axes.get_children() if isinstance(patch, FancyArrowPatch)]
    assert (len(boxes), len(arrows)) == (len(nodes), len(links))
    ways = [arrow._path_original.vertices.tolist() for arrow in arrows]
    inset = 0.01  # an arrow touches the border of the boxes that it joins
    for box in boxes:
        left, top = box.get_x() + inset, box.get_y() + inset
        frame = (left, top, left + box.get_width() - 2 * inset, top + box.get_height() - 2 * inset)
        assert not any(crosses(way, frame) for way in ways)
    FigureCanvasAgg(made).draw()
    inches = axes.transData.inverted()
    words = [text for text in axes.texts if text.get_text() == "add"]
    assert len(words) > len(links) // 2
    for word in words:
        (left, low), (right, top) = inches.transform(word.get_window_extent().get_points())
        assert not any(crosses(way, (left, min(low, top), right, max(low, top))) for way in ways)


def test_a_graph_too_large_for_boxes_is_drawn_as_dots():
    axes = figure(hard_views.graph(100)).axes[0]
    assert [patch for patch in axes.get_children() if isinstance(patch, FancyBboxPatch)] == []
    assert len(axes.lines) == 100
    (ways,) = [part for part in axes.collections if isinstance(part, LineCollection)]
    assert len(ways.get_segments()) == 100
    words = {text.get_text() for text in axes.texts}
    urgent = {node.label for node in hard_views.graph(100).nodes if node.role in ("cause", "guilty")}
    assert urgent <= words


# ---------------------------------------------------------------- all


@pytest.mark.parametrize("name", [member.name for member in VIEWS])
def test_every_view_of_a_real_run_in_every_format(failed, name, tmp_path):
    given = view(name, *failed)
    for suffix, head in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        save(given, tmp_path / f"a.{suffix}", theme="dark")
        assert (tmp_path / f"a.{suffix}").read_bytes().startswith(head)


def test_an_empty_view_says_why(tmp_path):
    given = hard_views.bars((), bars=(), empty="no layer was read: record with `neuraldbg run`")
    assert "no layer was read: record with `neuraldbg run`." in said(figure(given))
    save(given, tmp_path / "a.svg")


def test_names_stay_text_in_vector_graphics(tmp_path):
    for name, given in hard_views.hostile().items():
        save(given, tmp_path / f"{name}.svg")
        tags = {element.tag.rpartition("}")[2] for element in ET.parse(tmp_path / f"{name}.svg").iter()}
        assert tags <= {"svg", "metadata", "RDF", "Work", "type", "date", "format", "creator", "Agent", "title"} | {
            "defs", "style", "g", "path", "use", "clipPath", "rect", "pattern", "image"
        }  # fmt: skip


def test_dark_is_the_same_on_dark_ground():
    light, dark = (figure(hard_views.lines(), theme=theme) for theme in ("light", "dark"))
    assert to_hex(dark.get_facecolor()).upper() == DARK.ground
    for a, b in zip(light.axes, dark.axes, strict=True):
        assert all(same(x.get_xydata(), y.get_xydata()) for x, y in zip(a.lines, b.lines, strict=True))
        assert {to_hex(label.get_color()).upper() for label in b.get_xticklabels()} <= {DARK.ink}
    assert said(light) == said(dark)


def test_wrong_wishes(tmp_path):
    with pytest.raises(ConfigError, match="there is no theme 'blue': choose one of dark, light"):
        figure(hard_views.heat(), theme="blue")
    with pytest.raises(ConfigError, match=r"must end in \.png, \.svg, \.pdf"):
        save(hard_views.heat(), tmp_path / "a.gif")
    with pytest.raises(ConfigError, match="cannot write"):
        save(hard_views.heat(), tmp_path / "no" / "a.png")


def test_without_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[plot\]'"):
        figure(hard_views.heat())


def test_pyplot_stays_unused_and_settings_stay_as_they_are():
    code = (
        "import sys, matplotlib; sys.path.insert(0, '.')\n"
        "before = dict(matplotlib.rcParams)\n"
        "from tests.show.static import hard_views\n"
        "from neuraldbg.show.static.draw import figure\n"
        "for made in (hard_views.heat, hard_views.lines, hard_views.bars, hard_views.spread, hard_views.graph):\n"
        "    figure(made(), theme='dark')\n"
        "assert dict(matplotlib.rcParams) == before\n"
        "sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0


def test_a_moment_out_of_sight_is_left_out():
    made = figure(hard_views.lines(marks=(Mark(5_000, "far away", "failure"),)))
    assert "far away" not in said(made)


def test_words_in_a_legend_are_wrapped_and_paths_cut():
    steps, values = np.arange(9), np.linspace(2.0, 1.0, 9)
    lines = (Line("mean of loss_real and loss_fake", steps, values), Line("mean of loss_g", steps, values))
    made = figure(Lines(name="loss", title="Loss", lines=lines, y=Scale("loss")))
    assert keys(made.axes[0]) == ["mean of loss_real and\nloss_fake", "mean of loss_g"]
