"""TerminalVisualizer against numpy and against what is asked of it."""

from __future__ import annotations

import numpy as np
import pytest

import neuraldbg
from neuraldbg.errors import ConfigError

SIZES = pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 8), (200, 50)])
RANDOM = np.random.default_rng(0)


def fits(text, width, height):
    lines = text.encode("ascii").decode().split("\n")
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    assert "\x1b" not in text
    return lines


@SIZES
def test_all_plots_fit_their_size(width, height):
    draw = neuraldbg.TerminalVisualizer(width, height)
    values = RANDOM.standard_normal(5_000) * 1e-7
    title = "Trainingsverlust é 层 \x1b[31m" * 9
    for text in (
        draw.ascii_histogram(values, 10, title),
        draw.ascii_histogram(values, 500),
        draw.ascii_line_plot(np.arange(5_000), values, title),
        draw.ascii_bar_chart([title] * 60, values[:60], title),
        draw.ascii_heatmap(values.reshape(50, 100), title),
        draw.ascii_heatmap(values.reshape(2, 2_500)),
    ):
        fits(text, width, height)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e238, 1e238, 1e16, 1e300])
def test_equal_values_of_any_size_are_counted(value):
    text = neuraldbg.TerminalVisualizer(80, 24).ascii_histogram(np.full(7, value), bins=12, title="g")
    assert "7 values" in text


def test_the_histogram_counts_as_numpy_does():
    values = np.append(RANDOM.standard_normal(1_000), [np.nan, np.inf, -np.inf])
    lines = fits(neuraldbg.TerminalVisualizer(80, 24).ascii_histogram(values, 10), 80, 24)
    counts, edges = np.histogram(values[np.isfinite(values)], 10)
    assert [int(line.split()[-1].replace(",", "")) for line in lines[:10]] == counts.tolist()
    assert [float(line.split("|")[0]) for line in lines[:10]] == pytest.approx(edges[:-1], rel=1e-3)
    lengths = np.array([line.count("#") for line in lines[:10]])
    assert lengths / lengths.max() == pytest.approx(counts / counts.max(), abs=0.03)
    assert "3 NaN or infinite left out" in " ".join(lines[10:])


def test_large_counts_are_exact():
    assert " 1,200,000" in neuraldbg.TerminalVisualizer().ascii_histogram(np.ones(1_200_000), 3)


def test_constant_and_empty_values():
    draw = neuraldbg.TerminalVisualizer(80, 24)
    assert sum(line.endswith(" 5") for line in draw.ascii_histogram([3.0] * 5, 4).split("\n")) == 1
    assert draw.ascii_histogram([], 10) == "there is no value to count"
    assert draw.ascii_histogram([float("nan")]) == "there is no value to count; 1 NaN or infinite left out"
    assert draw.ascii_line_plot([], [], "t") == "t\nthere is no point to draw"
    assert "*" in draw.ascii_line_plot([1, 2, 3], [5, 5, 5])
    assert draw.ascii_bar_chart([], []) == "there is nothing to draw"
    assert draw.ascii_heatmap([[]]) == "there is no value to draw"


def test_the_line_goes_where_the_points_are():
    x, y = np.linspace(0, 1, 30), np.linspace(0, 1, 30) ** 2
    lines = fits(neuraldbg.TerminalVisualizer(80, 24).ascii_line_plot(x, y, "square"), 80, 24)
    assert lines[0] == "square"
    canvas = [line[9:].ljust(71) for line in lines[1:-2]]
    tall = len(canvas)
    for column in range(71):
        (found,) = {tall - 1 - r for r in range(tall) if canvas[r][column] == "*"} if column < 40 else [None]
        if found is not None:
            assert abs(found / (tall - 1) - (column / 70) ** 2) <= 1.0 / (tall - 1)


def test_the_map_has_the_most_ink_at_the_largest_value():
    values = np.zeros((10, 70))
    values[4, 60] = 9.0
    values[0, 0] = np.nan
    lines = neuraldbg.TerminalVisualizer(80, 24).ascii_heatmap(values).split("\n")
    assert [(r, line.index("@")) for r, line in enumerate(lines[:10]) if "@" in line] == [(4, 60)]
    assert lines[0][0] == "!"
    assert lines[-1] == ":-=+*%#@ 0 to 9; 10 x 70 values; 1 NaN or infinite left out"


def test_tensors_are_taken():
    torch = pytest.importorskip("torch")
    draw = neuraldbg.TerminalVisualizer()
    values = torch.linspace(-1, 1, 64, dtype=torch.bfloat16, requires_grad=True)
    same = values.detach().double().tolist()
    assert draw.ascii_histogram(values, 8) == draw.ascii_histogram(same, 8)
    assert draw.ascii_line_plot(torch.arange(64), values) == draw.ascii_line_plot(range(64), same)
    assert draw.ascii_heatmap(values.reshape(8, 8)) == draw.ascii_heatmap(np.array(same).reshape(8, 8))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda draw: draw.ascii_line_plot([1, 2], [1]), "x has 2 values and y 1"),
        (lambda draw: draw.ascii_bar_chart(["a"], [1, 2]), "1 labels and 2 values"),
        (lambda draw: draw.ascii_histogram([1], 0), "cannot have 0 bins"),
        (lambda draw: draw.ascii_histogram(["a"]), "not real numbers"),
        (lambda draw: draw.ascii_histogram(["1"]), "not real numbers"),
        (lambda draw: draw.ascii_histogram([1 + 2j]), "not real numbers"),
        (lambda draw: draw.ascii_histogram([[1], [1, 2]]), "not real numbers"),
        (lambda draw: draw.ascii_histogram([-1.7e308, 1.7e308]), "too wide for bins"),
        (lambda draw: draw.ascii_heatmap([1, 2]), "1 axes"),
        (lambda draw: neuraldbg.TerminalVisualizer(20, 24), "at least 40 x 8"),
    ],
)
def test_wrong_use(call, words):
    with pytest.raises(ConfigError, match=words):
        call(neuraldbg.TerminalVisualizer())
