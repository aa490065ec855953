"""Thousands of short steps by a closure, then a new model and optimizer without one."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 8)
y = x.sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), 0.02)


def closure():
    opt.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    return loss


losses = [opt.step(closure).item() for _ in range(1500)]
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), 0.02)
losses += [closure().item() for _ in range(300) if opt.step() is None]
print(losses[1499], losses[-1])
