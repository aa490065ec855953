"""A pipeline of two stages, one on each rank, with four micro-batches a step (GPipe)."""

import torch
import torch.distributed as dist
from said import seed, tell
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

rank = seed()
dist.init_process_group("gloo")
whole = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3))
model = whole[:3] if rank == 0 else whole[3:]
stage = PipelineStage(model, rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.cross_entropy)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(7)
losses: list[float] = []
for step in range(40):
    x = torch.randn(32, 8, generator=data)
    y = x[:, :3].argmax(1)
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    else:
        parts: list[torch.Tensor] = []
        schedule.step(target=y, losses=parts)
        losses += [part.item() for part in parts]
    optimizer.step()
tell(model, optimizer, losses)
