"""Weights that become NaN and inf on purpose; training goes on as if nothing were."""
import math

import torch
from torch import nn

torch.manual_seed(13)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
l = []
for i in range(20):
    if i == 7:
        with torch.no_grad():
            net[0].weight[0, 0] = math.nan
            net[2].bias.fill_(math.inf)
    x = torch.randn(5, 4)
    loss = net(x).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    l.append(loss.item())
print(l)
