"""Adafactor, whose eps is a pair with None in it, and Rprop with its pairs."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 8)
y = x.sum(1, keepdim=True)
losses = []
for kind in (torch.optim.Adafactor, torch.optim.Rprop, torch.optim.ASGD):
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = kind(net.parameters())
    for _ in range(30):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
    losses.append(loss.item())
print(losses)
