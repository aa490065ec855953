"""A process that writes a run file of known steps, at a pace, and says the number of each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WRITER = """
import sys, time
from pathlib import Path
from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder
from tests.record.known_steps import INFO, event, layout, step

folder, rate, steps = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
recorder = Recorder(folder, RecordSettings(full_steps=128), INFO)
begin = time.time()
for i in range(steps):
    recorder.put(step(i, binned=i % 50 == 0), layout(), (event(0, i),))
    print(i, flush=True)
    time.sleep(max(0.0, begin + (i + 1) / rate - time.time()))
recorder.close()
"""


def start(folder, rate, steps):
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, folder, str(rate), str(steps)], stdout=subprocess.PIPE, text=True, env=env
    )
