"""A folder to run programs in, and a folder with a saved run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.cli.helpers import Place
from tests.show.test_figures import run as made

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import Outcome, RunInfo, Step
from neuraldbg.record import Recorder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return an empty folder."""
    return Place(tmp_path)


@pytest.fixture
def folder(tmp_path):
    """A saved run whose loss becomes NaN at step 40."""
    return saved(tmp_path / "runs" / "one", made(nan=True))


def saved(folder, record):
    """Save a run that was made, and return its folder."""
    info = RunInfo(script="train.py", models=("Net",), optimizers=("SGD",), outcome=Outcome("completed"))
    recorder = Recorder(folder, RecordSettings(), info)
    for i, table in enumerate(record.history.mean):
        loss = float(record.history.scalars["loss"][i])
        scalars = {"loss": loss, "loss_nonfinite": float(np.isnan(loss)), "lr": 1.0}
        recorder.put(Step(i, 0, 0.01 * i, table.astype("float64"), scalars), record.layout)
    recorder.close()
    assert recorder.problem is None
    return folder
