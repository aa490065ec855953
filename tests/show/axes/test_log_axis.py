"""When an axis is logarithmic: one rule, whichever face draws it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.show.made_diagnoses import HEALTHY, record

from neuraldbg import DebugVisualizer, VisualizationConfig
from neuraldbg.show.axes.ticks import wide
from neuraldbg.show.static.crash import crash_figure
from neuraldbg.show.static.draw import figure
from neuraldbg.show.views import view


@pytest.mark.parametrize(
    ("values", "positive", "signed"),
    [
        ([], False, False),
        ([0.0, np.nan], False, False),
        ([1.0, 100.0], False, False),
        ([1.0, 101.0], True, True),
        ([0.0, 1.0, 101.0], True, True),
        ([-1.0, 1.0, 101.0], False, True),
        ([1e-300, 1e300, np.inf], True, True),
        ([5e-324, 1.7e308], True, True),
    ],
)
def test_more_than_two_powers_of_ten_want_a_log_axis(values, positive, signed):
    assert wide(np.array(values)) is positive
    assert wide(np.array(values), signed=True) is signed


@pytest.mark.parametrize(("last", "scale"), [(0.04, "linear"), (0.02, "log")])
def test_every_face_draws_a_loss_on_the_same_axis(last, scale, tmp_path):
    loss, ones = np.linspace(3.0, last, 20), np.ones((20, 1))
    run = record(("fc",), loss, ones, ones)
    assert ("log" if view("loss", run, HEALTHY).y.log else "linear") == scale
    assert crash_figure(run, HEALTHY).axes[0].get_yscale() == scale
    plots = DebugVisualizer(VisualizationConfig(tmp_path))
    plots.plot_training_metrics("run", range(20), {"loss": loss})
    assert figure(plots._plots["run_metrics"].view).axes[0].get_yscale() == scale
