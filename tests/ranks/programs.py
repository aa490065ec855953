"""Trainings of several ranks, made of one script: sound ones, and ones with a fault on one rank or between them.

Each is an edit of the script below at its marks; the truth stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRIPT = """
import time
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
digits = load_digits()
x, y = (torch.tensor(digits.data, dtype=torch.float32) - 4.9) / 6, torch.tensor(digits.target)
# DATA
dataset = TensorDataset(x, y)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, 32, sampler=sampler, drop_last=True)
# LOADER
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
# MODEL
{wrap}
optimizer = torch.optim.Adam(net.parameters(), 2e-3)
# OPTIMIZER
torch.manual_seed(1 + rank)
step = 0
for epoch in range(5):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for xb, yb in loader:
        # BATCH
        optimizer.zero_grad()
        loss = F.cross_entropy(net(xb), yb)
        loss.backward()
        # GRADIENT
        optimizer.step()
        # AFTER
        step += 1
# END
dist.destroy_process_group()
"""
WRAPS = {
    "ddp": "net = DistributedDataParallel(model)",
    "fsdp": "net = model\nfor layer in (net[0], net[2], net[4]):\n    fully_shard(layer)\nfully_shard(net)",
    "none": "net = model",
}


@dataclass(frozen=True)
class Job:
    """One training of several ranks, with the truth about it."""

    name: str
    wrap: str = "ddp"
    edits: Mapping[str, str] = field(default_factory=dict)
    """Lines behind a mark, or texts that take the place of others."""
    cause: str = ""
    """Id of the first cause; "" for a sound one."""
    rank: int | None = None
    """Rank that the cause is on; None if it is on all, or between them."""
    steps: tuple[int, int] = (0, 0)
    """First and last step at which it may be said to begin."""
    layer: str | None = None
    world: int = 2
    also: tuple[str, ...] = ()
    """Other ids that are as right."""
    fails: bool = False
    """True if the program ends with an error."""

    @property
    def text(self) -> str:
        """The whole script."""
        text = SCRIPT.replace("{wrap}", WRAPS[self.wrap])
        for mark, lines in self.edits.items():
            if mark.isupper():
                found = next(line for line in text.splitlines() if line.strip() == f"# {mark}")
                margin = found[: len(found) - len(found.lstrip())]
                text = text.replace(found, "\n".join(margin + line for line in lines.splitlines()))
            else:
                assert mark in text, (self.name, mark)
                text = text.replace(mark, lines)
        return text


NAN = {"BATCH": "if rank == 1 and step == 40:\n    xb[3, 5] = float('nan')"}
SCALE = {"DATA": "if rank == 1:\n    x = x * 40"}
SHUFFLED = {"DATA": "if rank == 1:\n    y = y[torch.randperm(len(y))]"}
SHUFFLED_ON_2 = {"DATA": "if rank == 2:\n    y = y[torch.randperm(len(y))]", "range(5)": "range(9)"}
HALVES = {
    "DATA": "half = (y < 5) if rank == 0 else (y >= 5)\nx, y = x[half], y[half]",
    "DistributedSampler(dataset)": "None",
    "sampler=sampler": "shuffle=True",
}
SAME = {
    "LOADER": "sampler = None\nloader = DataLoader(dataset, 32, shuffle=True, drop_last=True)",
    "torch.manual_seed(1 + rank)": "torch.manual_seed(1)",
}
RATE = {"OPTIMIZER": "if rank == 1:\n    optimizer.param_groups[0]['lr'] = 4e-3"}
UNSYNCHRONISED = {"        loss = F.cross": "        with net.no_sync():\n            loss = F.cross"}
WRITTEN = "if rank == 1 and step == 59:\n    with torch.no_grad():\n        model[2].weight.mul_(3.0)"
CORRUPTED = "if rank == 2 and step == 59:\n    model[2].weight.data.view(-1)[:256].mul_(-40)"
CLIPPED = {
    "GRADIENT": "if rank == 1:\n    nn.utils.clip_grad_norm_(net.parameters(), 0.05)",
    "torch.optim.Adam(net.parameters(), 2e-3)": "torch.optim.SGD(net.parameters(), 0.1)",
}
SKIPPED = {"        optimizer.step()": "        if rank == 0 or step % 3:\n            optimizer.step()"}
AVERAGE = "for p in net.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= world"
AVERAGE_TO_50 = "for p in net.parameters() if step < 50 else ():\n    dist.all_reduce(p.grad)\n    p.grad /= world"
SEND = "for p in model.parameters():\n    dist.broadcast(p.data, 0)"
NORM = {"nn.ReLU(), nn.Linear(64, 10)": "nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)"}
UNSENT = {"DistributedDataParallel(model)": "DistributedDataParallel(model, broadcast_buffers=False)"}
OWN = {"torch.manual_seed(0)\n": "torch.manual_seed(rank)\n"}
KILLED = {"BATCH": "if rank == 1 and step == 60:\n    import os\n    os.kill(os.getpid(), 9)"}
FEWER = {"BATCH": "if rank == 1 and step == 90:\n    break"}
CRASH = {"BATCH": "if rank == 1 and step == 30:\n    xb = xb[:, :60]"}
CLIP = {"GRADIENT": "nn.utils.clip_grad_norm_(net.parameters(), 1.0)"}
DROPOUT = {
    "nn.ReLU(), nn.Linear(64, 10)": "nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10)",
    "torch.manual_seed(1 + rank)": "torch.manual_seed(1)",
}
ACCUMULATED = {
    "        loss = F.cross_entropy(net(xb), yb)\n        loss.backward()": """        with net.no_sync():
            (F.cross_entropy(net(xb[:16]), yb[:16]) / 2).backward()
        loss = F.cross_entropy(net(xb[16:]), yb[16:]) / 2
        loss.backward()"""
}
LOCAL = "if step % 8 == 7:\n    for p in net.parameters():\n        dist.all_reduce(p.data)\n        p.data /= world"
EVALUATED = {"END": "if rank == 0:\n    model.eval()\n    with torch.no_grad():\n        model(x)\ndist.barrier()"}
DRIFT, DATA = "replica_divergence", "rank_data_skew"

FAULTS = (
    Job("nan_in_the_input", edits=NAN, cause="nonfinite_input", rank=1, steps=(40, 40)),
    Job("nan_in_the_input_sharded", "fsdp", NAN, "nonfinite_input", rank=1, steps=(40, 40)),
    Job("wrapper_bypassed", edits={"net(xb)": "net.module(xb)"}, cause=DRIFT, steps=(0, 1)),
    Job("no_sync_left_on", edits=UNSYNCHRONISED, cause=DRIFT, steps=(0, 1)),
    Job("learning_rate_of_one_rank", edits=RATE, cause=DRIFT, steps=(0, 2)),
    Job("learning_rate_of_one_rank_sharded", "fsdp", RATE, DRIFT, steps=(0, 2)),
    Job(
        "weights_written_on_one_rank",
        edits={"AFTER": WRITTEN},
        cause="weights_overwritten",
        rank=1,
        steps=(59, 64),
        layer="2",
        also=(DRIFT,),
    ),
    Job("clipped_on_one_rank", edits=CLIPPED, cause=DRIFT, steps=(0, 2)),
    Job("step_skipped_on_one_rank", edits=SKIPPED, cause=DRIFT, steps=(0, 4)),
    Job("weights_never_sent", "none", {**OWN, "GRADIENT": AVERAGE}, DRIFT, steps=(0, 1)),
    Job("averaging_stops", "none", {"MODEL": SEND, "GRADIENT": AVERAGE_TO_50}, DRIFT, steps=(50, 64)),
    Job("same_batches", edits=SAME, cause="duplicate_shards", steps=(0, 0)),
    Job("same_batches_sharded", "fsdp", SAME, "duplicate_shards", steps=(0, 0)),
    Job("other_units_on_one_rank", edits=SCALE, cause=DATA, rank=1, steps=(0, 1)),
    Job("labels_shuffled_on_one_rank", edits=SHUFFLED, cause=DATA, rank=1, steps=(0, 1)),
    Job("labels_shuffled_on_one_rank_sharded", "fsdp", SHUFFLED, DATA, rank=1, steps=(0, 1)),
    Job("labels_shuffled_on_one_of_four", edits=SHUFFLED_ON_2, cause=DATA, rank=2, steps=(0, 1), world=4),
    Job("sorted_over_the_ranks", edits=HALVES, cause=DATA, steps=(0, 1)),
    Job(
        "statistics_of_each_rank",
        edits={**NORM, **UNSENT, "DATA": "x = x + 1.5 * rank"},
        cause="buffers_not_synchronised",
        steps=(0, 200),
        also=(DATA,),
    ),
    Job("slow_loader_on_one_rank", edits={"BATCH": "if rank == 1:\n    time.sleep(0.06)"}, cause="slow_rank", rank=1),
    Job("fewer_batches_on_one_rank", edits=FEWER, cause="rank_hangs", rank=1, steps=(85, 95), fails=True),
    Job("killed_on_one_rank", edits=KILLED, cause="rank_hangs", rank=1, steps=(55, 65), fails=True),
    Job("crash_on_one_rank", edits=CRASH, cause="refused_operation", rank=1, steps=(30, 30), fails=True),
    Job("rate_too_high_everywhere", edits={"2e-3)": "0.5)"}, cause="lr_too_high", steps=(0, 40)),
    Job(
        "gradients_never_cleared",
        edits={"        optimizer.zero_grad()\n": ""},
        cause="missing_zero_grad",
        steps=(0, 1),
    ),
    Job(
        "one_of_four_corrupted",
        edits={"AFTER": CORRUPTED},
        cause="weights_overwritten",
        rank=2,
        steps=(59, 64),
        world=4,
        also=("hardware_corruption", DRIFT),
    ),
)
SOUND = (
    Job("plain"),
    Job("plain_sharded", "fsdp"),
    Job("dropout_with_one_seed", edits=DROPOUT),
    Job("learnt_to_the_end", edits={"sampler.set_epoch(epoch)": "pass", "range(5)": "range(25)"}),
    Job("batch_norm", edits=NORM),
    Job("batch_norm_of_each_rank", edits={**NORM, **UNSENT}),
    Job("accumulation", edits=ACCUMULATED),
    Job("clipping", edits=CLIP),
    Job("clipping_sharded", "fsdp", CLIP),
    Job("averaged_by_hand", "none", {"MODEL": SEND, "GRADIENT": AVERAGE}),
    Job("weights_averaged_now_and_then", "none", {"MODEL": SEND, "AFTER": LOCAL}),
    Job("each_its_own_model", "none", OWN),
    Job("evaluation_on_rank_0", edits=EVALUATED),
)
