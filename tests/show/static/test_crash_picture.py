"""What the crash picture holds: scales, lines, labels, the guilty layer, the moment of failure."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.collections import PolyCollection
from tests.show.made_diagnoses import EXPLODING, HEALTHY, SIX, failing_run, record
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.errors import ConfigError, MissingExtra, UnknownLayer
from neuraldbg.nouns import Event, Outcome, RunRecord
from neuraldbg.show.static.crash import crash_figure, save_crash
from neuraldbg.show.static.theme import LIGHT
from neuraldbg.show.views import view
from neuraldbg.show.views.crash import picture

GREY, STRONG = LIGHT.crowd, LIGHT.strong


def lines(axes, label=None):
    return [line for line in axes.lines if label is None or line.get_label() == label]


def curves(axes):
    """The lines with data over steps, without marks, failure and legend keys."""
    return [line for line in axes.lines if len(line.get_xdata()) > 2 and line.get_linestyle() != "None"]


def test_three_panels_over_steps():
    figure = crash_figure(failing_run(), EXPLODING)
    loss, grad, act = figure.axes
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log", "log"]
    assert loss.get_ylabel() == "loss"
    assert grad.get_ylabel() == "gradient norm (L2 of each layer)"
    assert act.get_ylabel() == "activation (rms)"
    assert act.get_xlabel() == "optimizer step"
    assert loss.get_shared_x_axes().joined(loss, act)
    assert figure.get_suptitle().startswith("FAILING: The loss diverged at step 3")


def test_gradient_norm_is_rms_times_root_of_size():
    grad = crash_figure(failing_run(), EXPLODING).axes[1]
    (line,) = lines(grad, "conv3")
    assert line.get_ydata()[:5] == pytest.approx(3.0, rel=1e-6)


def test_the_guilty_layer_alone_is_strong():
    for axes in crash_figure(failing_run(), EXPLODING).axes[1:]:
        assert len(curves(axes)) == 6
        strong = [line for line in curves(axes) if line.get_color() == STRONG]
        assert [line.get_label() for line in strong] == ["conv2 (guilty)"]
        assert strong[0].get_linewidth() > 2 * max(
            line.get_linewidth() for line in curves(axes) if line is not strong[0]
        )
        styles = {(line.get_color(), line.get_linestyle()) for line in curves(axes)}
        assert len(styles) == 6


def test_failure_is_marked_in_every_panel():
    figure = crash_figure(failing_run(), EXPLODING)
    for axes in figure.axes:
        assert [line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [0, 1]] == [40]
    assert [text.get_text() for text in figure.axes[0].texts] == ["loss not finite from step 40"]


def test_not_finite_values_stand_at_the_top_edge():
    figure = crash_figure(failing_run(nonfinite_from={"conv2": 38, "fc1": 39, "head": 40}), EXPLODING)
    loss, grad, _ = figure.axes
    (mark,) = [line for line in loss.lines if line.get_marker() == "v"]
    assert (list(mark.get_xdata()), mark.get_label()) == ([40], "NaN or Inf\nfrom step 40 on")
    others, guilty = [line for line in grad.lines if line.get_marker() == "v"]
    assert (list(others.get_xdata()), others.get_label()) == ([39, 40], "others not finite\nfrom step 39 on")
    assert (list(guilty.get_xdata()), guilty.get_color()) == ([38], STRONG)
    assert mark.get_transform() == loss.get_xaxis_transform()


def test_a_crowd_is_grey_and_only_three_are_named():
    layers = tuple(f"transformer.layers.{i}.attention.out_proj" for i in range(60))
    likely = replace(EXPLODING.hypotheses[0], layer=layers[17])
    grad = crash_figure(failing_run(layers), replace(EXPLODING, hypotheses=(likely,))).axes[1]
    assert len(curves(grad)) == 60
    assert sum(line.get_color() == GREY for line in curves(grad)) == 57
    named = [text.get_text() for text in grad.get_legend().get_texts()]
    assert named[:4] == [
        "…0.attention.out_proj",
        "…17.attention.out_proj (guilty)",
        "…59.attention.out_proj",
        "57 other layers",
    ]


def test_a_long_run_is_cut_to_the_failure():
    figure = crash_figure(failing_run(steps=5000, fail=2000), EXPLODING)
    assert figure.axes[2].get_xlabel() == "optimizer step (steps 1,900 to 2,050 of 5,000 shown)"
    low, high = figure.axes[0].get_xlim()
    assert 1890 < low < 1900
    assert 2050 < high < 2060


def test_a_run_that_trained_badly_to_its_end_is_shown_whole():
    """Its loss diverges at step 2,000 of 5,000 and stays finite: the headline is about the end, too."""
    run = failing_run(steps=5000, fail=2000, nan=False)
    event = Event("loss_divergence", "loss", 2000, 4999)
    shown = picture(run, replace(EXPLODING, events=(event,)))
    assert (shown.first, shown.last, shown.failure, shown.crashed) == (0, 4999, 2000, False)
    assert len(shown.losses[0].steps) <= 240
    stopped = replace(run, info=replace(run.info, outcome=Outcome("raised", "RuntimeError: no")))
    crash = picture(stopped, replace(EXPLODING, events=(event,)))
    assert (crash.first, crash.last, crash.failure) == (4899, 4999, 4999)
    assert crash.losses[0].low is None


def test_an_unsure_event_is_not_the_moment_of_failure():
    run = failing_run(steps=60, fail=9999, nan=False)
    unsure = Event("loss_spike", "loss", 20, 20, confidence=0.2)
    doubtful = replace(EXPLODING.hypotheses[0], confidence=0.2, step=30)
    assert picture(run, replace(EXPLODING, events=(unsure,), hypotheses=(doubtful,))).failure is None
    sure = replace(unsure, first_step=40, confidence=0.9)
    assert picture(run, replace(EXPLODING, events=(unsure, sure), hypotheses=(doubtful,))).failure == 40
    certain = replace(doubtful, confidence=0.9)
    assert picture(run, replace(EXPLODING, events=(unsure,), hypotheses=(certain,))).failure == 30


def test_one_layer_of_the_crash_picture():
    shown = picture(failing_run(), EXPLODING, "conv2")
    assert [curve.layer for curve in (*shown.gradients, *shown.activations)] == ["conv2", "conv2"]
    figure = crash_figure(failing_run(), EXPLODING, layer="conv2")
    assert figure.get_suptitle().startswith("FAILING · layer conv2: ")
    with pytest.raises(UnknownLayer, match="con2"):
        picture(failing_run(), EXPLODING, "con2")


def test_a_healthy_run_has_no_mark_and_no_guilty_layer():
    figure = crash_figure(failing_run(steps=500, fail=9999, nan=False), HEALTHY)
    assert figure.axes[0].get_yscale() == "linear"
    for axes in figure.axes:
        assert not axes.texts
        assert [line for line in axes.lines if line.get_color() == STRONG] == []
    for axes in figure.axes:  # of 500 steps points are means, in every panel, and their range is a band
        assert len(axes.lines[0].get_xdata()) == 240
        assert len([band for band in axes.collections if isinstance(band, PolyCollection)]) == len(curves(axes))


def test_a_negative_loss_that_spans_decades_gets_a_symmetric_axis():
    shown = failing_run(fail=9999, nan=False)
    loss = np.where(np.arange(60) < 30, -1.0, -1e5)
    shown = replace(shown, history=replace(shown.history, scalars={"loss": loss}))
    assert crash_figure(shown, HEALTHY).axes[0].get_yscale() == "symlog"


def test_zeros_and_a_dead_layer_do_not_break_the_log_axis():
    shown = record(SIX, np.ones(10), np.zeros((10, 6)), np.zeros((10, 6)))
    figure = crash_figure(shown, HEALTHY)
    for axes in figure.axes[1:]:
        assert axes.get_yscale() == "log"
        assert list(axes.get_yticks()) == list(axes.get_yticks(minor=True)) == []  # no number is on it
        (mark,) = [line for line in axes.lines if line.get_marker() == "^"]
        assert (list(mark.get_xdata()), mark.get_label()) == ([0], "exactly 0\nfrom step 0 on")


def test_one_gradient_among_zeros_has_a_log_axis():
    grad = np.zeros((10, 6))
    grad[:, 5] = 0.3
    axes = crash_figure(record(SIX, np.ones(10), grad, np.ones((10, 6))), HEALTHY).axes[1]
    assert axes.get_yscale() == "log"
    assert axes.get_yticks().size > 0
    (line,) = lines(axes, "head")
    assert line.get_ydata() == pytest.approx(0.3, rel=1e-6)
    assert [list(mark.get_xdata()) for mark in axes.lines if mark.get_marker() == "^"] == [[0]]


@pytest.mark.parametrize("shown", [RunRecord(), failing_run(steps=1, fail=99, nan=False), failing_run(steps=1, fail=0)])
def test_hardly_anything_to_draw(shown, tmp_path):
    save_crash(shown, replace(EXPLODING, summary="x"), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_gradient_that_dies_is_marked_at_the_bottom_edge():
    grad = np.ones((60, 6))
    grad[7:, 2] = 0.0
    grad[7:9, 3] = 0.0  # comes back
    figure = crash_figure(record(SIX, np.ones(60), grad, np.ones((60, 6))), EXPLODING)
    (mark,) = [line for line in figure.axes[1].lines if line.get_marker() == "^"]
    assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([7], [0.0])
    assert mark.get_label() == "exactly 0\nfrom step 7 on"
    assert not [line for line in figure.axes[2].lines if line.get_marker() == "^"]


def test_a_layer_of_which_only_the_bias_learns_is_not_at_zero():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    with NeuralDbg(model) as dbg:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.zeros(8, 4)).square().mean().backward()  # zeros: the first weight gets no gradient
            assert not model[0].weight.grad.any()
            norms.append([torch.cat([p.grad.flatten() for p in layer.parameters()]).norm().item() for layer in model])
            optimizer.step()
    found = dbg.record()
    curves = picture(found, dbg.diagnose()).gradients
    assert [curve.layer for curve in curves] == ["0", "1"]
    shown = np.array([curve.series.values for curve in curves]).T
    assert shown == pytest.approx(np.array(norms), rel=1e-5)
    assert [curve.zero for curve in curves] == [None, None]
    heat = view("heatmap", found, dbg.diagnose())  # the map of the same norms shows the same numbers
    assert heat.values == pytest.approx(np.array(norms).T, rel=1e-5)


def test_a_layer_that_only_suffers_is_not_called_guilty():
    likely = replace(EXPLODING.hypotheses[0], layer=None)
    grad = crash_figure(failing_run(), replace(EXPLODING, hypotheses=(likely,))).axes[1]
    assert next(line.get_label() for line in grad.lines if line.get_color() == STRONG) == "conv2 (hit first)"


def test_where_the_failure_is():
    quiet = failing_run(fail=9999, nan=False)
    diagnosis = replace(EXPLODING, events=())
    assert picture(quiet, diagnosis).failure == 0  # the first cause's step
    events = (Event("dead_units", "activation_regime", 5, 9, "fc1"), Event("loss_spike", "loss", 20, 21))
    told = picture(quiet, replace(diagnosis, events=events))
    assert (told.failure, told.failure_label) == (20, "loss spike, step 20")
    assert (
        picture(failing_run(fail=9999, nan=False, outcome="raised"), diagnosis).failure_label == "error after step 59"
    )
    assert picture(quiet, HEALTHY).failure is None


def test_guilt_by_parameter_and_by_container():
    def guilty(layer):
        likely = replace(EXPLODING.hypotheses[0], layer=layer)
        shown = failing_run(("a.0", "a.1", "ab.0"))
        return picture(shown, replace(EXPLODING, hypotheses=(likely,), chain=type(EXPLODING.chain)())).guilty

    assert guilty("a.1.weight") == ("a.1",)
    assert guilty("a") == ("a.0", "a.1")
    assert guilty("nowhere") == ()
    assert guilty(None) == ()


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_formats(tmp_path, suffix):
    path = tmp_path / f"crash.{suffix}"
    save_crash(failing_run(("a$b", "_under", "[bold]\x1b[1m")), replace(EXPLODING, summary="$\\frac{ $ [b] \x1b"), path)
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(head)


def test_everything_is_inside_the_picture():
    """No label is cut off: what is drawn lies within the page."""
    layers = tuple(f"encoder.block_{i}.a_rather_long_name_{i}" for i in range(12))
    figure = crash_figure(failing_run(layers), replace(EXPLODING, summary="word " * 60))
    figure.draw_without_rendering()
    page, drawn = figure.bbox, figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    assert page.x0 <= drawn.x0
    assert drawn.x1 <= page.x1
    assert page.y0 <= drawn.y0
    assert drawn.y1 <= page.y1


def test_wrong_places(tmp_path):
    with pytest.raises(ConfigError, match=r"must end in \.png"):
        save_crash(failing_run(), EXPLODING, tmp_path / "a.gif")
    with pytest.raises(ConfigError, match="cannot write"):
        save_crash(failing_run(), EXPLODING, tmp_path / "no" / "a.png")


def test_without_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[plot\]'"):
        crash_figure(failing_run(), EXPLODING)


def test_pyplot_stays_unused():
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.show.static.test_crash_picture import *\n"
        "crash_figure(failing_run(), EXPLODING)\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
