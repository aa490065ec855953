"""ColwiseParallel and RowwiseParallel on two ranks, as in the first example of everybody: outputs are collectives that
are waited for when they are first used.
"""

import torch
import torch.distributed as dist
from said import seed, tell
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

seed()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 2))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
data = torch.Generator().manual_seed(7)
losses: list[float] = []
for step in range(40):
    x = torch.randn(16, 8, generator=data)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell(model, optimizer, losses)
