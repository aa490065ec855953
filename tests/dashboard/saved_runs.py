"""Run folders of known steps."""

from __future__ import annotations

from tests.record.known_steps import layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.nouns import Outcome, RunInfo
from neuraldbg.record import Recorder


def record(folder, steps=50, *, script="train.py", started=1.0, rank=0, outcome="completed"):
    recorder = Recorder(folder, RecordSettings(), RunInfo(script=script, started=started), rank=rank)
    for i in range(steps):
        recorder.put(step(i), layout())
    recorder.update_info(RunInfo(script=script, started=started, outcome=Outcome(outcome)))
    recorder.close()
    return folder
