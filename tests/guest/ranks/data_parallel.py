"""DistributedDataParallel on two ranks, with gradient accumulation under no_sync, and clipping."""

import torch
import torch.distributed as dist
from said import seed, tell
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = seed()
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = torch.Generator().manual_seed(7 + rank)
losses: list[float] = []
for step in range(40):
    optimizer.zero_grad()
    for part in range(2):
        x = torch.randn(16, 8, generator=data)
        y = (x[:, :4].sum(1) > 0).long()
        if part == 0:
            with model.no_sync():
                loss = nn.functional.cross_entropy(model(x), y)
                (loss / 2).backward()
        else:
            loss = nn.functional.cross_entropy(model(x), y)
            (loss / 2).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
tell(model, optimizer, losses)
