"""os._exit in the middle: no handler runs, nothing is flushed but what was flushed before."""
import atexit
import os

import torch
from torch import nn

atexit.register(print, "never printed")
torch.manual_seed(81)
net = nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(10):
    l = net(torch.randn(3, 2)).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
print(l.item(), flush=True)
print("this is lost")
os._exit(7)
