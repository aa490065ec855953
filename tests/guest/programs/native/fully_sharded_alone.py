"""FSDP2 on a mesh of one process: parameters are DTensors, and other tensors while a layer runs.

slow
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
mesh = init_device_mesh("cpu", (1,))
losses: list[float] = []
norms: list[float] = []


def train(steps: int) -> list[torch.Tensor]:
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8), nn.Linear(8, 2))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :2]).square().mean()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor().item())
        optimizer.step()
        losses.append(loss.item())
    return [p.to_local().detach().clone() for p in model.parameters()]


torch.manual_seed(0)
shards = train(100)
print(repr(losses[-1]), repr(norms[-1]))
dist.destroy_process_group()
