"""An ordinary training script for TrainCheck to instrument: it rewrites the text of scripts, not trainings in memory.

Run as it is for a reference (BENCH_REFERENCE steps), or as a worker of overhead.py (see turns.py).
"""

import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, os.environ["BENCH_HERE"])  # TrainCheck sets PYTHONPATH to where the copy of this file lies
from models import WORKLOADS
from turns import Turns, beside, on_disk

beside()
torch.manual_seed(0)
workload = WORKLOADS[os.environ["BENCH_WORKLOAD"]]
draw = torch.Generator().manual_seed(0)
model = workload.model().train()
optimizer = workload.optimizer(model)
turns = Turns(os.environ["BENCH_ADDRESS"]) if "BENCH_ADDRESS" in os.environ else None
if turns is not None:
    turns.say(attach_s=0.0, parameters=sum(p.numel() for p in model.parameters()))
for _ in turns or range(int(os.environ.get("BENCH_REFERENCE", "20"))):
    inputs, targets = workload.batch(draw)
    logits = model(inputs)
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if turns is not None:
    left = on_disk(Path(os.environ["TRAINCHECK_OUTPUT_DIR"]))
    turns.say(close_s=0.0, disk=left, steps=turns.steps)
