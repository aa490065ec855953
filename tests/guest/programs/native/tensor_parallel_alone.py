"""Tensor parallelism on a mesh of one process: parameters, gradients and some outputs are DTensors."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
mesh = init_device_mesh("cpu", (1,))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8), nn.Linear(8, 2))
plan = {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()}
parallelize_module(model, mesh, plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
losses: list[float] = []
for step in range(100):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
shards = [p.to_local().detach() if hasattr(p, "to_local") else p.detach() for p in model.parameters()]
print(repr(losses[-1]))
dist.destroy_process_group()
