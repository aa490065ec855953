"""Outputs of layers are results of collectives that are waited for when they are first used (one process).

slow
"""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())


class Gathered(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return collectives.all_reduce(x, "sum", dist.group.WORLD)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return collectives.all_reduce(x, "sum", dist.group.WORLD)

    @staticmethod
    def backward(ctx, grad):
        return collectives.all_reduce(grad, "sum", dist.group.WORLD)


class Reduced(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Straight.apply(super().forward(x))


torch.manual_seed(0)
model = nn.Sequential(Reduced(6, 12), nn.ReLU(), Reduced(12, 12), Gathered(), nn.Linear(12, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses: list[float] = []
for step in range(150):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    with torch.no_grad():
        model(x)
    loss = (model[4](model[2](torch.relu(model[0](x)))) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
last = model[:4](x)
print(repr(losses[-1]), type(last).__name__, repr(last.sum().item()))  # which waits for it
del last
dist.destroy_process_group()
