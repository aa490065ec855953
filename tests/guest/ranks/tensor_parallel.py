"""Tensor parallelism on two ranks: columns, rows, a sharded sequence between them, and a head that stays a DTensor."""

import torch
import torch.distributed as dist
from said import seed, tell
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.down(self.act(self.up(x)))))


seed()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
model = Model()
plan = {
    "up": ColwiseParallel(),
    "down": RowwiseParallel(output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}
parallelize_module(model, mesh, plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
data = torch.Generator().manual_seed(7)
losses: list[float] = []
for step in range(40):
    x = torch.randn(4, 6, 8, generator=data)
    y = x[..., :4].argmax(-1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x).reshape(-1, 4), y.reshape(-1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell(model, optimizer, losses)
