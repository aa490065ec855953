"""A model that is made double, and single again, in the midst of its training, each with a new optimizer.

slow
"""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 8)
y = x.sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
losses = []


def train(steps):
    opt = torch.optim.SGD(net.parameters(), 0.02)
    for _ in range(steps):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
    losses.append(loss.item())


train(1500)
net.double()
x, y = x.double(), y.double()
train(150)
net.float()
x, y = x.float(), y.float()
train(150)
print(losses)
