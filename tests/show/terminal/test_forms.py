"""Views as text: what is drawn is decoded again and compared with the numbers of the view."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len
from tests.show.made_views import HOSTILE, bars, every, graph, heat, lines, spread

from neuraldbg.show.forms import Bar, Bars, Graph, Line, Mark, Node, Scale
from neuraldbg.show.terminal.draw import columns, drawn
from neuraldbg.show.terminal.marks import ASCII, UNICODE

BOTH = pytest.mark.parametrize("marks", [UNICODE, ASCII], ids=["unicode", "ascii"])


def text(view, width=80, height=None, marks=UNICODE):
    return drawn(view, width, height, marks=marks).plain.split("\n")


def rows(view, marks=UNICODE, **size):
    """The signs of a map, by row: what stands right of the first edge."""
    found = [line.partition(marks.edge) for line in text(view, marks=marks, **size)]
    return [right for left, edge, right in found if edge and left.strip()]


@BOTH
@pytest.mark.parametrize("width", [40, 80, 137, 200])
@pytest.mark.parametrize("height", [None, 30, 24, 9, 3])
@pytest.mark.parametrize("view", every(), ids=lambda view: f"{view.name} {view.title[:12]!r}")
def test_everything_fits(view, width, height, marks):
    found = text(view, width, height, marks)
    assert max(map(cell_len, found)) <= width
    assert height is None or len(found) <= height
    assert not {"\x1b", "\x07", "\r", "\u202e", "\ud800"} & set("".join(found))
    assert [line for line in found if line != line.rstrip()] == []
    if marks is ASCII:
        "\n".join(found).encode("ascii")


@BOTH
def test_a_map_has_more_ink_the_larger_the_value(marks):
    view = heat(steps=40)
    view.values[2, 9], view.nonfinite[2, 9] = np.nan, True
    level = {sign: i for i, sign in enumerate(marks.levels)}
    for row, values, bad in zip(rows(view, marks, width=50), view.values, view.nonfinite, strict=True):
        cells = row[:40]
        assert [sign == marks.unread for sign in cells] == list(np.isnan(values) & ~bad)
        assert [sign == marks.bad for sign in cells] == list(bad & np.isnan(values))
        assert [sign == marks.mixed for sign in cells] == list(bad & ~np.isnan(values))
        shown = [(value, level[sign]) for value, sign in zip(values, cells, strict=True) if sign in level]
        assert [ink for _, ink in sorted(shown)] == sorted(ink for _, ink in shown)
    last = rows(view, marks, width=50)[-1]
    assert last[39] == marks.levels[-1]  # the largest of all values


def test_a_value_has_the_level_that_its_logarithm_says():
    view = heat(("a",), 8, values=np.array([[1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3, 1e4]]), marks=(), guilty=())
    assert rows(view, width=40)[0][::4] == "▁▂▃▄▅▆▇█"  # 32 cells for 8 steps
    zero = replace(view, values=np.where(view.values == 1, 0.0, view.values))
    assert rows(zero, width=40)[0][::4] == "▁▂▃0▅▆▇█"
    assert "0 exactly 0" in "\n".join(text(zero))


def test_a_spike_of_one_step_is_seen_in_whatever_cell_it_falls_into():
    for at in (0, 1_234, 4_999):
        values = np.ones((2, 5_000))
        values[0, at] = 1e6
        cells = rows(heat(("a", "b"), 5_000, values=values, nonfinite=values < 0, marks=(), guilty=()), width=80)
        assert cells[0].count("█") == 1
        assert abs(cells[0].index("█") / len(cells[0]) - at / 5_000) < 0.02
        assert "█" not in cells[1]


def test_columns_stand_at_their_true_steps():
    """Read at every step to 9, then at 50 to 59: between them is a gap, five times as wide."""
    steps = np.concatenate([np.arange(10), np.arange(50, 60)])
    view = replace(heat(("a",), 20), steps=steps, values=np.ones((1, 20)))
    cells = rows(view, width=64)[0]
    assert [sign == "·" for sign in cells] == [False] * 10 + [True] * 40 + [False] * 10


def test_steps_read_at_a_steady_pace_leave_no_gaps():
    view = replace(heat(("a",), 20), steps=np.arange(20) * 7, values=np.ones((1, 20)))
    assert "·" not in rows(view, width=150)[0]


def test_the_failure_stands_above_its_step():
    found = text(heat(("a", "b"), 60))
    lane = next(line for line in found if line.strip() == "▼")
    row = next(line for line in found if "│" in line)
    assert lane.index("▼") == row.index("│") + 1 + 30
    assert "▼ loss not finite from step 30" in found


def test_the_guilty_layer_has_a_sign_and_stays_when_there_is_no_room():
    view = heat(tuple(f"layer{i}" for i in range(50)), 30, guilty=("layer3",))
    found = text(view, height=20)
    assert [line[:8] for line in found if line.startswith("▶") and "│" in line] == ["▶ layer3"]
    assert any(line.startswith("  layer49") for line in found)  # the largest values
    assert not any(line.startswith("  layer0 ") for line in found)
    assert "of 50 shown: the guilty, the largest" in found[-1]
    assert len(text(view)) > 50


@BOTH
def test_a_line_runs_through_its_values(marks):
    """The cells are decoded to numbers: each lies within one cell of the value at its step."""
    steps = np.arange(200)
    values = 50 + 40 * np.sin(steps / 25)
    view = lines(lines=(Line("loss", steps, values),), y=Scale("loss"), marks=(), guilty=())
    canvas = [line[9:].ljust(100) for line in text(view, 109, 30, marks) if line[8:9] == marks.edge]
    tall = len(canvas)
    assert tall > 15
    for column in range(100):
        ink = [r for r in range(tall) if canvas[r][column] != " "]
        found = values.max() - np.array(ink) / (tall - 1) * (values.max() - values.min())
        near = values[np.abs(steps / 199 * 99 - column) <= 1.0]
        cell = (values.max() - values.min()) / (tall - 1)
        assert found.min() >= near.min() - cell
        assert found.max() <= near.max() + cell


def test_a_line_breaks_at_nan_and_says_where_it_was_not_finite():
    steps = np.arange(100)
    values = np.where((steps > 40) & (steps < 60), np.nan, 1.0 * steps)
    view = lines(lines=(Line("loss", steps, values, nonfinite=steps[41:60]),), y=Scale("loss"), marks=(), guilty=())
    found = text(view, 109, 20)
    lane = next(line for line in found if line.startswith("NaN, inf"))[9:]
    assert {i for i, sign in enumerate(lane) if sign == "✗"} == set(range(41, 60))
    canvas = [line[9:].ljust(100) for line in found if line[8:9] == "│" and line is not lane]
    assert all(row[45:56].strip() == "" for row in canvas)
    assert any(row[20].strip() for row in canvas)


def test_the_last_finite_value_has_its_step():
    steps = np.arange(9)
    for values, words in ((1.0 * steps, "8 at step 8"), (np.where(steps > 5, np.nan, steps), "5 at step 5")):
        view = lines(lines=(Line("loss", steps, values),), y=Scale("loss"), marks=(), guilty=())
        assert f"loss  0 … {int(np.nanmax(values))}, {words}" in text(view)


@pytest.mark.parametrize("width", [40, 60, 120])
def test_a_map_of_as_many_columns_as_fit_has_each_in_a_cell_of_its_own(width):
    """Of three read steps in four, in columns that do not divide the run: none is put together with another again."""
    view = heat(("a", "a_long_name_of_a_layer"), 500)
    room = columns(view, width)
    read = np.flatnonzero(np.arange(500) % 4 != 1)
    place = read * room // 500
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    ends = np.append(read[starts[1:] - 1], 499) + 1
    values = np.tile(10.0 ** (np.arange(room) % 8), (2, 1))
    given = {"values": values, "nonfinite": values < 0, "steps": read[starts], "width": ends - read[starts]}
    for row in rows(replace(view, **given), width=width):
        assert row == "".join("▁▂▃▄▅▆▇█"[c % 8] for c in range(room))


def test_only_maps_over_time_have_columns():
    assert [columns(view, 80) for view in (lines(), bars(), graph())] == [None, None, None]
    assert columns(spread(), 80) == len(rows(spread(columns=500), width=80)[0])


def test_one_spike_among_many_values_reaches_the_top():
    values = np.ones(100_000)
    values[61_803] = 7.0
    view = lines(lines=(Line("loss", np.arange(100_000), values),), y=Scale("loss"), marks=(), guilty=())
    canvas = [line[9:] for line in text(view, 109, 20) if line[8:9] == "│"]
    assert canvas[0].strip()
    assert abs(len(canvas[0]) / 100 - 0.618) < 0.02


def test_lines_are_told_apart_without_colour():
    view = lines()
    for marks in (UNICODE, ASCII):
        found = text(view, 80, 30, marks)
        told = [line for line in found if line[:2] in ("a ", "b ", "c ")]
        assert [line.split()[:2] for line in told] == [["a", "conv1"], ["b", "conv2"], ["c", "fc"]]
        assert [marks.guilty in line for line in told] == [False, False, True]
        assert f"{marks.guilty} guilty layer, or hit first" in found
        canvas = "".join(line[9:] for line in found if line[8:9] == marks.edge)
        assert {"a", "b", "c"} <= set(canvas)


def test_a_crowd_is_not_named():
    found = text(lines(tuple(f"layer{i}" for i in range(30)), guilty=("layer7",)), 80, 40)
    told = [line.split()[1] for line in found if line[1:2] == " " and line[0] in "abc"]
    assert told == ["layer0", "layer7", "layer29"]
    assert ". 27 other lines, not named" in found


def test_the_band_and_its_extremes_are_there():
    steps = np.arange(100)
    line = Line("loss", steps, np.full(100, 5.0), np.full(100, 1.0), np.full(100, 9.0))
    found = text(lines(lines=(line,), y=Scale("loss"), marks=(), guilty=()), 80, 24)
    canvas = [line[9:] for line in found if line[8:9] == "│"]
    assert all(row.strip() for row in canvas[1:-1])
    assert "loss  1 … 9, 5 at step 99" in found


def test_what_a_log_axis_cannot_show_is_said():
    line = Line("grad", np.arange(4), np.array([1.0, 0.0, 0.0, 100.0]))
    assert "grad  0 … 100, 100 at step 3, 2 of 0 or less not shown" in text(lines(lines=(line,), marks=(), guilty=()))


def test_marks_are_told_and_many_are_cut():
    marks = tuple(Mark(i, f"event {i}", "event", i + 5, "fc") for i in range(30))
    found = text(lines(marks=marks))
    assert "● event 0 in fc, step 0 to 5" in found
    assert "  (+24 more)" in found


@BOTH
def test_bars_are_as_long_as_their_values(marks):
    values = np.array([1.0, 2.0, 4.0, 8.0])
    view = Bars(name="x", title="t", layers=tuple("abcd"), bars=(Bar("v", values),), scale=Scale("size"))
    found = [line.partition(marks.edge)[2] for line in text(view, 60, marks=marks) if marks.edge in line]
    length = np.array([row.count(marks.fills[0]) for row in found])
    assert length / length[-1] == pytest.approx(values / 8, abs=0.03)
    assert [row.split()[-1] for row in found] == ["1", "2", "4", "8"]


def test_negative_bars_go_to_the_left():
    view = Bars(name="x", title="t", layers=("a", "b"), bars=(Bar("v", np.array([-1.0, 1.0])),), scale=Scale("size"))
    a, b = [line.partition("│")[2] for line in text(view, 60) if "│" in line]
    assert abs(a.rindex("█") - b.index("█")) <= 1


def test_bars_say_what_has_no_value_and_where_the_limit_is():
    found = text(bars(), 80)
    assert sum(line.endswith("· no value") for line in found) == 2
    assert "┊ too large 3.5" in "\n".join(found)
    limit = {line.index("┊") for line in found if "┊" in line and "│" in line}
    assert len(limit) == 1
    assert "gradient norm, step 12" in "\n".join(found)
    assert "▶ guilty layer, or hit first" in "\n".join(found)


def test_bytes_have_the_unit_that_fits():
    view = Bars(
        name="m", title="t", layers=("a",), bars=(Bar("v", np.array([12_345_678.0])),), scale=Scale("size", "B")
    )
    assert "12.3 MB" in "\n".join(text(view))


def test_histograms_are_a_map_with_the_largest_values_on_top():
    view = spread()
    found = rows(view, width=120)
    assert len(found) == 8
    for column in range(20):
        signs = [row[int((column + 0.5) * len(row) / 20)] for row in found]
        if column == 3:
            assert set(signs) == {"·"}
        else:
            assert signs[::-1].index("█") == column % 8
            assert signs.count("█") == 1


def test_bins_are_put_together_by_adding():
    view = replace(spread(bins=64), shares=np.full((64, 20), 1 / 64))
    found = rows(view, width=80, height=20)
    assert len(found) < 16
    assert set("".join(found[1:])) == {"█"}  # the topmost may hold fewer bins
    each = -(-64 // len(found))
    assert f"0 to {100 * each / 64:.0f}% of the values in a bin" in "\n".join(text(view, 80, 20))


def test_a_graph_is_read_from_top_to_bottom():
    assert text(graph(), 60) == [
        "Causal chain",
        "◆ learning rate too high · layer.0 · step 0",
        "│ data flow",
        "● update ratio out of range · layer.1 · step 1",
        "│ data flow",
        "● exploding gradients · layer.2 · step 2",
        "┊ from: learning rate too high (time)",
        "✗ the loss is NaN · layer.3 · step 3",
    ]


def test_the_health_of_layers_is_said_by_signs_and_words():
    nodes = tuple(
        Node(role, f"layer{i}", role, 0.5, i / 4, f"layer{i}")
        for i, role in enumerate(("healthy", "bad", "guilty", "unseen"))
    )
    found = text(Graph(name="dataflow", title="t", nodes=nodes, links=()))
    assert [line for line in found[1:] if line != "┊"] == [
        "✓ layer0",
        "! layer1 (layer with events)",
        "▶ layer2",
        "? layer3 (not read)",
    ]


def test_a_graph_without_room_keeps_what_is_wrong():
    nodes = tuple(Node(str(i), f"layer{i}", "bad" if i == 40 else "healthy", 0.5, i / 50) for i in range(50))
    found = text(Graph(name="dataflow", title="t", nodes=nodes, links=()), 80, 12)
    assert "! layer40 (layer with events)" in found
    assert any("of 50 are shown" in line for line in found)


def test_an_empty_view_says_why():
    view = heat(empty="nothing was read: record it with neuraldbg run")
    assert text(view) == ["gradient norm of each layer", "nothing was read: record it with neuraldbg run"]


def test_wide_names_do_not_break_columns():
    view = heat((HOSTILE[3], "fc"), 20)
    places = {cell_len(line[: line.index("│")]) for line in text(view) if "│" in line}
    assert len(places) == 1


def test_notes_are_there():
    view = heat(notes=("6,000 steps are put together in columns of about 25 each.",))
    assert text(view)[-1] == view.notes[0]


def test_no_drawing_library_is_needed():
    code = (
        "import sys\n"
        "for name in ('matplotlib', 'plotext', 'plotly', 'torch'): sys.modules[name] = None\n"
        "from tests.show.made_views import every\n"
        "from neuraldbg.show.terminal.draw import drawn\n"
        "for view in every(): print(drawn(view, 80).plain)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=False, cwd="."
    )
    assert done.returncode == 0, done.stderr
    assert "Causal chain" in done.stdout
