"""The program replaces ``id`` by a function that raises: torch asks it for nothing in a training like this.

errors: allowed
"""
import builtins

import torch
from torch import nn

torch.manual_seed(3)
net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(4, 3)).pow(2).mean().backward()
    opt.step()
real = builtins.id


def refuses(thing):
    raise RuntimeError("id is not to be called")


builtins.id = refuses
for _ in range(20):
    opt.zero_grad()
    loss = net(torch.randn(4, 3)).pow(2).mean()
    loss.backward()
    opt.step()
builtins.id = real
del refuses
print(loss.item())
