"""Storages that are smaller than their views for a while: a pool gives back all but the front of a parameter."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 2048), nn.ReLU(), nn.Linear(2048, 2))
big = model[2].weight
optimizer = torch.optim.SGD([model[0].weight, model[0].bias, model[2].bias], lr=0.01)
frozen = torch.optim.SGD([big], lr=0.01)
losses: list[float] = []
home = big.detach().clone()
for step in range(300):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    optimizer.step()
    home.add_(big.grad, alpha=-0.01)
    big.untyped_storage().resize_(64)
    big.grad = None
    if step % 3:
        frozen.step()
    big.untyped_storage().resize_(home.numel() * 4)
    big.data.copy_(home)
    losses.append(loss.item())
print(repr(losses[-1]))
