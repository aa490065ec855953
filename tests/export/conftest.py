from __future__ import annotations

import numpy as np
import pytest
from tests.export import recorded_runs

from neuraldbg.saved import Run


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Two optimizers, NaN at the end, thinned steps, and steps of which only scalars are left."""
    folder = tmp_path_factory.mktemp("recorded")
    recorded_runs.two_optimizers(folder)
    found = Run.load(folder)
    history, thinned = found.history, found.history.width > 1
    assert found.streams == (0, 1)
    assert (history.read & thinned).any()
    assert (history.read & ~thinned).any()
    assert (~history.read & ~thinned).any()
    assert (~np.isnan(history.scalars["loss"]) & thinned).any()
    assert found.histograms
    return found


@pytest.fixture(scope="session")
def diagnosis(run):
    return run.diagnose()


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A short run of which every step was read in full, with the dump of its flight recorder beside it."""
    folder = tmp_path_factory.mktemp("whole")
    recorded_runs.doomed(folder)
    return folder


@pytest.fixture(scope="session")
def short(whole):
    return Run.load(whole)
