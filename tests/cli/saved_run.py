"""A run made by hand, saved as a run folder."""

from __future__ import annotations

import numpy as np

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import Outcome, RunInfo, Step
from neuraldbg.record import Recorder


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
