"""Pictures of numbers that a person gives: the numbers in them, the files, the page."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from tests.browser import visiting

from neuraldbg import DebugVisualizer, VisualizationConfig
from neuraldbg.errors import ConfigError
from neuraldbg.show.static.draw import figure

HOSTILE = "../../<img src=x onerror=alert(1)>/$x$\n" + "y" * 300


@pytest.fixture
def plots(tmp_path):
    return DebugVisualizer(VisualizationConfig(output_directory=tmp_path / "plots"))


def exported(plots, plot, tmp_path):
    return json.loads(plots.export_plot_data(plot, tmp_path / "data.json").read_text())


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0, 1.5, 3.0, 2.5, 1.8, 2.2],
        np.array([[1, 2, 1.5], [3, 2.5, 1.8]], np.float32),
        torch.tensor([[1.0, 2.0], [1.5, 3.0]], requires_grad=True),
        torch.tensor([1.0, 2.0, 1.5, 3.0], dtype=torch.bfloat16),
        [torch.tensor(1.0), torch.tensor(3.0)],
    ],
)
def test_distribution_counts_the_values(plots, tmp_path, values):
    path = plots.plot_tensor_distribution("weights", values, 10)
    assert path == tmp_path / "plots" / "weights_distribution.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    flat = np.concatenate(
        [np.asarray(v.detach().double() if hasattr(v, "detach") else v, dtype=float).ravel() for v in values]
    )
    counts, edges = np.histogram(flat, 10)
    columns = exported(plots, "weights_distribution", tmp_path)["columns"]
    assert columns["count"] == counts.tolist()
    assert columns["from"] == pytest.approx(edges[:-1])
    assert columns["to"] == pytest.approx(edges[1:])


def test_the_staircase_is_that_of_the_counts(plots):
    plots.plot_tensor_distribution("w", [0.0, 0.0, 1.0, 4.0], 4)
    view = plots._plots["w_distribution"].view
    axes = figure(view).axes[0]
    (stairs,) = axes.patches
    assert stairs.get_data().values.tolist() == [2, 1, 0, 1]
    assert (view.mean, view.std) == pytest.approx((1.25, np.std([0, 0, 1, 4])))


def test_what_is_not_finite_is_counted_and_said(plots, tmp_path):
    nan, inf = float("nan"), float("inf")
    plots.plot_tensor_distribution("w", [1.0, nan, inf, -inf, 2.0])
    assert exported(plots, "w_distribution", tmp_path)["notes"] == ["3 of 5 values are not finite: 1 NaN, 2 infinite"]
    assert sum(exported(plots, "w_distribution", tmp_path)["columns"]["count"]) == 2
    plots.plot_tensor_distribution("lost", [nan, nan])
    assert plots._plots["lost_distribution"].view.empty == "none of the 2 values is finite"
    plots.plot_tensor_distribution("none", [])
    assert plots._plots["none_distribution"].view.empty == "no values were given"


@pytest.mark.parametrize("values", [[7.0] * 5, [0.0], [1e20, 1e20 + 65536], [1e300, -1e300], [1e-310, 2e-310]])
def test_values_that_are_hard_to_put_into_bins(plots, values):
    plots.plot_tensor_distribution("w", values)
    view = plots._plots["w_distribution"].view
    assert view.counts.sum() == len(values)
    assert (np.diff(view.edges) > 0).all()
    assert view.edges[0] <= view.mean <= view.edges[-1]


def test_gradient_flow_over_steps(plots, tmp_path):
    path = plots.plot_gradient_flow("layer1", [4, 0, 1, 2, 3], [float("nan"), 0.1, 0.08, 0.0, 1e-7])
    assert path.name == "layer1_gradient_flow.png"
    assert exported(plots, "layer1_gradient_flow", tmp_path)["columns"] == {
        "step": [0, 1, 2, 3, 4],
        "layer1": [0.1, 0.08, 0.0, 1e-7, "NaN"],
    }
    axes = figure(plots._plots["layer1_gradient_flow"].view).axes[0]
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "layer1",
        "NaN or Inf\nfrom step 4 on",
        "exactly 0\nfor a while",
    ]


def test_metrics_layers_and_cells(plots, tmp_path):
    plots.plot_training_metrics("run", range(3), {"train": [3, 2, 1], "eval": torch.ones(3)})
    plots.plot_layer_comparison("norm", {"a": 1.0, "b": 1000.0, "c": float("nan")})
    plots.plot_layer_heatmap("norm", [1, 0], {"a": [1.0, 2.0], "b": [3.0, float("inf")]})
    assert plots.get_plot_names() == ["run_metrics", "norm_layers", "norm_heatmap"]
    heat = plots._plots["norm_heatmap"].view
    assert np.array_equal(heat.values, [[2, 1], [np.nan, 3]], equal_nan=True)
    assert heat.nonfinite.tolist() == [[False, False], [True, False]]
    table = list(csv.reader(plots.export_plot_data("norm_layers", tmp_path / "a.csv").read_text().splitlines()))
    assert table == [["layer", "value"], ["a", "1.0"], ["b", "1000.0"], ["c", "nan"]]
    table = list(csv.reader(plots.export_plot_data("run_metrics", tmp_path / "a.csv").read_text().splitlines()))
    assert table[1] == ["0", "3.0", "1.0"]


def test_no_spreadsheet_runs_a_name_and_numbers_stay_numbers(plots, tmp_path):
    names = ["=cmd|' /C calc'!A1", "+a", "-b", "@c", "'d", "\te", "f", "\udcff"]
    plots.plot_layer_comparison("norm", dict.fromkeys(names, -1.5))
    plots.plot_training_metrics("run", [0, 1], {"=1+1": [-1.0, float("-inf")]})
    with plots.export_plot_data("norm_layers", tmp_path / "a.csv").open(encoding="utf-8", newline="") as opened:
        table = list(csv.reader(opened))
    assert [name for name, _ in table[1:]] == [*(f"'{name}" for name in names[:6]), "f", "\\udcff"]
    assert {value for _, value in table[1:]} == {"-1.5"}
    with plots.export_plot_data("run_metrics", tmp_path / "b.csv").open(encoding="utf-8", newline="") as opened:
        assert list(csv.reader(opened)) == [["step", "'=1+1"], ["0", "-1.0"], ["1", "-inf"]]
    plain = plots.export_plot_data("norm_layers", tmp_path / "a.json").read_text()
    assert json.loads(plain)["columns"]["layer"][0] == names[0]  # nothing runs a JSON file: the name as it is


def test_all_formats_and_the_same_again(tmp_path):
    plots = DebugVisualizer(VisualizationConfig(tmp_path, formats=("svg", "png", "pdf"), theme="dark", size_in=(5, 4)))
    for values in ([1, 2], [3, 4]):
        plots.plot_tensor_distribution("w", values)
    assert [path.suffix for path in plots.get_plot_files("w_distribution")] == [".svg", ".png", ".pdf"]
    assert len(list(tmp_path.iterdir())) == 3
    assert plots.get_plot_names() == ["w_distribution"]


def test_names_cannot_leave_the_folder_and_stay_different(plots, tmp_path):
    paths = [
        plots.plot_gradient_flow(name, [0], [1.0]) for name in (HOSTILE, HOSTILE + "z", "a/b", "a_b", "", "\ud800")
    ]
    assert {path.parent for path in paths} == {tmp_path / "plots"}
    assert len({path.name for path in paths}) == len(paths)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+\.png", path.name) and len(path.name) < 120 for path in paths)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []
        self.said = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.said.append(data)


def test_the_page_holds_the_pictures_and_nothing_else(plots, tmp_path):
    plots.plot_gradient_flow(HOSTILE, [0, 1], [1.0, float("nan")])
    plots.plot_tensor_distribution("w", [1.0, 2.0])
    page = plots.create_dashboard(plots.get_plot_names())
    assert page == tmp_path / "plots" / "dashboard.html"
    tags = Tags()
    tags.feed(page.read_text())
    pictures = [attrs for tag, attrs in tags.seen if tag == "img"]
    assert len(pictures) == 2
    assert all(
        attrs["src"].startswith("data:image/png;base64,iVBOR") and set(attrs) == {"src", "alt"} for attrs in pictures
    )
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in tags.seen}
    assert any("<img src=x onerror=alert(1)>" in said for said in tags.said)
    one = plots.create_dashboard(["w_distribution"], tmp_path / "one.html")
    assert one.read_text().count("<img") == 1


def test_the_page_in_a_browser(plots, browser):
    plots.plot_gradient_flow(HOSTILE, [0, 1], [1.0, 2.0])
    page = plots.create_dashboard()
    for width in (400, 1200):
        with visiting(browser, viewport={"width": width, "height": 800}) as visit:
            visit.page.goto(page.as_uri())
            loaded = "document.images.length == 1 && document.images[0].naturalWidth > 300"
            assert visit.page.evaluate(loaded)
            assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert visit.errors == []
            assert visit.requests == [page.as_uri()]


def test_wrong_numbers_and_names(plots, tmp_path):
    for act, message in (
        (lambda: plots.plot_tensor_distribution("w", ["a", "b"]), "values are not real numbers"),
        (lambda: plots.plot_tensor_distribution("w", [1j]), "values are not real numbers"),
        (lambda: plots.plot_tensor_distribution("w", [1.0], 0), "cannot have 0 bins: give 1 to 1,000"),
        (lambda: plots.plot_tensor_distribution("w", [1.7e308, -1.7e308]), "too wide for bins"),
        (lambda: plots.plot_gradient_flow("w", [0, 1], [1.0]), "2 steps and 1 values of 'w'"),
        (lambda: plots.plot_gradient_flow("w", [0.5], [1.0]), "steps are no whole numbers"),
        (lambda: plots.plot_gradient_flow("step", [0], [1.0]), "give these values another name"),
        (plots.create_dashboard, "draw one first"),
        (lambda: plots.create_dashboard(["x"]), "there is no plot 'x': none was drawn yet"),
        (lambda: plots.export_plot_data("x", "a.json"), "there is no plot 'x'"),
        (lambda: VisualizationConfig(formats=("gif",)), "formats 'gif': give one or more of png, svg, pdf"),
        (lambda: VisualizationConfig(theme="blue"), "there is no theme 'blue'"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            act()
    plots.plot_gradient_flow("w", [0], [1.0])
    with pytest.raises(ConfigError, match=r"must end in \.json, \.csv"):
        plots.export_plot_data("w_gradient_flow", tmp_path / "a.txt")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot create the folder"):
        DebugVisualizer(VisualizationConfig(tmp_path / "file" / "x")).plot_gradient_flow("w", [0], [1.0])
